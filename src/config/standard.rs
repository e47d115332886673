//! `mwl-proxy/standard`, the stack that every configuration has.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::report::Report;
use crate::source::{Kind, Member, Node, Span};

/// Its name.
pub(super) const STANDARD: &str = "mwl-proxy/standard";

/// The first part of names that are not the author's to give.
const RESERVED: &str = "mwl-proxy/";

/// The written stacks, and this one as if it were among them, at `at`.
pub(super) fn beside(report: &Report, written: &[Member], at: Span) -> Vec<Member> {
    for member in written.iter().filter(|member| member.key.starts_with(RESERVED)) {
        let name = &member.key;
        let message =
            format!("the stack `{name}` has a reserved name: `{RESERVED}` is the proxy's own");
        report.error("bad-name", member.key_span, message);
    }
    let entries = Node { span: at, kind: Kind::Array(entries(at).into()) };
    let own = Member { key: Arc::from(STANDARD), key_span: at, value: entries };
    written.iter().filter(|member| &*member.key != STANDARD).cloned().chain([own]).collect()
}

/// Its entries, as if they were written at `at`: a Retry of what is retryable, under a bound for all attempts. Each attempt
/// is bounded by the upstream's `responseTimeout`, because a Timeout could not tell a GET from a POST.
pub(super) fn entries(at: Span) -> Vec<Node> {
    let entries = [
        json!({
            "provider": "mwl:provider.middleware/mwl/timeout/v1",
            "onEntry": { "with": { "duration": "PT2M" } },
        }),
        json!({
            "provider": "mwl:provider.middleware/mwl/retry/v1",
            "onEntry": { "with": { "policies": [{
                "match": { "codes": ["Provider.Call.*"], "retryable": true },
                "attempts": 3,
                "backoff": { "initial": "PT0.1S", "rate": 2, "max": "PT2S", "jitter": "full" },
            }] } },
            "onFailure": { "with": {
                "delay": "{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}",
            } },
        }),
    ];
    entries.iter().map(|entry| node(at, entry)).collect()
}

fn node(at: Span, value: &Json) -> Node {
    let kind = match value {
        Json::Null => Kind::Null,
        Json::Bool(value) => Kind::Bool(*value),
        Json::Number(number) => Kind::Number(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::String(Arc::from(text.as_str())),
        Json::Array(items) => Kind::Array(items.iter().map(|item| node(at, item)).collect()),
        Json::Object(members) => Kind::Object(
            members
                .iter()
                .map(|(key, value)| Member {
                    key: Arc::from(key.as_str()),
                    key_span: at,
                    value: node(at, value),
                })
                .collect(),
        ),
    };
    Node { span: at, kind }
}
