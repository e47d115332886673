//! The route table: finds the first route in the file's order that matches.
//!
//! Routes are indexed by host, exact path and path prefix. So a request only tries the few routes that its host
//! and path allow, in order, and ten thousand routes cost as much as ten. The path is compared byte by byte as
//! it was sent.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, Method};
use smallvec::SmallVec;

use crate::proxy::message::target::canonical_host;
use crate::proxy::message::{headers, query};
use crate::proxy::settings::RouteMatch;
use crate::proxy::tls::ClientCertificate;

/// All routes of a configuration.
#[derive(Debug)]
pub struct Router {
    routes: Vec<RouteMatch>,
    /// Routes for any host.
    any: PathIndex,
    /// By exact host, in lower case.
    hosts: HashMap<Box<str>, PathIndex>,
    /// By the part after `*.` of a wildcard host.
    suffixes: HashMap<Box<str>, PathIndex>,
}

/// The parts of a request that decide its route.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Without a port, in any case.
    pub host: &'a str,
    /// What it means.
    pub path: &'a str,
    /// As sent, without the question mark.
    pub query: &'a str,
    /// The method.
    pub method: &'a Method,
    /// All fields.
    pub headers: &'a HeaderMap,
    /// The client's certificate, if it presented one.
    pub certificate: Option<&'a ClientCertificate>,
}

/// A condition that a request does not meet.
#[derive(Clone, Copy, Debug)]
enum Miss<'a> {
    Method,
    Path,
    Prefix,
    Host,
    /// `header` or `query`, the name, and the expected value.
    Field(&'static str, &'a str, Option<&'a str>),
    Certificate,
}

/// Indexes of routes, ascending in each list.
#[derive(Debug, Default)]
struct PathIndex {
    /// Routes for any path.
    any: Vec<usize>,
    exact: HashMap<Box<str>, Vec<usize>>,
    /// By prefix, without a trailing slash.
    prefix: HashMap<Box<str>, Vec<usize>>,
    /// By prefix, up to and including its trailing slash.
    folder: HashMap<Box<str>, Vec<usize>>,
}

/// The methods of a route that names none.
const ANY: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];

type Lists<'a> = SmallVec<[&'a [usize]; 8]>;

impl Router {
    /// Indexes `routes`.
    pub fn new(routes: Vec<RouteMatch>) -> Self {
        let mut index = Self {
            routes: Vec::new(),
            any: PathIndex::default(),
            hosts: HashMap::new(),
            suffixes: HashMap::new(),
        };
        for (position, route) in routes.iter().enumerate() {
            if route.hosts.is_empty() {
                index.any.add(route, position);
            }
            for host in &route.hosts {
                let (map, key) = match host.strip_prefix("*.") {
                    Some(suffix) => (&mut index.suffixes, suffix),
                    None => (&mut index.hosts, host.as_ref()),
                };
                map.entry(key.into()).or_default().add(route, position);
            }
        }
        index.routes = routes;
        index
    }

    /// The index of the first route that matches `target`.
    pub fn find(&self, target: Target<'_>) -> Option<usize> {
        let mut lists = Lists::new();
        self.any.look_up(target.path, &mut lists);
        self.look_up_host(target, &mut lists);
        // The lists are sorted, so the smallest first element is the next route to try.
        loop {
            let next = *lists.iter().filter_map(|list| list.first()).min()?;
            if self.routes.get(next).is_some_and(|route| matches(route, target)) {
                return Some(next);
            }
            for list in &mut lists {
                if let Some((_, rest)) = list.split_first().filter(|(first, _)| **first == next) {
                    *list = rest;
                }
            }
        }
    }

    /// The value of `Allow`: the methods of the routes that match `target` apart from its method, or of all routes.
    pub(crate) fn allowed(&self, target: Option<Target<'_>>) -> String {
        let takes = |route: &&RouteMatch| {
            target.is_none_or(|target| miss_beside_method(route, target).is_none())
        };
        let mut allowed: Vec<&str> = Vec::new();
        for route in self.routes.iter().filter(takes) {
            let named: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
            let all = if named.is_empty() { &ANY[..] } else { &named };
            allowed.extend(
                all.iter().filter(|method| !allowed.contains(method)).copied().collect::<Vec<_>>(),
            );
        }
        allowed.join(", ")
    }

    /// Why each route does not match `target`, in order, up to the one that does, which has `None`.
    pub(crate) fn misses(&self, target: Target<'_>) -> Vec<Option<String>> {
        let found = self.find(target);
        let tried = self.routes.iter().take(found.map_or(usize::MAX, |found| found + 1));
        let why = |route| miss(route, target).map(|miss| miss.say(route, target));
        tried.map(why).collect()
    }

    fn look_up_host<'a>(&'a self, target: Target<'_>, lists: &mut Lists<'a>) {
        if self.hosts.is_empty() && self.suffixes.is_empty() {
            return;
        }
        let host = canonical_host(target.host);
        if let Some(index) = self.hosts.get(host.as_ref()) {
            index.look_up(target.path, lists);
        }
        if self.suffixes.is_empty() {
            return;
        }
        let mut rest = host.as_ref();
        while let Some((_, suffix)) = rest.split_once('.') {
            if let Some(index) = self.suffixes.get(suffix) {
                index.look_up(target.path, lists);
            }
            rest = suffix;
        }
    }
}

impl PathIndex {
    fn add(&mut self, route: &RouteMatch, position: usize) {
        let list = match (&route.path, &route.path_prefix) {
            (Some(path), _) => self.exact.entry(path.as_ref().into()).or_default(),
            (None, Some(prefix)) if prefix.as_ref() != "/" => {
                let map = if prefix.ends_with('/') { &mut self.folder } else { &mut self.prefix };
                map.entry(prefix.as_ref().into()).or_default()
            }
            (None, _) => &mut self.any,
        };
        list.push(position);
    }

    fn look_up<'a>(&'a self, path: &str, lists: &mut Lists<'a>) {
        if !self.any.is_empty() {
            lists.push(&self.any);
        }
        if !self.exact.is_empty() {
            lists.extend(self.exact.get(path).map(Vec::as_slice));
        }
        if !self.prefix.is_empty() {
            let whole = std::iter::once(path);
            let cuts = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
            lists.extend(found(&self.prefix, whole.chain(cuts)));
        }
        if !self.folder.is_empty() {
            let cuts = path.match_indices('/').filter_map(|(at, _)| path.get(..=at));
            lists.extend(found(&self.folder, cuts));
        }
    }
}

fn found<'a, 'k>(
    map: &'a HashMap<Box<str>, Vec<usize>>,
    keys: impl Iterator<Item = &'k str>,
) -> impl Iterator<Item = &'a [usize]> {
    keys.filter_map(|key| map.get(key).map(Vec::as_slice))
}

fn matches(route: &RouteMatch, target: Target<'_>) -> bool {
    miss(route, target).is_none()
}

/// The first condition that `target` does not meet. The index only narrows the search, so the conditions that
/// it covers are checked again.
fn miss<'a>(route: &'a RouteMatch, target: Target<'_>) -> Option<Miss<'a>> {
    let methods = &route.methods;
    if !methods.is_empty() && !methods.contains(target.method) {
        return Some(Miss::Method);
    }
    miss_beside_method(route, target)
}

/// The same, whatever the method is.
fn miss_beside_method<'a>(route: &'a RouteMatch, target: Target<'_>) -> Option<Miss<'a>> {
    let RouteMatch { hosts, path, path_prefix, methods: _, headers, query, certificate } = route;
    if path.as_ref().is_some_and(|path| path.as_ref() != target.path) {
        return Some(Miss::Path);
    }
    if path_prefix.as_ref().is_some_and(|prefix| !in_prefix(prefix, target.path)) {
        return Some(Miss::Prefix);
    }
    if !hosts.is_empty() && !hosts.iter().any(|host| is_host(host, target.host)) {
        return Some(Miss::Host);
    }
    let mut fields = headers.iter();
    if let Some((name, wanted)) =
        fields.find(|(name, wanted)| !headers::has(target.headers, name, wanted.as_deref()))
    {
        return Some(Miss::Field("header", name.as_str(), wanted.as_deref()));
    }
    let mut parameters = query.iter();
    let missed =
        parameters.find(|(name, wanted)| !query::has(target.query, name, wanted.as_deref()));
    if let Some((name, wanted)) = missed {
        return Some(Miss::Field("query", name, wanted.as_deref()));
    }
    let wanted = certificate.as_ref()?;
    let fits = target.certificate.is_some_and(|presented| wanted.takes(presented));
    (!fits).then_some(Miss::Certificate)
}

impl Miss<'_> {
    /// What was found and what was expected.
    fn say(&self, route: &RouteMatch, target: Target<'_>) -> String {
        let text = |written: &Option<Arc<str>>| written.as_deref().unwrap_or_default().to_owned();
        match self {
            Self::Method => {
                let wanted: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
                format!("the method is {}, not {}", target.method, wanted.join(" or "))
            }
            Self::Path => format!("the path is {}, not {}", target.path, text(&route.path)),
            Self::Prefix => {
                format!("the path {} is not beneath {}", target.path, text(&route.path_prefix))
            }
            Self::Host => format!("the host is {}, not {}", target.host, route.hosts.join(" or ")),
            Self::Certificate => match target.certificate {
                None => "the client has no certificate".to_owned(),
                Some(presented) => {
                    let (subject, sans) = (presented.subject(), presented.sans());
                    let sans = sans.collect::<Vec<_>>().join(" ");
                    format!("the client's certificate is another one: {subject} {sans}")
                }
            },
            Self::Field(kind, name, None) => format!("there is no {kind} {name}"),
            Self::Field(kind, name, Some(value)) => format!("there is no {kind} {name}={value}"),
        }
    }
}

/// `/a` matches `/a`, `/a/` and `/a/b`, but not `/ab`; `/` matches everything.
fn in_prefix(prefix: &str, path: &str) -> bool {
    if prefix == "/" {
        return true;
    }
    path.strip_prefix(prefix)
        .is_some_and(|rest| prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'))
}

fn is_host(pattern: &str, host: &str) -> bool {
    let host = canonical_host(host);
    match pattern.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => host == pattern,
    }
}

#[cfg(test)]
mod tests;
