//! Interim responses: what an upstream sends before its final response (1xx, RFC 9110 §15.2).
//!
//! A proxy passes them on unless it asked for them itself. So those for the client's own request pass, from
//! every attempt: each is a hint and says nothing about the final answer (RFC 8297 §2). Those for a call that
//! the Flow itself makes, such as an audit, do not. A 100 for a request whose client waits for one passes as a
//! permission; see [`hold`](crate::proxy::body::expect_continue).
//!
//! They pass to HTTP/1.1 and HTTP/2 clients. HTTP/1.0 clients must not be sent any.

use http::StatusCode;
use http::header::{self, HeaderMap};

use crate::proxy::h1::{self, ClientConnection, DropReason};
use crate::proxy::h2::RequestStream;
use crate::proxy::message::headers;
use crate::proxy::site::WorkerRoute;

/// Where the interim responses for one request go.
#[derive(Clone, Debug)]
pub(crate) enum InterimTarget {
    /// To the client on this connection.
    Client(ClientConnection),
    /// To the client on this stream.
    Stream(RequestStream),
    /// They are dropped, for this reason.
    Nowhere(DropReason),
}

impl InterimTarget {
    /// Passes on an interim response to a request of `route`.
    pub(crate) fn pass(
        &self,
        route: &WorkerRoute,
        status: StatusCode,
        reason: Option<&[u8]>,
        fields: &HeaderMap,
    ) {
        let passed = match self {
            Self::Client(conn) => {
                conn.say_before(&written(status, reason, &to_pass(route, fields)))
            }
            Self::Stream(stream) => stream.say_before(status, to_pass(route, fields)),
            Self::Nowhere(why) => Err(*why),
        };
        if let Err(why) = passed {
            let (status, reason) = (status.as_u16(), why.as_str());
            tracing::debug!(route = &*route.name, status, reason, "An interim answer was dropped.");
            route.metrics.interim_dropped(reason);
        }
    }
}

/// The fields of an interim response, without those about its hop and those that the route removes from answers.
fn to_pass(route: &WorkerRoute, fields: &HeaderMap) -> HeaderMap {
    let mut fields = fields.clone();
    headers::strip_hop_by_hop(&mut fields);
    // An interim response has no body and no trailers (RFC 9110 §8.6, §15.2).
    fields.remove(header::CONTENT_LENGTH);
    fields.remove(header::TRAILER);
    let edits = route.shaping.as_ref().and_then(|shaping| shaping.response.as_ref());
    if let Some(edits) = edits {
        for name in edits.remove.iter().chain(edits.set.iter().map(|(name, _)| name)) {
            fields.remove(name);
        }
    }
    fields
}

/// The same as bytes of HTTP/1.1.
fn written(status: StatusCode, reason: Option<&[u8]>, fields: &HeaderMap) -> Vec<u8> {
    let mut head = Vec::with_capacity(128);
    h1::status_line(&mut head, status, reason);
    for (name, value) in fields {
        h1::field(&mut head, name, value);
    }
    head.extend_from_slice(b"\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn an_interim_answer_is_a_head() {
        let mut fields = HeaderMap::new();
        fields.append(header::LINK, HeaderValue::from_static("</a>"));
        fields.append(header::LINK, HeaderValue::from_bytes(b"</\xff>").unwrap());
        let wanted = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nlink: </\xff>\r\n\r\n";
        assert_eq!(written(StatusCode::EARLY_HINTS, None, &fields), wanted);
        let unknown = StatusCode::from_u16(150).unwrap();
        assert_eq!(written(unknown, None, &HeaderMap::new()), b"HTTP/1.1 150 \r\n\r\n");
    }
}
