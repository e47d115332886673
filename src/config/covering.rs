//! Which earlier routes may take all that a route takes: an index, because a table of ten thousand routes has
//! fifty million pairs.
//!
//! A route can only cover another whose first host it takes and whose path it holds. So routes are kept by their
//! hosts and path, and asked for by everything that could cover the one in question; whether one does is for
//! [`covers`](super::matching::covers) to say.

use std::collections::HashMap;
use std::sync::Arc;

use crate::proxy::settings::RouteMatch;

/// Routes, by host (none: any) and by path (empty: any; without a closing slash).
#[derive(Debug, Default)]
pub(super) struct Covering(HashMap<Option<Arc<str>>, ByPath>);

/// Positions, in order.
type ByPath = HashMap<Arc<str>, Vec<usize>>;

impl Covering {
    /// Adds the route at `position`, which is after all that are there.
    pub(super) fn add(&mut self, route: &RouteMatch, position: usize) {
        let path = route.path.as_ref().or(route.path_prefix.as_ref());
        let path: Arc<str> = path.map_or("", |path| bare(path)).into();
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

    /// The first of the routes that may cover `route` for which `does` holds.
    pub(super) fn first(&self, route: &RouteMatch, does: impl Fn(usize) -> bool) -> Option<usize> {
        let path = route.path.as_ref().or(route.path_prefix.as_ref());
        let path = path.map_or("", |path| bare(path));
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

/// A path without its closing slash: `/a` holds what `/a/` holds, and more.
fn bare(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
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
        /// The index finds what a walk through all earlier routes finds.
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
            let mut index = Covering::default();
            for (position, inner) in table.iter().enumerate() {
                let walked = table[..position].iter().position(|outer| covers(outer, inner));
                prop_assert_eq!(index.first(inner, |at| covers(&table[at], inner)), walked);
                index.add(inner, position);
            }
        }
    }
}
