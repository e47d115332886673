//! What of a configuration operators may see.
//!
//! This is a list of what is harmless, not of what is secret: nobody knows under which key the next secret stands. The
//! structure, the keys, and the values of the fields below are shown; so is what cannot be a secret by its shape (a
//! duration, a number of the file's own fields). Every other text or number is hidden, also within an expression. A text
//! that only names a variable may always be seen: no variable is replaced in it.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::literals::{HIDDEN, without_literals};
use super::root::ROOT;
use super::shape::{Section, Shape};
use crate::language::expr::Program;
use crate::source::{Kind, Node};

/// The texts of the file's own sections that are harmless: section and key.
const TEXTS: &[(&str, &str)] = &[
    ("the configuration", "environment"),
    ("a listener", "address"),
    ("`admin`", "address"),
    ("`tracing`", "service"),
    ("`forwarded`", "trusted"),
    ("an upstream", "endpoints"),
    ("an endpoint", "url"),
    ("`health` of an upstream", "path"),
    ("`health` of an upstream", "grpc"),
    ("a store", "redis"),
    ("a store", "passwordFile"),
    ("a store", "prefix"),
    ("`tls` of a listener", "certificate"),
    ("`tls` of a listener", "key"),
    ("`tls` of a listener", "clientCa"),
    ("`tls` of an upstream", "ca"),
    ("`tls` of an upstream", "certificate"),
    ("`tls` of an upstream", "key"),
    ("`tls` of an upstream", "serverName"),
    ("a route", "name"),
    ("a route", "upstream"),
    ("a route", "flow"),
    ("`match`", "hosts"),
    ("`match`", "path"),
    ("`match`", "pathPrefix"),
    ("`match`", "methods"),
    ("`rewrite`", "pathPrefix"),
    ("`rewrite`", "host"),
    ("header edits", "remove"),
    ("a `classify` rule", "code"),
];

/// The members of MWL objects whose value is harmless: names within the file, and how often and how long something is
/// done.
const MEMBERS: &[&str] = &[
    "$schema",
    "action",
    "attempts",
    "code",
    "codes",
    "concurrency",
    "deadline",
    "duration",
    "entrypoint",
    "flow",
    "for",
    "initial",
    "jitter",
    "max",
    "method",
    "next",
    "provider",
    "rate",
    "responseTimeout",
    "retryable",
    "share",
    "stack",
    "type",
    "types",
    "until",
    "upstream",
];

/// The members of MWL objects that hold other MWL objects.
const PARTS: &[&str] = &[
    "backoff",
    "call",
    "cases",
    "catch",
    "match",
    "middleware",
    "onAlways",
    "onEntry",
    "onFailure",
    "onSuccess",
    "policies",
    "result",
];

/// The members of MWL objects that hold others under names of the author's.
const NAMED: &[&str] = &["flows", "steps"];

/// The providers whose parameters are MWL objects of known members. The arguments of a Flow are not.
const KNOWN_PROVIDERS: [&str; 4] = [
    "mwl:provider.call/mwl/",
    "mwl:provider.call/mwl-proxy/",
    "mwl:provider.middleware/mwl/",
    "mwl:provider.middleware/mwl-proxy/",
];

/// What of `config`, a valid configuration as written, may be seen.
pub(super) fn shown(config: &Node) -> Json {
    section(config, &ROOT)
}

fn section(node: &Node, of: &'static Section) -> Json {
    members(node, |key, value| match of.field(key) {
        Some(_) if NAMED.contains(&key) => members(value, |_, part| mwl(part, false)),
        Some(field) => shaped(value, &field.shape, TEXTS.contains(&(of.name, key))),
        None => hidden(value),
    })
}

/// `node` as far as its shape allows it to be seen. `harmless`: its texts may be.
fn shaped(node: &Node, shape: &'static Shape, harmless: bool) -> Json {
    match (shape, &node.kind) {
        (Shape::Section(of), Kind::Object(_)) => section(node, of),
        (Shape::Map(inner), Kind::Object(_)) => {
            members(node, |_, value| shaped(value, inner, harmless))
        }
        (Shape::List(inner), Kind::Array(items)) => {
            items.iter().map(|item| shaped(item, inner, harmless)).collect()
        }
        (Shape::Mwl(_), _) => mwl(node, false),
        (Shape::Either(shapes), _) => {
            let fits = shapes.iter().find(|shape| fits(shape, node));
            fits.map_or_else(|| hidden(node), |shape| shaped(node, shape, harmless))
        }
        (Shape::Text | Shape::Path | Shape::Url | Shape::Endpoint, Kind::String(text))
            if harmless =>
        {
            text_shown(text).into()
        }
        (Shape::Duration | Shape::Size | Shape::Address | Shape::Word(_), Kind::String(text)) => {
            text_shown(text).into()
        }
        (Shape::Boolean | Shape::Count(..) | Shape::Number(..), _) => node.to_json(),
        _ => hidden(node),
    }
}

/// Whether `shape` is the one of its alternatives that `node` was written in.
fn fits(shape: &Shape, node: &Node) -> bool {
    match (shape, &node.kind) {
        (Shape::List(_), kind) => matches!(kind, Kind::Array(_)),
        (Shape::Section(_) | Shape::Map(_) | Shape::Object, kind) => {
            matches!(kind, Kind::Object(_))
        }
        (Shape::Mwl(_), kind) => matches!(kind, Kind::Object(_) | Kind::Array(_)),
        (Shape::Boolean, kind) => matches!(kind, Kind::Bool(_)),
        (Shape::Count(..) | Shape::Number(..), kind) => matches!(kind, Kind::Number(_)),
        (Shape::Null, kind) => matches!(kind, Kind::Null),
        (_, kind) => matches!(kind, Kind::String(_)),
    }
}

/// A part of MWL. `known`: it belongs to a provider whose parameters have known members.
fn mwl(node: &Node, known: bool) -> Json {
    if let Kind::Array(items) = &node.kind {
        return items.iter().map(|item| mwl(item, known)).collect();
    }
    let provider = node.get("provider").and_then(Node::as_str);
    let known = match provider {
        Some(uri) => KNOWN_PROVIDERS.iter().any(|start| uri.starts_with(start)),
        None => known && node.get("flow").is_none(),
    };
    members(node, |key, value| match key {
        _ if MEMBERS.contains(&key) => scalars(value),
        _ if PARTS.contains(&key) => mwl(value, known),
        _ if NAMED.contains(&key) => members(value, |_, part| mwl(part, false)),
        "with" if known => mwl(value, known),
        _ => hidden(value),
    })
}

/// The value of a harmless member: a scalar, a list of them, or an object (a whole Flow under `flow`).
fn scalars(node: &Node) -> Json {
    match &node.kind {
        Kind::Object(_) => mwl(node, false),
        Kind::Array(items) => items.iter().map(scalars).collect(),
        Kind::String(text) => text_shown(text).into(),
        _ => node.to_json(),
    }
}

/// Hides every text and number beneath `node`.
fn hidden(node: &Node) -> Json {
    match &node.kind {
        Kind::Null | Kind::Bool(_) => node.to_json(),
        Kind::String(text) if is_variable(text) => (**text).into(),
        Kind::String(text) if Program::body(text).is_some() => without_literals(text).into(),
        Kind::Number(_) | Kind::String(_) => HIDDEN.into(),
        Kind::Array(items) => items.iter().map(hidden).collect(),
        Kind::Object(_) => members(node, |_, value| hidden(value)),
    }
}

fn members(node: &Node, show: impl Fn(&str, &Node) -> Json) -> Json {
    let Some(members) = node.as_object() else {
        return hidden(node);
    };
    let shown = members.iter().map(|member| {
        let key = member.key.as_ref();
        (key.to_owned(), show(key, &member.value))
    });
    Json::Object(shown.collect())
}

/// A harmless text. An expression in its place loses its literals. A URL with a user or a query is hidden, and
/// so is a path with a query.
fn text_shown(text: &str) -> Cow<'_, str> {
    if Program::body(text).is_some() {
        return without_literals(text).into();
    }
    let url = text.contains("://") && text.contains(['@', '?']);
    let query = text.starts_with('/') && text.contains('?');
    if url || query { HIDDEN.into() } else { text.into() }
}

/// `${NAME}` alone, without a default.
fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests;
