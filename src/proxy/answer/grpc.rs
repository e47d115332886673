//! The proxy's own answers to a gRPC client: "trailers-only", with HTTP status 200, because a gRPC library
//! reads nothing else.

use http::Response;
use http::header::{self, HeaderValue};

use super::body::AnswerBody;
use crate::proxy::grpc::{MESSAGE, STATUS, Status};

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

/// The value of `grpc-message`: `%`, and bytes that are not printable ASCII, are percent-encoded (gRPC over HTTP/2).
fn percent_encoded(message: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
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
}
