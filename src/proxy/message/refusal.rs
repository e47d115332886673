//! Requests for which no Flow runs: malformed ones, those that match no route, and those beyond a limit.
//!
//! Each has a [`Reason`] from a closed list, which is the label of `mwl_requests_refused_total` and appears in
//! the log. This includes requests refused while their head is read: every refusal is counted.

use http::StatusCode;

use super::refused_head::RefusedHead;
use super::target::{self, TargetError};
use crate::proxy::code::{self, Meaning};
use crate::proxy::h1::Malformed;
use crate::proxy::settings::MinimumRate;

/// Why a request is refused. The answer depends on the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Which kind of refusal it is.
    pub(crate) reason: Reason,
    /// The problem document's `detail`: what was found and what is expected.
    pub(crate) detail: String,
    /// What the request asked for, for the log.
    pub(crate) asked: Option<Box<RefusedHead>>,
    /// The methods that are allowed, if the method is the reason (RFC 9110 §15.5.6).
    pub(crate) allow: Option<String>,
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The head is not valid HTTP/1.1 or HTTP/2.
    MalformedHead,
    /// The head exceeds the limits.
    HeadTooLarge,
    /// The head did not arrive in time.
    HeadTimeout,
    /// The target's form or path is refused.
    BadTarget,
    /// The target exceeds `limits.targetSize`.
    TargetTooLong,
    /// There is not exactly one valid host.
    BadHost,
    /// `CONNECT`.
    Connect,
    /// A transfer coding other than `chunked`.
    TransferCoding,
    /// An expectation other than `100-continue`.
    Expectation,
    /// The request may not be forwarded any further (RFC 9110 §7.6.2).
    MaxForwards,
    /// The request has passed this proxy before (RFC 9110 §7.6.3).
    Loop,
    /// No route matches.
    NoRoute,
    /// The number of requests that `limits.requests` allows are running.
    Overloaded,
    /// The route reads the body, and there is no room for it in `limits.bufferedBytes`.
    BufferedBytes,
    /// The route reads the body, and it exceeds the route's limit.
    BodyTooLarge,
    /// The route reads the body, and it broke off or is malformed.
    BodyBroken,
    /// The route reads the body, and it stalled for `limits.bodyTimeout`, or came more slowly than `limits.minimumRate`.
    BodyTimeout,
    /// A frame is none of HTTP/2, or comes where it must not.
    MalformedFrame,
    /// Frames without end that bring nothing, or streams that are opened only to be reset.
    Flood,
}

impl Reason {
    /// All of them, in the order of the documentation.
    pub(crate) const ALL: [Self; 19] = [
        Self::MalformedHead,
        Self::HeadTooLarge,
        Self::HeadTimeout,
        Self::BadTarget,
        Self::TargetTooLong,
        Self::BadHost,
        Self::Connect,
        Self::TransferCoding,
        Self::Expectation,
        Self::MaxForwards,
        Self::Loop,
        Self::NoRoute,
        Self::Overloaded,
        Self::BufferedBytes,
        Self::BodyTooLarge,
        Self::BodyBroken,
        Self::BodyTimeout,
        Self::MalformedFrame,
        Self::Flood,
    ];

    /// The label, and the answer's status.
    const fn row(self) -> (&'static str, StatusCode) {
        match self {
            Self::MalformedHead => ("malformedHead", StatusCode::BAD_REQUEST),
            Self::HeadTooLarge => ("headTooLarge", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            Self::HeadTimeout => ("headTimeout", StatusCode::REQUEST_TIMEOUT),
            Self::BadTarget => ("badTarget", StatusCode::BAD_REQUEST),
            Self::TargetTooLong => ("targetTooLong", StatusCode::URI_TOO_LONG),
            Self::BadHost => ("badHost", StatusCode::BAD_REQUEST),
            Self::Connect => ("connect", StatusCode::METHOD_NOT_ALLOWED),
            Self::TransferCoding => ("transferCoding", StatusCode::NOT_IMPLEMENTED),
            Self::Expectation => ("expectation", StatusCode::EXPECTATION_FAILED),
            Self::MaxForwards => ("maxForwards", StatusCode::METHOD_NOT_ALLOWED),
            Self::Loop => ("loop", StatusCode::LOOP_DETECTED),
            Self::NoRoute => ("noRoute", StatusCode::NOT_FOUND),
            Self::Overloaded => ("overloaded", StatusCode::SERVICE_UNAVAILABLE),
            Self::BufferedBytes => ("bufferedBytes", StatusCode::SERVICE_UNAVAILABLE),
            Self::BodyTooLarge => ("bodyTooLarge", StatusCode::PAYLOAD_TOO_LARGE),
            Self::BodyBroken => ("bodyBroken", StatusCode::BAD_REQUEST),
            Self::BodyTimeout => ("bodyTimeout", StatusCode::REQUEST_TIMEOUT),
            Self::MalformedFrame => ("malformedFrame", StatusCode::BAD_REQUEST),
            Self::Flood => ("flood", StatusCode::BAD_REQUEST),
        }
    }

    /// The label.
    pub(crate) const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The problem document's `code`. Never one that a Flow's failure has, but where a route reads bodies.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Loop => code::LOOP_DETECTED,
            Self::NoRoute => code::NO_ROUTE,
            Self::Overloaded | Self::BufferedBytes => code::OVERLOADED,
            Self::BodyTooLarge => code::BODY_TOO_LARGE,
            _ => code::BAD_REQUEST,
        }
    }

    /// How it is answered.
    pub(crate) fn meaning(self) -> Meaning {
        let meaning = code::meaning(self.code()).at(self.row().1);
        match self {
            // The client's body, and not an upstream's.
            Self::BodyTooLarge => {
                Meaning { word: code::meaning(code::BAD_REQUEST).word, ..meaning }
            }
            _ => meaning,
        }
    }

    /// Whether the connection closes, because the framing cannot be trusted.
    pub(crate) const fn closes(self) -> bool {
        !matches!(self, Self::Loop | Self::NoRoute | Self::Overloaded)
    }
}

impl Refusal {
    /// A refusal with this reason.
    pub(crate) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), allow: None, asked: None }
    }

    /// The same with what the request asked for.
    pub(crate) fn asked(self, asked: RefusedHead) -> Self {
        Self { asked: Some(Box::new(asked)), ..self }
    }

    /// No route matches the request.
    pub(crate) fn no_route() -> Self {
        Self::new(Reason::NoRoute, "no route takes this request")
    }

    /// `CONNECT`, which a reverse proxy does not support. Its routes allow the methods `allow`.
    pub(crate) fn connect(allow: String) -> Self {
        let detail = "this is a reverse proxy: it opens no tunnels";
        Self { allow: Some(allow), ..Self::new(Reason::Connect, detail) }
    }

    /// The target is longer than `limit` bytes (RFC 9110 §15.5.15).
    pub(crate) fn target_too_long(limit: usize) -> Self {
        let detail = format!("the request's target is over {limit} bytes (limits.targetSize)");
        Self::new(Reason::TargetTooLong, detail)
    }

    /// A transfer coding other than `chunked` (RFC 9112 §6.1). The body cannot be decoded, and so it cannot be
    /// sent on with another framing.
    pub(crate) fn transfer_coding() -> Self {
        let detail = "the transfer coding is not known here: only `chunked` is";
        Self::new(Reason::TransferCoding, detail)
    }

    /// `Max-Forwards: 0` on a TRACE or OPTIONS: this is the last hop, and it can only report the allowed methods.
    pub(crate) fn max_forwards(allow: String) -> Self {
        let detail = "Max-Forwards is 0, and the proxy itself answers neither TRACE nor OPTIONS";
        Self { allow: Some(allow), ..Self::new(Reason::MaxForwards, detail) }
    }

    /// The request has passed this proxy before, so it would never end.
    pub(crate) fn loop_detected() -> Self {
        let detail =
            "the request came through this proxy before (Via): an upstream leads back to it";
        Self::new(Reason::Loop, detail)
    }

    /// A field is repeated that must not be.
    pub(crate) fn repeated(name: &'static str) -> Self {
        let detail = format!("the request has more than one `{name}` field, and may have one");
        Self::new(Reason::MalformedHead, detail)
    }

    /// An unsupported expectation (RFC 9110 §10.1.1).
    pub(crate) fn expectation() -> Self {
        let detail = "the expectation is not known here: only `100-continue` is";
        Self::new(Reason::Expectation, detail)
    }

    /// The allowed number of requests is running; in this worker that is `limit`.
    pub(crate) fn overloaded(limit: usize) -> Self {
        let detail = format!(
            "{limit} requests run already, as many as this worker may serve at once (limits.requests)"
        );
        Self::new(Reason::Overloaded, detail)
    }

    /// More than `limit` header fields (RFC 6585 §5).
    pub(crate) fn too_many_fields(limit: usize) -> Self {
        let detail = format!("the request has more than {limit} header fields (limits.headers)");
        Self::new(Reason::HeadTooLarge, detail)
    }

    /// Fields over `limit` bytes (RFC 6585 §5).
    pub(crate) fn fields_too_large(limit: usize) -> Self {
        let detail = format!("the request's fields are over {limit} bytes (limits.headSize)");
        Self::new(Reason::HeadTooLarge, detail)
    }

    /// A head over `limit` bytes, not counting its target (RFC 6585 §5).
    pub(crate) fn head_too_large(limit: usize) -> Self {
        let detail = format!(
            "the request's head is over {limit} bytes, not counting its target (limits.headSize)"
        );
        Self::new(Reason::HeadTooLarge, detail)
    }

    /// The unfinished heads of the worker hold as much memory as they may.
    pub(crate) fn no_room_for_head() -> Self {
        let detail = "unfinished heads hold as much memory as they may, and this one is large: send it at once, or try again later";
        Self::new(Reason::Overloaded, detail)
    }

    /// A head that was not complete within `limits.headTimeout` (RFC 9110 §15.5.9).
    pub(crate) fn late_head() -> Self {
        Self::new(
            Reason::HeadTimeout,
            "the head did not come in time (limits.headTimeout, limits.minimumRate)",
        )
    }

    /// Several `Content-Length` values, or one that is not a number.
    pub(crate) fn bad_length() -> Self {
        Self::new(Reason::MalformedHead, "the Content-Length field is not one number")
    }

    /// The route reads the body, and all bodies together take what they may.
    pub(crate) fn no_room() -> Self {
        let detail = "this route reads the request's body, and there is no room for it (limits.bufferedBytes)";
        Self::new(Reason::BufferedBytes, detail)
    }

    /// The route reads the body, and it is larger than `limit` bytes.
    pub(crate) fn too_large(limit: usize) -> Self {
        let detail =
            format!("this route reads the request's body, and reads at most {limit} bytes");
        Self::new(Reason::BodyTooLarge, detail)
    }

    /// The body broke off or is malformed.
    pub(crate) fn broken_body(error: &dyn std::error::Error) -> Self {
        Self::new(Reason::BodyBroken, format!("the request's body could not be read: {error}"))
    }

    /// The body stalled for longer than `limits.bodyTimeout` (RFC 9110 §15.5.9).
    pub(crate) fn body_timeout() -> Self {
        let detail = "the request's body made no progress for too long (limits.bodyTimeout)";
        Self::new(Reason::BodyTimeout, detail)
    }

    /// The body came more slowly than at this rate.
    pub(crate) fn slow_body(rate: MinimumRate) -> Self {
        let detail =
            format!("the request's body came more slowly than {rate} (limits.minimumRate)");
        Self::new(Reason::BodyTimeout, detail)
    }
}

/// The request is not valid HTTP/1.1.
impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::new(Reason::MalformedHead, malformed.to_string())
    }
}

impl From<TargetError> for Refusal {
    fn from(error: TargetError) -> Self {
        let reason = match error {
            TargetError::DotSegment
            | TargetError::Nul
            | TargetError::Form
            | TargetError::Scheme
            | TargetError::Character
            | TargetError::Fragment
            | TargetError::EncodedSlash
            | TargetError::Parameters => Reason::BadTarget,
            TargetError::TooLong => return Self::target_too_long(target::LONGEST),
            TargetError::NoHost
            | TargetError::TwoHosts
            | TargetError::BadHost
            | TargetError::TwoAuthorities
            | TargetError::UserInfo => Reason::BadHost,
        };
        Self::new(reason, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_label_of_its_own() {
        let labels: std::collections::BTreeSet<_> =
            Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(labels.len(), Reason::ALL.len());
        for (place, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, place, "{reason:?}");
        }
    }
}
