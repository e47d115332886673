//! `rewrite:`, `requestHeaders:`, `responseHeaders:`, what a route changes in messages; and `forwarded:`.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use super::matching::sent_path;
use super::read::Object;
use super::report::Report;
use super::shape::{Section, Shape, optional, or};
use crate::language::expr::Program;
use crate::proxy::message::{shape, target};
use crate::proxy::settings::{Cidr, FieldEdits, Forwarded, Paths, PrefixRewrite};
use crate::source::{Diagnostic, Member, Node, Span};

pub(super) const REWRITE: Section = Section {
    name: "`rewrite`",
    doc: "What is changed of a request before its Flow sees it.",
    fields: &[
        optional(
            "pathPrefix",
            Shape::Text,
            "Replaces the route's `match.pathPrefix`. The rest of the path is kept byte for byte.",
        ),
        optional("host", Shape::Text, "The `Host` that is sent, whatever the client sent."),
    ],
};

pub(super) const FIELDS: Section = Section {
    name: "header edits",
    doc: "Changes of header fields: removed, then set, then appended.",
    fields: &[
        or("set", Shape::Map(&Shape::Text), "{}", "Fields that get this value and lose any other."),
        or(
            "append",
            Shape::Map(&Shape::Text),
            "{}",
            "Fields that get this value beside any other.",
        ),
        or("remove", Shape::List(&Shape::Text), "[]", "Fields that are removed."),
    ],
};

pub(super) const FORWARDED: Section = Section {
    name: "`forwarded`",
    doc: "Who the client is, and what upstreams are told of it. Without this section the fields pass as they came, and the client is the other end of its connection.",
    fields: &[
        or(
            "trusted",
            Shape::List(&Shape::Text),
            "[]",
            "Address ranges whose `X-Forwarded-*` and `Forwarded` are trusted and extended. From any other client these fields are removed, with `True-Client-IP`, `CF-Connecting-IP` and others like them.",
        ),
        or(
            "xForwarded",
            Shape::Boolean,
            "true",
            "Whether `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` are sent.",
        ),
        or("forwarded", Shape::Boolean, "false", "Whether `Forwarded` (RFC 7239) is sent."),
        or(
            "via",
            Shape::Boolean,
            "true",
            "Whether `Via` (RFC 9110) is sent, so that a request that comes back is answered 508.",
        ),
    ],
};

/// The field of answers with the execution's id.
pub(super) fn request_id(report: &Report, root: &Object<'_>) -> Option<HeaderName> {
    let node = root.get("requestIdHeader")?;
    name(report, root.text("requestIdHeader")?, node.span, false)
}

pub(super) fn rewrite(
    report: &Report,
    route: &Object<'_>,
    matched: Option<&Arc<str>>,
    paths: Paths,
) -> (Option<PrefixRewrite>, Option<HeaderValue>) {
    let node = route.get("rewrite");
    let Some(object) = node.and_then(|node| Object::open(report, "rewrite", node, &REWRITE)) else {
        return (None, None);
    };
    let to = object.member("pathPrefix");
    let prefix = to.and_then(|member| {
        let to = report.parsed("bad-path", "pathPrefix", &member.value, |text| sent_path(text, paths))?;
        let Some(from) = matched else {
            let message = "`rewrite.pathPrefix` replaces the prefix that the route matches, and it matches none";
            let diagnostic = Diagnostic::error("missing-key", member.key_span, message);
            report.add(diagnostic.with_help("give the route a `match: { pathPrefix: … }`"));
            return None;
        };
        Some(PrefixRewrite { from: Arc::clone(from), to })
    });
    let host = object.get("host").and_then(|node| report.parsed("bad-host", "host", node, host));
    (prefix, host)
}

fn host(text: &str) -> Result<HeaderValue, String> {
    let wrong = || format!("`{text}` is not a host; write `host` or `host:port`");
    target::check_authority(text).map_err(|_| wrong())?;
    HeaderValue::from_str(text).map_err(|_| wrong())
}

pub(super) fn fields(report: &Report, route: &Object<'_>, key: &'static str) -> Option<FieldEdits> {
    let object = Object::open(report, key, route.get(key)?, &FIELDS)?;
    let request = key == "requestHeaders";
    let values = |key| -> Vec<(HeaderName, HeaderValue)> {
        let pair = |member: &Member| {
            let name = name(report, &member.key, member.key_span, request)?;
            Some((name, value(report, member)?))
        };
        object.map(key).iter().filter_map(pair).collect()
    };
    let (set, append) = (values("set"), values("append"));
    if request {
        constant_key(report, &object);
    }
    let removed = object.list("remove").iter();
    let remove = removed.filter_map(|node| {
        let text = report.text("remove", node)?;
        name(report, text, node.span, request)
    });
    Some(FieldEdits { remove: remove.collect(), set, append })
}

/// Warns of an `Idempotency-Key` that every request gets: what is written here is literal.
fn constant_key(report: &Report, object: &Object<'_>) {
    let members = ["set", "append"].map(|key| object.map(key));
    for member in members.into_iter().flatten() {
        if member.key.eq_ignore_ascii_case("idempotency-key") {
            let message = "every request gets the same `Idempotency-Key`, so an upstream that honours keys does only the first";
            let warning = Diagnostic::warning("constant-key", member.value.span, message);
            report.add(warning.with_help("write `idempotencyKey: true` on the route"));
        }
    }
}

fn name(report: &Report, text: &str, span: Span, request: bool) -> Option<HeaderName> {
    let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
        report.error(
            "bad-header",
            span,
            format!("`{text}` is not the name of a header field: use letters, digits and hyphens"),
        );
        return None;
    };
    if let Some(why) = shape::reserved(&name, request) {
        let message = format!("`{text}` cannot be changed by configuration: remove it");
        report.add(Diagnostic::error("reserved-header", span, message).with_help(why));
        return None;
    }
    Some(name)
}

fn value(report: &Report, member: &Member) -> Option<HeaderValue> {
    report.parsed("bad-header", &member.key, &member.value, |text| {
        if Program::body(text).is_some() {
            return Err(format!(
                "`{text}` is an expression; these are literals: compute a field in the call's `with: {{ headers: … }}`"
            ));
        }
        HeaderValue::from_str(text)
            .map_err(|_| format!("{text:?} is not the value of a header field"))
    })
}

pub(super) fn forwarded(report: &Report, root: &Object<'_>) -> Option<Forwarded> {
    let object = Object::open(report, "forwarded", root.get("forwarded")?, &FORWARDED)?;
    let range = |node: &Node| report.parsed("bad-range", "trusted", node, Cidr::parse);
    Some(Forwarded {
        trusted: object.list("trusted").iter().filter_map(range).collect(),
        x_forwarded: object.boolean("xForwarded"),
        forwarded: object.boolean("forwarded"),
        via: object.boolean("via"),
    })
}
