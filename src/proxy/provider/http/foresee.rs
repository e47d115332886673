//! What is known of a route's calls before anything runs, for `check`.

use std::sync::Arc;

use http::header::HeaderName;

use super::HttpProvider;
use super::params::Params;
use crate::language::expr::Program;
use crate::language::provider::{Contract, Foreseen, Kind, Rising, WrittenCall};
use crate::proxy::answer::classify::IDEMPOTENCY_KEY;
use crate::proxy::code;
use crate::proxy::grpc::Status;
use crate::proxy::settings::{ClassifyRule, Route, Verdict};
use crate::source::{Diagnostic, Diagnostics, Kind as NodeKind, Node};

/// What a route says of its calls.
#[derive(Debug)]
pub(crate) struct RouteFacts {
    /// The codes of its `classify` rules.
    codes: Vec<Arc<str>>,
    /// The built-in codes whose every status a rule of it takes.
    taken: Vec<&'static str>,
    /// Whether a request of it may be one that must not be sent twice.
    unrepeatable: bool,
    /// Which upstreams speak HTTP/2.
    http2: Arc<[bool]>,
}

/// What is sent again by a policy that should not.
const REPEATED: &str = "a request that is neither idempotent nor has an `Idempotency-Key`";

/// The codes after which the upstream may have done its work.
const DONE: [&str; 7] = [
    code::CONNECTION_CLOSED,
    code::RESPONSE_TIMEOUT,
    code::PROTOCOL_ERROR,
    code::UNAVAILABLE,
    code::BAD_GATEWAY,
    code::GATEWAY_TIMEOUT,
    code::NON_SUCCESS_STATUS,
];

/// The JSON types of what a Result holds.
pub(super) const MEMBERS: &[(&str, &str)] = &[
    ("details.status", "number"),
    ("details.retryAfter", "string"),
    ("details.endpoint", "string"),
    ("details.requestSent", "string"),
    ("details.connectionReused", "boolean"),
    ("details.phase", "string"),
    ("value.status", "number"),
];

impl RouteFacts {
    /// Of `route`, where `http2` says which upstreams speak HTTP/2.
    pub(crate) fn of(route: &Route, http2: Arc<[bool]>) -> Self {
        let codes = route.classify.iter().filter_map(|rule| match &rule.verdict {
            Verdict::Failure { code, .. } => Some(Arc::clone(code)),
            Verdict::Success => None,
        });
        let keyed = |(name, _): &(HeaderName, _)| *name == IDEMPOTENCY_KEY;
        let edits = route.request_fields.as_ref();
        let given = edits.is_some_and(|edits| {
            edits.set.iter().chain(&edits.append).any(|(name, _)| *name == IDEMPOTENCY_KEY)
        });
        let asked = route.matches.headers.iter().any(keyed);
        let unsafe_method = route.matches.methods.iter().any(|method| !method.is_idempotent());
        Self {
            codes: codes.collect(),
            taken: taken(&route.classify),
            unrepeatable: unsafe_method && !given && !asked,
            http2,
        }
    }

    /// Whether a call may send a request that must not be sent twice.
    fn unrepeatable(&self, params: &Params, own_input: bool) -> bool {
        let keyed = params.headers.iter().any(|(name, _)| *name == IDEMPOTENCY_KEY);
        if params.idempotency_key.is_some() || keyed {
            return false;
        }
        match &params.method {
            Some(method) => !method.is_idempotent(),
            None => own_input && self.unrepeatable,
        }
    }
}

/// The built-in codes whose every status an unconditional rule takes.
fn taken(rules: &[ClassifyRule]) -> Vec<&'static str> {
    let ranges = |rule: &ClassifyRule| match rule.status.as_slice() {
        [] => vec![(100, 599)],
        ranges => ranges.to_vec(),
    };
    let all = rules.iter().filter(|rule| rule.headers.is_empty() && rule.when.is_none());
    let all: Vec<(u16, u16)> = all.flat_map(ranges).collect();
    let has_rule = |status: u16| all.iter().any(|(first, last)| (*first..=*last).contains(&status));
    let own = [
        (429, code::THROTTLED),
        (503, code::UNAVAILABLE),
        (502, code::BAD_GATEWAY),
        (504, code::GATEWAY_TIMEOUT),
    ];
    let mut taken: Vec<_> =
        own.into_iter().filter(|(status, _)| has_rule(*status)).map(|(_, code)| code).collect();
    let others = (400..=599_u16).filter(|status| own.iter().all(|(one, _)| one != status));
    if others.into_iter().all(has_rule) {
        taken.push(code::NON_SUCCESS_STATUS);
    }
    taken
}

impl HttpProvider {
    /// The failures with which `call` may end.
    pub(super) fn foreseen<'a>(&'a self, contract: &'a Contract, call: Foreseen<'_>) -> Rising<'a> {
        let mut rising = Rising::of(contract);
        let Some(facts) = &self.facts else {
            return rising;
        };
        rising.any = false;
        rising.take(
            |code| facts.taken.contains(&code),
            "a `classify` rule of the route takes every response that would have it",
            "match the code of that rule",
        );
        facts.codes.iter().for_each(|code| rising.add(Kind::of(code)));
        let Some(params) = call.with.and_then(|with| with.downcast_ref::<Params>()) else {
            return rising;
        };
        if facts.http2.get(params.upstream) == Some(&false) {
            rising.take(
                |code| Status::of_code(code).is_some(),
                "the upstream speaks HTTP/1.1, and gRPC needs HTTP/2",
                "write `protocol: http2` for the upstream, or remove the code",
            );
        }
        if facts.unrepeatable(params, call.own_input) {
            let done = rising.kinds.iter_mut().filter(|kind| DONE.contains(&kind.code));
            done.for_each(|kind| kind.repeats = Some(REPEATED));
        }
        rising
    }
}

/// Warns of a GET that gets a body, because its input is no request.
pub(super) fn check(call: WrittenCall<'_>, found: &mut Diagnostics) {
    let method = call.argument("method").and_then(Node::as_str);
    let bodiless = method.is_some_and(|method| matches!(method.as_ref(), "GET" | "HEAD"));
    let Some(input) = call.input().filter(|input| bodiless && is_data(input)) else {
        return;
    };
    if call.argument("body").is_none() {
        let message = format!(
            "this input is sent as the JSON body of a {}",
            method.map_or("GET", |method| method.as_ref())
        );
        let help =
            "write `input: null`; what the upstream should know belongs into `query` or `headers`";
        found.push(Diagnostic::warning("body-of-get", input.span, message).with_help(help));
    }
}

/// Whether `input` surely is a value of the author's own, and not a request or null.
fn is_data(input: &Node) -> bool {
    match &input.kind {
        NodeKind::Null => false,
        NodeKind::String(text) => {
            Program::body(text).is_none_or(|body| body.starts_with(['{', '[', '\'', '"']))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::params::IdempotencyKey;
    use super::*;

    fn rule(status: &[(u16, u16)]) -> ClassifyRule {
        let verdict = Verdict::Success;
        ClassifyRule { status: status.to_vec(), headers: Vec::new(), when: None, verdict }
    }

    #[test]
    fn a_code_is_taken_where_rules_take_all_its_statuses() {
        assert_eq!(taken(&[rule(&[(503, 503)])]), [code::UNAVAILABLE]);
        let all = [rule(&[(400, 499)]), rule(&[(500, 501), (505, 599)])];
        assert_eq!(taken(&all), [code::THROTTLED, code::NON_SUCCESS_STATUS]);
        assert_eq!(taken(&[rule(&[])]).len(), 5);
        let headers = vec![(http::header::ETAG, None)];
        assert_eq!(taken(&[ClassifyRule { headers, ..rule(&[(500, 599)]) }]), [""; 0]);
    }

    #[test]
    fn a_method_that_is_not_idempotent_needs_a_key() {
        let facts = |unrepeatable| RouteFacts {
            codes: Vec::new(),
            taken: Vec::new(),
            unrepeatable,
            http2: Arc::default(),
        };
        let params = |method: Option<Method>, keyed: bool| Params {
            upstream: 0,
            method,
            path: None,
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
            idempotency_key: keyed.then_some(IdempotencyKey::Operation),
            response_timeout: None,
        };
        for (methods, method, key, own_input, wanted) in [
            (true, None, false, true, true),
            (true, None, false, false, false),
            (true, None, true, true, false),
            (true, Some(Method::GET), false, true, false),
            (false, Some(Method::POST), false, false, true),
            (false, Some(Method::POST), true, false, false),
            (false, None, false, true, false),
        ] {
            let params = params(method, key);
            assert_eq!(facts(methods).unrepeatable(&params, own_input), wanted, "{params:?}");
        }
    }
}
