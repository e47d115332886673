//! `match:`, the requests that a route matches.

use std::sync::Arc;

use http::{HeaderName, Method};

use super::client_certificate::{CLIENT_CERTIFICATE, client_certificate};
use super::read::Object;
use super::report::Report;
use super::shape::{Section, Shape, optional, or};
use crate::proxy::message::{path, target};
use crate::proxy::settings::{Paths, RouteMatch};
use crate::source::{Diagnostic, Kind, Member, Node};

/// A string, or null for any value.
pub(super) const VALUE_OR_ANY: Shape = Shape::Either(&[Shape::Text, Shape::Null]);

pub(super) const MATCH: Section = Section {
    name: "`match`",
    doc: "Which requests a route takes: each key that is there must hold.",
    fields: &[
        or(
            "hosts",
            Shape::List(&Shape::Text),
            "[]",
            "Host names without a port. `*.example.com` matches one or more labels before `.example.com`.",
        ),
        optional("path", Shape::Path, "The exact path."),
        optional(
            "pathPrefix",
            Shape::Path,
            "Leading segments of the path: `/a` matches `/a` and `/a/b`, not `/ab`.",
        ),
        or(
            "methods",
            Shape::List(&Shape::Text),
            "[]",
            "Methods. The request must have one of them.",
        ),
        or(
            "headers",
            Shape::Map(&VALUE_OR_ANY),
            "{}",
            "Fields that the request must have, by name. A null value means any value.",
        ),
        or(
            "query",
            Shape::Map(&VALUE_OR_ANY),
            "{}",
            "Query parameters that the request must have, by name. A null value means any value.",
        ),
        optional(
            "clientCertificate",
            Shape::Section(&CLIENT_CERTIFICATE),
            "The certificate that the client must have presented.",
        ),
    ],
};

/// The `match` of a route. Without one, the route matches every request.
pub(super) fn matching(report: &Report, route: &Object<'_>, paths: Paths) -> RouteMatch {
    route.section("match", &MATCH, |object| {
        let matched = |text: &str| matched_path(text, paths);
        let path =
            |key| object.get(key).and_then(|node| report.parsed("bad-path", key, node, matched));
        let hosts = object.list("hosts").iter();
        let methods = object.list("methods").iter();
        let query = object.map("query").iter();
        RouteMatch {
            hosts: hosts
                .filter_map(|node| report.parsed("bad-host", "hosts", node, host))
                .collect(),
            path: path("path"),
            path_prefix: path("pathPrefix"),
            methods: methods.filter_map(|node| method(report, node)).collect(),
            headers: headers(report, object),
            query: query
                .filter_map(|member| value_or_any(report, Arc::clone(&member.key), member))
                .collect(),
            certificate: client_certificate(report, object),
        }
    })
}

/// The member `headers`: names and the values that they must have.
pub(super) fn headers(report: &Report, object: &Object<'_>) -> Vec<(HeaderName, Option<Arc<str>>)> {
    let named = object.map("headers").iter().filter_map(|member| {
        let Ok(name) = HeaderName::from_bytes(member.key.as_bytes()) else {
            let message = format!(
                "`{}` is not the name of a header field: use letters, digits and hyphens",
                member.key
            );
            report.error("bad-header", member.key_span, message);
            return None;
        };
        value_or_any(report, name, member)
    });
    named.collect()
}

/// A name and its value: a string, or null for any.
fn value_or_any<N>(report: &Report, name: N, member: &Member) -> Option<(N, Option<Arc<str>>)> {
    match &member.value.kind {
        Kind::String(text) => Some((name, Some(Arc::clone(text)))),
        Kind::Null => Some((name, None)),
        _ => {
            report.wrong_type(&member.key, &member.value, "a string, or null for any value");
            None
        }
    }
}

/// Whether `outer` matches every request that `inner` matches.
pub(super) fn covers(outer: &RouteMatch, inner: &RouteMatch) -> bool {
    let RouteMatch { hosts, path, path_prefix, methods, headers, query, certificate } = outer;
    let all_hosts = hosts.is_empty()
        || !inner.hosts.is_empty()
            && inner.hosts.iter().all(|host| hosts.iter().any(|wider| host_covers(wider, host)));
    let all_methods = methods.is_empty()
        || !inner.methods.is_empty() && inner.methods.iter().all(|method| methods.contains(method));
    let all_paths = path_prefix.as_ref().is_none_or(|prefix| {
        let narrower = inner.path.as_ref().or(inner.path_prefix.as_ref());
        narrower.is_some_and(|path| beneath(prefix, path))
    });
    let all_certificates = certificate.as_ref().is_none_or(|certificate| {
        inner.certificate.as_ref().is_some_and(|inner| certificate.covers(inner))
    });
    all_hosts
        && all_certificates
        && all_methods
        && all_paths
        && (path.is_none() || *path == inner.path)
        && headers.iter().all(|wanted| implied(wanted, &inner.headers))
        && query.iter().all(|wanted| implied(wanted, &inner.query))
}

fn host_covers(wider: &str, host: &str) -> bool {
    let suffix = wider.strip_prefix('*');
    wider == host
        || suffix.is_some_and(|suffix| host.len() > suffix.len() && host.ends_with(suffix))
}

/// Whether `path` is `prefix` or is below it, segment by segment.
fn beneath(prefix: &str, path: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether everything that satisfies `given` also satisfies `wanted`.
fn implied<N: PartialEq>(
    (name, value): &(N, Option<Arc<str>>),
    given: &[(N, Option<Arc<str>>)],
) -> bool {
    let same = |(other, found): &(N, Option<Arc<str>>)| {
        other == name && (value.is_none() || value == found)
    };
    given.iter().any(same)
}

fn host(text: &str) -> Result<Arc<str>, String> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let literal = text.starts_with('[') && target::check_authority(text).is_ok();
    if name.is_empty() || !(literal || name.bytes().all(letter)) {
        return Err(format!(
            "`{text}` is not a host; write a name without scheme and port, such as `api.example.com` or `*.example.com`"
        ));
    }
    let plain = text.strip_suffix('.').filter(|plain| !plain.ends_with(['.', '*']));
    Ok(target::canonical_host(plain.unwrap_or(text)).into())
}

/// The path's meaning, as the router compares it.
fn matched_path(text: &str, paths: Paths) -> Result<Arc<str>, String> {
    if text.contains(';') {
        return Err(format!(
            "`{text}` contains `;`, but routes do not match on parameters: leave them out"
        ));
    }
    sent_path(text, paths)?;
    let meaning = path::meaning(text, paths);
    meaning.map(Into::into).map_err(|error| format!("`{text}` is the path of no request: {error}"))
}

/// A path that can be sent.
pub(super) fn sent_path(text: &str, paths: Paths) -> Result<Arc<str>, String> {
    if !text.starts_with('/') {
        return Err(format!("`{text}` does not start with `/`; write `/{text}`"));
    }
    if text.contains(['?', '#']) {
        return Err(format!("`{text}` is more than a path; parameters are matched by `query`"));
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!(
            "`{text}` holds what a path on the wire cannot; write it percent-encoded"
        ));
    }
    let checked = path::check(text, paths);
    checked.map_err(|error| format!("`{text}` is the path of no request: {error}"))?;
    Ok(text.into())
}

fn method(report: &Report, node: &Node) -> Option<Method> {
    let text = report.text("methods", node)?;
    let upper = text.to_ascii_uppercase();
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];
    if **text != *upper && known.contains(&upper.as_str()) {
        let message = format!("`{text}` is never a request's method: methods are case-sensitive");
        let diagnostic = Diagnostic::error("bad-method", node.span, message);
        report.add(diagnostic.with_help(format!("write `{upper}`")));
        return None;
    }
    let method = Method::from_bytes(text.as_bytes()).ok();
    if method.is_none() {
        report.error("bad-method", node.span, format!("`{text}` is not a method"));
    }
    method
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wider_match_covers_a_narrower_one() {
        let prefix =
            |text: &str| RouteMatch { path_prefix: Some(text.into()), ..RouteMatch::default() };
        let hosts = |names: &[&str]| RouteMatch {
            hosts: names.iter().map(|name| Arc::from(*name)).collect(),
            ..RouteMatch::default()
        };
        let methods = |methods: &[Method]| RouteMatch { methods: methods.to_vec(), ..prefix("/a") };
        let exact = RouteMatch { path: Some("/a/b".into()), ..RouteMatch::default() };
        let header = |value: Option<&str>| RouteMatch {
            headers: vec![(HeaderName::from_static("x"), value.map(Arc::from))],
            ..RouteMatch::default()
        };
        for (outer, inner, wanted) in [
            (RouteMatch::default(), prefix("/a"), true),
            (prefix("/a"), RouteMatch::default(), false),
            (prefix("/"), prefix("/a"), true),
            (prefix("/"), RouteMatch::default(), false),
            (prefix("/a"), prefix("/ab"), false),
            (prefix("/a/"), prefix("/a/b"), true),
            (prefix("/a"), exact.clone(), true),
            (exact.clone(), exact.clone(), true),
            (exact, prefix("/a/b"), false),
            (hosts(&["*.x"]), hosts(&["a.x"]), true),
            (hosts(&["*.x"]), hosts(&["x"]), false),
            (hosts(&["a"]), hosts(&["a", "b"]), false),
            (hosts(&["a"]), RouteMatch::default(), false),
            (methods(&[Method::GET, Method::PUT]), methods(&[Method::GET]), true),
            (methods(&[Method::GET]), methods(&[]), false),
            (header(None), header(Some("1")), true),
            (header(Some("1")), header(None), false),
            (header(Some("1")), RouteMatch::default(), false),
        ] {
            assert_eq!(covers(&outer, &inner), wanted, "{outer:?} {inner:?}");
        }
    }
}
