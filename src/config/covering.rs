//! An index of which earlier routes may match everything that a later route matches. Without it, a table
//! of ten thousand routes would need fifty million comparisons.
//!
//! A route can cover another only if it matches the other's first host and its path contains the other's. So
//! the routes are stored by host and path, and a lookup visits every host and path that could cover the given
//! one. Whether a route found there really covers it is decided by [`covers`](super::matching::covers).

use std::collections::HashMap;
use std::sync::Arc;

use crate::proxy::settings::RouteMatch;

/// Routes by host (`None`: any) and by path (empty: any; without a trailing slash).
#[derive(Debug, Default)]
pub(super) struct CoverIndex(HashMap<Option<Arc<str>>, ByPath>);

/// Positions, in order.
type ByPath = HashMap<Arc<str>, Vec<usize>>;

impl CoverIndex {
    /// Adds the route at `position`, which is after all that are there.
    pub(super) fn add(&mut self, route: &RouteMatch, position: usize) {
        let path: Arc<str> = path_of(route).into();
        let mut put = |host: Option<Arc<str>>| {
            let paths = self.0.entry(host).or_default();
            paths.entry(Arc::clone(&path)).or_default().push(position);
        };
        if route.hosts.is_empty() {
            put(None);
        }
        for host in &route.hosts {
            put(Some(Arc::clone(host)));
        }
    }

    /// The first route that may cover `route` and for which `does` returns true.
    pub(super) fn first(&self, route: &RouteMatch, does: impl Fn(usize) -> bool) -> Option<usize> {
        let path = path_of(route);
        let mut hosts = vec![None];
        if let Some(host) = route.hosts.first() {
            hosts.push(Some(Arc::clone(host)));
            // `*.b.test` takes `a.b.test` and `*.a.b.test`.
            let suffixes = host.match_indices('.').filter_map(|(at, _)| host.get(at..));
            hosts.extend(suffixes.map(|suffix| Some(format!("*{suffix}").into())));
        }
        let wider = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        let paths: Vec<&str> = [""].into_iter().chain(wider).chain([path]).collect();
        let by_host = hosts.iter().filter_map(|host| self.0.get(host));
        let lists = by_host.flat_map(|by_path| paths.iter().filter_map(|path| by_path.get(*path)));
        lists.filter_map(|list| list.iter().copied().find(|position| does(*position))).min()
    }
}

/// The route's path without its trailing slash: `/a` contains what `/a/` contains, and more.
fn path_of(route: &RouteMatch) -> &str {
    let path = route.path.as_ref().or(route.path_prefix.as_ref());
    path.map_or("", |path| path.strip_suffix('/').unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::super::matching::covers;
    use super::*;
    use proptest::prelude::*;

    fn route(host: &str, path: &str, exact: bool) -> RouteMatch {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        RouteMatch {
            hosts: some(host).into_iter().collect(),
            path: some(path).filter(|_| exact),
            path_prefix: some(path).filter(|_| !exact),
            ..RouteMatch::default()
        }
    }

    proptest! {
        /// The index finds the same route as a search through all earlier routes.
        #[test]
        fn the_index_agrees_with_a_walk(
            picked in prop::collection::vec((0_usize..5, 0_usize..6, any::<bool>()), 1..12),
        ) {
            let hosts = ["", "a.test", "*.test", "*.a.test", "b.a.test"];
            let paths = ["", "/", "/a", "/a/", "/a/b", "/ab"];
            let table: Vec<_> = picked
                .iter()
                .map(|(host, path, exact)| route(hosts[*host], paths[*path], *exact))
                .collect();
            let mut index = CoverIndex::default();
            for (position, inner) in table.iter().enumerate() {
                let walked = table[..position].iter().position(|outer| covers(outer, inner));
                prop_assert_eq!(index.first(inner, |at| covers(&table[at], inner)), walked);
                index.add(inner, position);
            }
        }
    }
}
