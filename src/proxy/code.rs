//! The meaning of each failure code for a client: one table, used for all of the proxy's own answers.
//!
//! If a failure's chain contains an upstream's response that nobody consumed, that is the answer. Otherwise the
//! table decides. A code that is not in it (an author's own, for example) means [`OTHER`]. To add a code, add
//! its constant, its row, its line in the table of docs/failures.md and, if the http provider emits it, its line in
//! `http.v1.json`. Tests check that the four agree.

use std::time::Duration;

use http::StatusCode;

use super::grpc::Status;
use crate::language::code::system;
use crate::language::provider::middleware::{retry, timeout};

/// No route matches the request.
pub(crate) const NO_ROUTE: &str = "Proxy.NoRoute";
/// The request has passed this proxy before.
pub(crate) const LOOP_DETECTED: &str = "Proxy.LoopDetected";
/// The allowed number of requests is running.
pub(crate) const OVERLOADED: &str = "Proxy.Overloaded";
/// The request is malformed, exceeds a limit, or is not supported.
pub(crate) const BAD_REQUEST: &str = "Proxy.BadRequest";
/// A Flow returned `{status, …}` that is not a valid response.
pub(crate) const BAD_RESPONSE: &str = "Proxy.BadResponse";
/// The upstream broke its response off after the head. No answer has it, because the client has the head: only the
/// record, the log and the metrics do. So it is not in the table.
pub(crate) const RESPONSE_TRUNCATED: &str = "Proxy.ResponseTruncated";
/// An execution ended without a Result.
pub(crate) const INTERNAL: &str = "Proxy.Internal";
/// No connection was made, so nothing was sent.
pub(crate) const CONNECTION_FAILED: &str = "Provider.Call.Http.ConnectionFailed";
/// The connection was lost before a complete response head.
pub(crate) const CONNECTION_CLOSED: &str = "Provider.Call.Http.ConnectionClosed";
/// The upstream sent no response head in time.
pub(crate) const RESPONSE_TIMEOUT: &str = "Provider.Call.Http.ResponseTimeout";
/// The upstream sent something that is not an HTTP response.
pub(crate) const PROTOCOL_ERROR: &str = "Provider.Call.Http.ProtocolError";
/// 429.
pub(crate) const THROTTLED: &str = "Provider.Call.Http.Throttled";
/// 503.
pub(crate) const UNAVAILABLE: &str = "Provider.Call.Http.Unavailable";
/// 502.
pub(crate) const BAD_GATEWAY: &str = "Provider.Call.Http.BadGateway";
/// 504.
pub(crate) const GATEWAY_TIMEOUT: &str = "Provider.Call.Http.GatewayTimeout";
/// Any other 4xx or 5xx.
pub(crate) const NON_SUCCESS_STATUS: &str = "Provider.Call.Http.NonSuccessStatus";
/// A body that must be read into memory exceeds its limit.
pub(crate) const BODY_TOO_LARGE: &str = "Provider.Call.Http.BodyTooLarge";
/// A body that must be read into memory finds no room there.
pub(crate) const BODY_NOT_BUFFERED: &str = "Provider.Call.Http.BodyNotBuffered";
/// An earlier attempt read the request's body and did not keep it.
pub(crate) const BODY_NOT_REPLAYABLE: &str = "Provider.Call.Http.BodyNotReplayable";
/// The client's request body broke off while it was sent on.
pub(crate) const REQUEST_ABORTED: &str = "Provider.Call.Http.RequestAborted";

/// How a failure is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// The answer's status.
    pub(crate) status: StatusCode,
    /// The error type that `Proxy-Status` names (RFC 9209 §2.3).
    pub(crate) word: &'static str,
    /// gRPC's status for it.
    pub(crate) grpc: Status,
    /// The help that an operator reads in the log.
    pub(crate) help: &'static str,
    /// Whether nothing at all is answered: the client's connection, or its stream, is closed instead.
    pub(crate) withheld: bool,
    /// When it makes sense to ask again, if the failure says so: `Retry-After`.
    pub(crate) retry_after: Option<Duration>,
}

/// A row of the table.
type Row = (&'static str, Meaning);

const INTERNAL_ERROR: &str = "proxy_internal_error";
const REQUEST_ERROR: &str = "http_request_error";

/// The meaning of a code that is not in the table.
pub(crate) const OTHER: Meaning = means(StatusCode::INTERNAL_SERVER_ERROR, INTERNAL_ERROR, "");

/// The table.
#[rustfmt::skip]
const TABLE: [Row; 21] = [
    (NO_ROUTE, means(StatusCode::NOT_FOUND, "destination_not_found", "no route takes the request")),
    (LOOP_DETECTED, means(StatusCode::LOOP_DETECTED, "proxy_loop_detected", "an upstream leads back to this proxy (`Via`)")),
    (OVERLOADED, means(StatusCode::SERVICE_UNAVAILABLE, "http_request_denied", "as many requests run as `limits.requests` allows, or bodies take as much memory as `limits.bufferedBytes` does")),
    (BAD_REQUEST, means(StatusCode::BAD_REQUEST, REQUEST_ERROR, "the request is malformed, over a limit (408, 414, 431) or asks for what is not done here (405, 417, 501)")),
    (BAD_RESPONSE, means(StatusCode::INTERNAL_SERVER_ERROR, INTERNAL_ERROR, "the Flow returned a `status` with what is no response; the log says what is wrong with it")),
    (INTERNAL, means(StatusCode::INTERNAL_SERVER_ERROR, INTERNAL_ERROR, "a mistake in the proxy: report it with the log's lines around it")),
    (CONNECTION_FAILED, means(StatusCode::BAD_GATEWAY, "destination_unavailable", "no connection came to be and nothing was sent: is the upstream there, and its address right?")),
    (CONNECTION_CLOSED, means(StatusCode::BAD_GATEWAY, "connection_terminated", "the upstream closed the connection before a whole response head")),
    (RESPONSE_TIMEOUT, Meaning { grpc: Status::DEADLINE_EXCEEDED, ..means(StatusCode::GATEWAY_TIMEOUT, "http_response_timeout", "the upstream sent no response head within its `responseTimeout`") }),
    (PROTOCOL_ERROR, means(StatusCode::BAD_GATEWAY, "http_protocol_error", "the upstream sent what is no HTTP response: is its `protocol` right?")),
    (THROTTLED, upstream_s("the upstream answered 429")),
    (UNAVAILABLE, upstream_s("the upstream answered 503")),
    (BAD_GATEWAY, upstream_s("the upstream answered 502")),
    (GATEWAY_TIMEOUT, upstream_s("the upstream answered 504")),
    (NON_SUCCESS_STATUS, upstream_s("the upstream answered with another 4xx or 5xx")),
    (BODY_TOO_LARGE, Meaning { grpc: Status::RESOURCE_EXHAUSTED, ..means(StatusCode::INTERNAL_SERVER_ERROR, INTERNAL_ERROR, "the route reads a body that is over its `buffer.response`, or its `buffer.request` (413)") }),
    (BODY_NOT_BUFFERED, Meaning { grpc: Status::RESOURCE_EXHAUSTED, ..means(StatusCode::SERVICE_UNAVAILABLE, INTERNAL_ERROR, "the route reads a response's body, and all bodies together take what `limits.bufferedBytes` allows") }),
    (BODY_NOT_REPLAYABLE, means(StatusCode::INTERNAL_SERVER_ERROR, INTERNAL_ERROR, "an attempt needs a request body that was not kept: `buffer.replay` is smaller than it")),
    (REQUEST_ABORTED, means(StatusCode::BAD_REQUEST, REQUEST_ERROR, "the client's body was malformed or broke off, or stood still (408)")),
    (timeout::EXCEEDED, Meaning { grpc: Status::DEADLINE_EXCEEDED, ..means(StatusCode::GATEWAY_TIMEOUT, "http_response_timeout", "a Timeout's bound fired before there was an answer") }),
    // The proxy cancelled the call because it stops. A client that cancelled its call reads no answer.
    (system::CANCELLED, means(StatusCode::SERVICE_UNAVAILABLE, INTERNAL_ERROR, "the proxy stopped before the request ended")),
];

/// The meaning of a failure with this code.
pub(crate) fn meaning(code: &str) -> Meaning {
    if let Some(grpc) = Status::of_code(code) {
        return Meaning { grpc, ..OTHER };
    }
    TABLE.iter().find(|(known, _)| *known == code).map_or(OTHER, |(_, meaning)| *meaning)
}

/// Whether the code says only that somebody gave up on the failure beneath it, which says what it means.
pub(crate) fn is_giving_up(code: &str) -> bool {
    code == retry::EXHAUSTED
}

impl Meaning {
    /// The same with another status, and what gRPC has for that, unless it has something for the code.
    pub(crate) fn at(self, status: StatusCode) -> Self {
        let mapped = self.grpc == Status::of_http(self.status);
        let grpc = if mapped { Status::of_http(status) } else { self.grpc };
        Self { status, grpc, ..self }
    }
}

pub(crate) const fn means(status: StatusCode, word: &'static str, help: &'static str) -> Meaning {
    let grpc = Status::of_http(status);
    Meaning { status, word, grpc, help, withheld: false, retry_after: None }
}

/// Of a failure that an upstream's answer made: what is said where that answer is gone.
const fn upstream_s(help: &'static str) -> Meaning {
    means(StatusCode::INTERNAL_SERVER_ERROR, INTERNAL_ERROR, help)
}

#[cfg(test)]
mod tests;
