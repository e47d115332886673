//! Which routes and upstreams a new configuration changes, for the log.
//!
//! The two texts are compared as they are written, with each named stack in the place of its name. A variable that has
//! another value by now is not seen.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value as Json};

use super::{FileContents, WrittenConfig};

/// How many names are told of each kind. A new table may have ten thousand.
const TOLD: usize = 20;

/// How deep stacks may name stacks. The reader refuses circles.
const DEPTH: usize = 32;

/// The names that are new, gone or different.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
}

/// A configuration, as far as it is compared.
#[derive(Clone, Debug)]
pub struct Comparable<'a> {
    /// Its text.
    pub written: &'a WrittenConfig,
    /// The files that it was made of.
    pub files: &'a [FileContents],
}

impl Changes {
    /// The changes of the routes, and those of the upstreams.
    pub fn between(before: &Comparable<'_>, after: &Comparable<'_>) -> (Self, Self) {
        let [before, after] = [before, after].map(Parts::of);
        let routes = Self::of(&before.routes, &after.routes);
        (routes, Self::of(&before.upstreams, &after.upstreams))
    }

    fn of(before: &BTreeMap<String, Json>, after: &BTreeMap<String, Json>) -> Self {
        let missing = |from: &BTreeMap<String, Json>, of: &BTreeMap<String, Json>| {
            let names = of.keys().filter(|name| !from.contains_key(*name));
            names.cloned().collect::<Vec<_>>()
        };
        let differs =
            |(name, now): &(&String, &Json)| before.get(*name).is_some_and(|then| then != *now);
        Self {
            added: missing(before, after),
            removed: missing(after, before),
            changed: after.iter().filter(differs).map(|(name, _)| name.clone()).collect(),
        }
    }
}

/// `changed: pay, audit; new: refunds; gone: legacy`, or `none`.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [("changed", &self.changed), ("new", &self.added), ("gone", &self.removed)];
        let mut told = false;
        for (kind, names) in kinds.into_iter().filter(|(_, names)| !names.is_empty()) {
            let some = names.get(..TOLD.min(names.len())).unwrap_or_default().join(", ");
            write!(f, "{}{kind}: {some}", if told { "; " } else { "" })?;
            if names.len() > TOLD {
                write!(f, " and {} more", names.len() - TOLD)?;
            }
            told = true;
        }
        if told { Ok(()) } else { f.write_str("none") }
    }
}

/// The routes and upstreams of a configuration, by name.
#[derive(Debug, Default)]
struct Parts {
    routes: BTreeMap<String, Json>,
    upstreams: BTreeMap<String, Json>,
}

impl Parts {
    fn of(config: &Comparable<'_>) -> Self {
        let root = config.written.to_json();
        let member = |name: &str| root.get(name).cloned().unwrap_or_default();
        let stacks = member("stacks");
        let middleware = expanded(&member("middleware"), &stacks, DEPTH);
        let routes = member("routes");
        let routes = routes.as_array().into_iter().flatten().filter_map(|route| {
            let name = route.get("name")?.as_str()?.to_owned();
            let mut all = Map::new();
            all.insert("route".into(), expanded(route, &stacks, DEPTH));
            all.insert("around".into(), middleware.clone());
            all.insert("flow".into(), flow(route, config.files).into());
            Some((name, Json::Object(all)))
        });
        let upstreams = member("upstreams");
        let upstreams = upstreams.as_object().into_iter().flatten();
        Self {
            routes: routes.collect(),
            upstreams: upstreams.map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }
}

/// `written` with each `{ stack: NAME }` replaced by that stack.
fn expanded(written: &Json, stacks: &Json, depth: usize) -> Json {
    match written {
        Json::Array(items) => items.iter().map(|item| expanded(item, stacks, depth)).collect(),
        Json::Object(members) => {
            let inner = |name: &String, value: &Json| {
                let stack = value.as_str().filter(|_| name == "stack");
                match (stack.and_then(|stack| stacks.get(stack)), depth.checked_sub(1)) {
                    (Some(stack), Some(depth)) => expanded(stack, stacks, depth),
                    _ => expanded(value, stacks, depth),
                }
            };
            let members = members.iter().map(|(name, value)| (name.clone(), inner(name, value)));
            Json::Object(members.collect())
        }
        other => other.clone(),
    }
}

/// The text of the Flow's file that a route names.
fn flow(route: &Json, files: &[FileContents]) -> Option<String> {
    let named = route.get("flow")?.as_str()?;
    let file = files.iter().find(|file| file.path.ends_with(named))?;
    file.text.as_deref().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const BEFORE: &str = "upstreams: { a: { endpoints: ['http://a'] }, b: { endpoints: ['http://b'] } }\n\
        stacks: { outer: [{ stack: inner }], inner: [{ provider: x }] }\n\
        routes:\n\
        - { name: plain, upstream: a }\n\
        - { name: stacked, upstream: a, middleware: [{ stack: outer }] }\n\
        - { name: filed, flow: flows/f.json }\n";

    fn told(after: &str, flow: &str) -> [String; 2] {
        let config = |text: &str| WrittenConfig { name: "c.yaml".into(), text: text.into() };
        let files = |text: &str| {
            let path = PathBuf::from("/etc/proxy/flows/f.json");
            [FileContents { path, text: Some(text.into()) }]
        };
        let ((then, now), (before, after)) =
            ((files("1"), files(flow)), (config(BEFORE), config(after)));
        let before = Comparable { written: &before, files: &then };
        let after = Comparable { written: &after, files: &now };
        let (routes, upstreams) = Changes::between(&before, &after);
        [routes.to_string(), upstreams.to_string()]
    }

    #[test]
    fn what_differs_is_told_and_nothing_else() {
        let of = |from: &str, to: &str| told(&BEFORE.replace(from, to), "1");
        assert_eq!(told(BEFORE, "1"), ["none", "none"]);
        assert_eq!(of("routes:", "# a note\n\nroutes:"), ["none", "none"]);
        assert_eq!(of("name: plain", "name: other"), ["new: other; gone: plain", "none"]);
        assert_eq!(of("plain, upstream: a", "plain, upstream: b"), ["changed: plain", "none"]);
        assert_eq!(of("provider: x", "provider: y"), ["changed: stacked", "none"]);
        assert_eq!(of("http://b", "http://c"), ["none", "changed: b"]);
        assert_eq!(told(BEFORE, "2"), ["changed: filed", "none"]);
        let around = format!("middleware: [{{ provider: z }}]\n{BEFORE}");
        assert_eq!(told(&around, "1"), ["changed: filed, plain, stacked", "none"]);
    }

    #[test]
    fn a_long_list_is_cut() {
        let names = (0..30).map(|number| format!("r{number:02}")).collect();
        let changes = Changes { added: names, ..Changes::default() };
        let text = changes.to_string();
        assert!(
            text.starts_with("new: r00, r01,") && text.ends_with(", r19 and 10 more"),
            "{text}"
        );
    }
}
