//! What a response or an error means: a success, or a failure with a code and whether a retry may help.
//!
//! The route's own rules come first, then the built-in table. A status never gives one of the table's codes for
//! broken connections, and a broken connection never gives a code for a status. So a policy for one is never
//! triggered by the other.

use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, Method, StatusCode, header};

use crate::language::code::Code;
use crate::language::expr::{Bindings, EvalError, Root};
use crate::language::value::{Missing, Value};
use crate::proxy::message::headers;
use crate::proxy::settings::{ClassifyRule, RuledRetryable, Verdict};
use crate::proxy::{code, grpc};

/// Whether a request may be sent twice: because that has the same effect as once (RFC 9110 §9.2.2), or because
/// the request says that the upstream removes duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeatable {
    /// Because of its method.
    pub(crate) idempotent: bool,
    /// Because of an `Idempotency-Key`. Only checked if the method is not enough.
    pub(crate) keyed: bool,
}

/// The field that makes any request repeatable.
pub(crate) static IDEMPOTENCY_KEY: http::HeaderName =
    http::HeaderName::from_static("idempotency-key");

impl Repeatable {
    /// Of a request with this method and these fields.
    pub(crate) fn of(method: &Method, headers: &HeaderMap) -> Self {
        let idempotent = method.is_idempotent();
        Self { idempotent, keyed: !idempotent && headers.contains_key(&IDEMPOTENCY_KEY) }
    }

    /// Whether either holds.
    pub(crate) const fn any(self) -> bool {
        self.idempotent || self.keyed
    }
}

/// Whether a failure is retryable, and what decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retryable {
    /// The code or a rule.
    Is(bool),
    /// Whether the request may be sent twice.
    ByMethod,
    /// The response, which says when to try again.
    Asked,
}

impl Retryable {
    /// Of a request that may be sent twice or not.
    pub(crate) const fn holds(self, repeatable: Repeatable) -> bool {
        match self {
            Self::Is(retryable) => retryable,
            Self::ByMethod => repeatable.any(),
            Self::Asked => true,
        }
    }
}

/// The meaning of a response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Class {
    /// A success.
    Success,
    /// A failure.
    Failure {
        /// Its code.
        code: Code,
        /// Whether it says that a retry may help.
        retryable: Retryable,
        /// Whether a wait that the response asks for counts. It does for 429, for 503, and for whatever a rule
        /// calls a failure. On a 404, for example, the field means something else.
        waits: bool,
    },
}

/// A response as rules see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseView<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    /// The body, if the route buffers it.
    pub(crate) body: Option<&'a Value>,
    /// The failed outcome of a gRPC call that sent no message.
    pub(crate) grpc: Option<grpc::Ended>,
    /// The wall time, in nanoseconds since the Unix epoch, for rules that use the time.
    pub(crate) now: i128,
}

/// Classifies the response to a request, by the route's rules and then by the table. A rule whose own expression fails
/// does not apply: a slip in it must not turn a good answer into a failure. The first such error is returned, too.
pub(crate) fn classify(
    rules: &[ClassifyRule],
    repeatable: Repeatable,
    seen: ResponseView<'_>,
) -> (Class, Option<EvalError>) {
    let mut fault = None;
    let table = match seen.grpc {
        Some(ended) => Class::Failure {
            code: Code::Static(ended.status.code()),
            retryable: Retryable::Is(ended.retryable()),
            waits: false,
        },
        None => by_status(seen.status, seen.headers, repeatable),
    };
    for rule in rules {
        match matches(rule, seen) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                fault.get_or_insert(error);
                continue;
            }
        }
        let class = match &rule.verdict {
            Verdict::Success => Class::Success,
            Verdict::Failure { code, retryable } => Class::Failure {
                code: Code::Shared(code.clone()),
                retryable: match (retryable, table) {
                    (Some(RuledRetryable::Is(retryable)), _) => Retryable::Is(*retryable),
                    (Some(RuledRetryable::ByMethod), _) => Retryable::ByMethod,
                    (None, Class::Success) => Retryable::Is(false),
                    (None, Class::Failure { retryable, .. }) => retryable,
                },
                waits: true,
            },
        };
        return (class, fault);
    }
    (table, fault)
}

/// The built-in table.
fn by_status(status: StatusCode, headers: &HeaderMap, repeatable: Repeatable) -> Class {
    let (code, retryable) = match status.as_u16() {
        429 => (code::THROTTLED, Retryable::Is(true)),
        503 => {
            let asked = !repeatable.any() && headers.contains_key(header::RETRY_AFTER);
            let retryable = if asked { Retryable::Asked } else { Retryable::ByMethod };
            (code::UNAVAILABLE, retryable)
        }
        502 => (code::BAD_GATEWAY, Retryable::ByMethod),
        504 => (code::GATEWAY_TIMEOUT, Retryable::ByMethod),
        // The upstream closes a connection that was idle too long (RFC 9110 §15.5.9), or is afraid of a replay in TLS's
        // early data (RFC 8470 §5.2).
        408 | 425 => (code::NON_SUCCESS_STATUS, Retryable::ByMethod),
        // The upstream supports neither the method nor the version, and will not the next time (501, 505).
        400..=499 | 501 | 505 => (code::NON_SUCCESS_STATUS, Retryable::Is(false)),
        500.. => (code::NON_SUCCESS_STATUS, Retryable::ByMethod),
        _ => return Class::Success,
    };
    Class::Failure {
        code: Code::Static(code),
        retryable,
        waits: matches!(status.as_u16(), 429 | 503),
    }
}

fn matches(rule: &ClassifyRule, seen: ResponseView<'_>) -> Result<bool, EvalError> {
    let status = seen.status.as_u16();
    let by_status = rule.status.is_empty()
        || rule.status.iter().any(|(first, last)| (*first..=*last).contains(&status));
    let by_fields = rule
        .headers
        .iter()
        .all(|(name, wanted)| headers::has(seen.headers, name, wanted.as_deref()));
    if !by_status || !by_fields {
        return Ok(false);
    }
    let Some(when) = &rule.when else {
        return Ok(true);
    };
    match when.evaluate(&seen)? {
        Value::Bool(holds) => Ok(holds),
        other => Err(EvalError::Fault(format!(
            "`when` of a classify rule gave {}, and wants true or false",
            other.type_name()
        ))),
    }
}

impl Bindings for ResponseView<'_> {
    fn root(&self, root: Root) -> Option<Value> {
        if root != Root::Response {
            return None;
        }
        let member = |name: &'static str| {
            let value = self.at(root, &[name.into()]).ok()?;
            Some((name, value))
        };
        Some(Value::object(["status", "headers", "body"].into_iter().filter_map(member)))
    }

    fn at(&self, root: Root, path: &[Arc<str>]) -> Result<Value, Missing> {
        if root != Root::Response {
            return Err(Missing::UNSET);
        }
        let Some((member, rest)) = path.split_first() else {
            return self.root(root).ok_or(Missing::UNSET);
        };
        match member.as_ref() {
            "headers" => headers::at(self.headers, rest).map_err(Missing::below),
            "status" => Missing::follow(Some(Value::from(u32::from(self.status.as_u16()))), rest),
            "body" => Missing::follow(self.body.cloned(), rest),
            _ => Err(Missing::MEMBER),
        }
    }

    fn now(&self) -> i128 {
        self.now
    }

    fn wall_time(&self) -> i128 {
        self.now
    }
}

/// Nanoseconds since the Unix epoch as the system's time.
pub(crate) fn system_time(nanos: i128) -> SystemTime {
    let since = std::time::Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
    SystemTime::UNIX_EPOCH + since
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    type Fields = [(&'static str, &'static str)];

    fn of(rules: &[ClassifyRule], method: &Method, status: u16, fields: &Fields) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        let seen = ResponseView {
            status: StatusCode::from_u16(status).unwrap(),
            headers: &headers,
            body: None,
            grpc: None,
            now: 0,
        };
        let repeatable = Repeatable {
            idempotent: method.is_idempotent(),
            keyed: fields.iter().any(|(name, _)| *name == "idempotency-key"),
        };
        match classify(rules, repeatable, seen).0 {
            Class::Success => "success".to_owned(),
            Class::Failure { code, retryable, .. } => {
                let code = code.to_string();
                let retryable = retryable.holds(repeatable);
                format!("{} {retryable}", code.trim_start_matches("Provider.Call.Http."))
            }
        }
    }

    #[test]
    fn the_table() {
        let rows: [(Method, u16, &Fields, &str); 21] = [
            (Method::GET, 200, &[], "success"),
            (Method::GET, 304, &[], "success"),
            (Method::POST, 429, &[], "Throttled true"),
            (Method::GET, 503, &[], "Unavailable true"),
            (Method::POST, 503, &[], "Unavailable false"),
            (Method::POST, 503, &[("retry-after", "1")], "Unavailable true"),
            (Method::POST, 503, &[("idempotency-key", "k")], "Unavailable true"),
            (Method::PUT, 502, &[], "BadGateway true"),
            (Method::POST, 502, &[], "BadGateway false"),
            (Method::PATCH, 504, &[], "GatewayTimeout false"),
            (Method::DELETE, 504, &[], "GatewayTimeout true"),
            (Method::GET, 404, &[], "NonSuccessStatus false"),
            (Method::GET, 500, &[], "NonSuccessStatus true"),
            (Method::POST, 500, &[], "NonSuccessStatus false"),
            (Method::GET, 408, &[], "NonSuccessStatus true"),
            (Method::POST, 408, &[], "NonSuccessStatus false"),
            (Method::POST, 425, &[("idempotency-key", "k")], "NonSuccessStatus true"),
            (Method::POST, 425, &[], "NonSuccessStatus false"),
            (Method::GET, 501, &[], "NonSuccessStatus false"),
            (Method::GET, 505, &[], "NonSuccessStatus false"),
            (Method::GET, 507, &[], "NonSuccessStatus true"),
        ];
        for (method, status, fields, wanted) in rows {
            assert_eq!(of(&[], &method, status, fields), wanted, "{method} {status}");
        }
    }

    fn rule(status: (u16, u16), verdict: Verdict) -> ClassifyRule {
        ClassifyRule { status: vec![status], headers: Vec::new(), when: None, verdict }
    }

    #[test]
    fn a_route_s_rules_come_first_and_in_order() {
        let declined = Verdict::Failure {
            code: "Provider.Call.Payments.CardDeclined".into(),
            retryable: Some(RuledRetryable::Is(true)),
        };
        let silent = Verdict::Failure { code: "A.B".into(), retryable: None };
        let mut fielded = rule((404, 404), Verdict::Success);
        fielded.headers = vec![(header::ETAG, Some("x".into()))];
        let rules = [rule((402, 402), declined), fielded, rule((500, 599), silent)];
        let code = "Provider.Call.Payments.CardDeclined true";
        assert_eq!(of(&rules, &Method::POST, 402, &[]), code);
        assert_eq!(of(&rules, &Method::POST, 404, &[("etag", "x")]), "success");
        assert_eq!(of(&rules, &Method::POST, 404, &[("etag", "y")]), "NonSuccessStatus false");
        assert_eq!(of(&rules, &Method::GET, 503, &[]), "A.B true");
        assert_eq!(of(&rules, &Method::POST, 500, &[]), "A.B false");
        let by_method =
            Verdict::Failure { code: "A.B".into(), retryable: Some(RuledRetryable::ByMethod) };
        let rules = [rule((429, 429), by_method)];
        assert_eq!(of(&rules, &Method::GET, 429, &[]), "A.B true");
        assert_eq!(of(&rules, &Method::POST, 429, &[]), "A.B false");
        assert_eq!(of(&rules, &Method::POST, 429, &[("idempotency-key", "k")]), "A.B true");
    }
}
