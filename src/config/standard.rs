//! `mwl-proxy/standard`, the stack that every configuration has.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::source::{Kind, Member, Node, Span};

/// Its name.
pub(super) const STANDARD: &str = "mwl-proxy/standard";

/// The first part of names that are not the author's to give.
pub(super) const RESERVED: &str = "mwl-proxy/";

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
