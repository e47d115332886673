//! What is known of a route's calls before anything runs, for `check`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::HeaderName;

use super::HttpProvider;
use super::params::Params;
use crate::language::expr::Program;
use crate::language::provider::{Argument, Contract, Foreseen, Kind, Rising, WrittenCall};
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::answer::classify::IDEMPOTENCY_KEY;
use crate::proxy::code;
use crate::proxy::grpc::Status;
use crate::proxy::settings::{ClassifyRule, Protocol, Route, Upstream, Verdict};
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
    /// What is known of the upstreams.
    upstreams: Arc<[UpstreamFacts]>,
}

/// What `check` asks about an upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamFacts {
    /// Whether it speaks HTTP/2.
    http2: bool,
    /// Whether a response that does not begin is waited for without end.
    waits: bool,
}

/// What is known of one call.
#[derive(Debug)]
struct CallFacts {
    upstream: Option<usize>,
    method: Known<Method>,
    /// Whether it may send a key.
    keyed: bool,
    /// Its own `responseTimeout`.
    timeout: Known<Duration>,
}

/// Something that a call may say.
#[derive(Debug, PartialEq)]
enum Known<T> {
    /// It does not.
    Absent,
    /// It says this.
    Is(T),
    /// An expression says it.
    Computed,
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
    /// Of `route`, which has these upstreams.
    pub(crate) fn of(route: &Route, upstreams: Arc<[UpstreamFacts]>) -> Self {
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
            upstreams,
        }
    }

    /// Whether a call may send a request that must not be sent twice.
    fn unrepeatable(&self, call: &CallFacts, own_input: bool) -> bool {
        match &call.method {
            _ if call.keyed => false,
            Known::Is(method) => !method.is_idempotent(),
            Known::Absent => own_input && self.unrepeatable,
            Known::Computed => false,
        }
    }

    /// Whether a call may wait for a response without end.
    fn endless(&self, call: &CallFacts) -> bool {
        let upstream = call.upstream.and_then(|upstream| self.upstreams.get(upstream));
        match call.timeout {
            Known::Is(timeout) => timeout.is_zero(),
            Known::Absent => upstream.is_some_and(|upstream| upstream.waits),
            Known::Computed => false,
        }
    }
}

impl UpstreamFacts {
    /// Of `upstream`.
    pub(crate) fn of(upstream: &Upstream) -> Self {
        let http2 = upstream.protocol == Protocol::Http2;
        Self { http2, waits: upstream.response_timeout.is_zero() }
    }
}

impl CallFacts {
    /// Of a call whose arguments are all known.
    fn of(params: &Params) -> Self {
        let keyed = params.headers.iter().any(|(name, _)| *name == IDEMPOTENCY_KEY);
        Self {
            upstream: Some(params.upstream),
            method: params.method.clone().map_or(Known::Absent, Known::Is),
            keyed: keyed || params.idempotency_key.is_some(),
            timeout: params.response_timeout.map_or(Known::Absent, Known::Is),
        }
    }

    /// Of a call some of whose arguments are computed. Its upstream is `default` if it names none.
    fn of_computed(
        arguments: &[(Arc<str>, Argument)],
        upstreams: &HashMap<Arc<str>, usize>,
        default: Option<usize>,
    ) -> Self {
        let find = |wanted: &str| {
            arguments.iter().find(|(name, _)| **name == *wanted).map(|(_, argument)| argument)
        };
        let known = |name| match find(name) {
            None => Known::Absent,
            Some(Argument::Known(value)) => Known::Is(value.clone()),
            Some(Argument::Computed(_)) => Known::Computed,
        };
        let is_key = |name: &str| name.eq_ignore_ascii_case(IDEMPOTENCY_KEY.as_str());
        let keyed = match find("headers") {
            None => false,
            Some(Argument::Known(value)) => {
                value.as_object().is_some_and(|fields| fields.keys().any(|name| is_key(name)))
            }
            Some(Argument::Computed(names)) => {
                names.as_ref().is_none_or(|names| names.iter().any(|name| is_key(name)))
            }
        };
        let no_key = match find("idempotencyKey") {
            None => true,
            Some(Argument::Known(value)) => value.as_bool() == Some(false) || value.is_null(),
            Some(Argument::Computed(_)) => false,
        };
        Self {
            upstream: match known("upstream") {
                Known::Absent => default,
                Known::Is(name) => name.as_str().and_then(|name| upstreams.get(name)).copied(),
                Known::Computed => None,
            },
            method: known("method").read(|method| Method::from_bytes(method.as_bytes()).ok()),
            keyed: keyed || !no_key,
            timeout: known("responseTimeout").read(|text| Span::parse(text).map(Span::to_duration)),
        }
    }
}

impl Known<Value> {
    /// What is read from a text. One that cannot be read fails at run time.
    fn read<T>(self, read: impl FnOnce(&str) -> Option<T>) -> Known<T> {
        match self {
            Self::Absent => Known::Absent,
            Self::Is(value) => value.as_str().and_then(read).map_or(Known::Computed, Known::Is),
            Self::Computed => Known::Computed,
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
        let params = call.with.and_then(|with| with.downcast_ref::<Params>());
        let computed = |arguments| CallFacts::of_computed(arguments, &self.upstreams, self.default);
        let Some(known) = params.map(CallFacts::of).or_else(|| call.arguments.map(computed)) else {
            return rising;
        };
        let upstream = known.upstream.and_then(|upstream| facts.upstreams.get(upstream));
        if upstream.is_some_and(|upstream| !upstream.http2) {
            rising.take(
                |code| Status::of_code(code).is_some(),
                "the upstream speaks HTTP/1.1, and gRPC needs HTTP/2",
                "write `protocol: http2` for the upstream, or remove the code",
            );
        }
        rising.endless = facts.endless(&known);
        if facts.unrepeatable(&known, call.own_input) {
            let done = rising.kinds.iter_mut().filter(|kind| DONE.contains(&kind.code));
            done.for_each(|kind| kind.repeats = Some(REPEATED));
        }
        rising
    }
}

/// Warns of what is seen in one call alone.
pub(super) fn check(call: WrittenCall<'_>, found: &mut Diagnostics) {
    body_of_get(call, found);
    constant_key(call, found);
}

/// Warns of a key that is the same for every request.
fn constant_key(call: WrittenCall<'_>, found: &mut Diagnostics) {
    let fields = call.argument("headers").and_then(Node::as_object).unwrap_or_default();
    let field =
        fields.iter().find(|field| field.key.eq_ignore_ascii_case(IDEMPOTENCY_KEY.as_str()));
    let written = call.argument("idempotencyKey").or_else(|| field.map(|field| &field.value));
    let Some(key) = written.filter(|key| is_constant_text(key)) else {
        return;
    };
    let message = "every request gets the same `Idempotency-Key`, so an upstream that honours keys does only the first";
    let help =
        "write `idempotencyKey: true`, or a key by expression, from what names the operation";
    found.push(Diagnostic::warning("constant-key", key.span, message).with_help(help));
}

/// Whether `node` is a text that no request changes.
fn is_constant_text(node: &Node) -> bool {
    let Some(text) = node.as_str() else {
        return false;
    };
    let Some(body) = Program::body(text) else {
        return true;
    };
    let body = body.trim();
    ['\'', '"'].iter().any(|quote| {
        let inner = body.strip_prefix(*quote).and_then(|rest| rest.strip_suffix(*quote));
        inner.is_some_and(|inner| !inner.contains(*quote))
    })
}

/// Warns of a GET that gets a body, because its input is no request.
fn body_of_get(call: WrittenCall<'_>, found: &mut Diagnostics) {
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
            upstreams: Arc::default(),
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
            let call = CallFacts::of(&params(method, key));
            assert_eq!(facts(methods).unrepeatable(&call, own_input), wanted, "{call:?}");
        }
    }

    #[test]
    fn of_a_call_with_expressions_the_rest_is_known() {
        let upstreams = HashMap::from([(Arc::from("a"), 0), (Arc::from("b"), 1)]);
        let of = |arguments: &[(&str, Argument)]| {
            let arguments: Vec<_> =
                arguments.iter().map(|(name, value)| (Arc::from(*name), value.clone())).collect();
            CallFacts::of_computed(&arguments, &upstreams, Some(0))
        };
        let known = |text: &str| Argument::Known(Value::from(text));
        let computed = || Argument::Computed(None);
        let names = |name: &str| Argument::Computed(Some(vec![name.into()]));
        let call = of(&[("path", computed()), ("method", known("POST")), ("upstream", known("b"))]);
        assert_eq!(
            (call.upstream, call.method, call.keyed),
            (Some(1), Known::Is(Method::POST), false)
        );
        assert_eq!(of(&[("method", computed())]).method, Known::Computed);
        assert_eq!(of(&[("upstream", computed())]).upstream, None);
        assert_eq!(of(&[("path", computed())]).upstream, Some(0));
        assert_eq!(of(&[("responseTimeout", known("PT0S"))]).timeout, Known::Is(Duration::ZERO));
        for (arguments, keyed) in [
            (("idempotencyKey", computed()), true),
            (("idempotencyKey", Argument::Known(Value::Bool(false))), false),
            (("headers", computed()), true),
            (("headers", names("x")), false),
            (("headers", names("Idempotency-Key")), true),
        ] {
            let call = of(&[arguments]);
            assert_eq!(call.keyed, keyed, "{call:?}");
        }
    }
}
