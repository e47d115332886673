//! What the proxy says to a gRPC client in its own name: "trailers-only", with HTTP status 200, for a gRPC
//! library reads nothing else.

use http::header::{self, HeaderValue};
use http::{Response, StatusCode};

use super::body::AnswerBody;
use super::classify::code;
use crate::language::code::system;
use crate::proxy::grpc::{MESSAGE, STATUS, Status};

const TIMEOUT: &str = "Provider.Middleware.Timeout.Exceeded";

/// The status that a gRPC client gets for a failure with this code, which others get `http` for.
pub(crate) fn status_of(code: &str, http: StatusCode) -> Status {
    match code {
        TIMEOUT => Status::DEADLINE_EXCEEDED,
        code::BODY_TOO_LARGE => Status::RESOURCE_EXHAUSTED,
        // The call was cut off by the proxy's going, not by its client, who hears nothing any more.
        system::CANCELLED => Status::of_http(StatusCode::SERVICE_UNAVAILABLE),
        code => Status::of_code(code).unwrap_or_else(|| Status::of_http(http)),
    }
}

/// The answer.
pub(crate) fn trailers_only(status: Status, message: &str) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::empty());
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    fields.insert(&STATUS, HeaderValue::from(status.number()));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
        fields.insert(&MESSAGE, message);
    }
    response
}

/// `grpc-message`: bytes that are no printable ASCII, and `%`, are percent-encoded (gRPC over HTTP/2).
fn percent_encoded(message: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            write!(encoded, "%{byte:02X}").ok();
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_printable_ascii() {
        assert_eq!(percent_encoded("a b~"), "a b~");
        assert_eq!(percent_encoded("100 % ü\n"), "100 %25 %C3%BC%0A");
    }

    #[test]
    fn a_failure_s_code_says_the_status() {
        let table = [
            (TIMEOUT, 504, 4),
            (code::CONNECTION_FAILED, 502, 14),
            (code::CONNECTION_CLOSED, 502, 14),
            (code::BODY_TOO_LARGE, 413, 8),
            (system::CANCELLED, 503, 14),
            ("Provider.Call.Http.Grpc.Aborted", 500, 10),
            ("Proxy.NoRoute", 404, 12),
            ("Other.Code", 500, 2),
        ];
        for (code, http, grpc) in table {
            let http = StatusCode::from_u16(http).unwrap();
            assert_eq!(status_of(code, http).number(), grpc, "{code}");
        }
    }
}
