//! Requests that no Flow runs for: malformed ones, and those that no route takes.

use http::StatusCode;

use super::target::TargetError;

/// Why a request was refused, and how that is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The answer's status.
    pub(crate) status: StatusCode,
    /// The problem document's `code`. Never one that a Flow's failure has.
    pub(crate) code: &'static str,
    /// The problem document's `detail`: what was seen and what was wanted.
    pub(crate) detail: String,
    /// RFC 9209 §2.3.
    pub(crate) proxy_status: &'static str,
    /// Whether the connection closes: its framing, or what is meant by it, cannot be trusted.
    pub(crate) close: bool,
}

impl Refusal {
    /// No route takes the request.
    pub(crate) fn no_route() -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            code: "Proxy.NoRoute",
            detail: "no route takes this request".to_owned(),
            proxy_status: "destination_not_found",
            close: false,
        }
    }

    /// `CONNECT`: this is a reverse proxy.
    pub(crate) fn connect() -> Self {
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            ..Self::bad("this is a reverse proxy: it opens no tunnels".to_owned())
        }
    }

    /// More than `limit` header fields (RFC 6585 §5).
    pub(crate) fn too_many_fields(limit: usize) -> Self {
        Self {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            ..Self::bad(format!("the request has more than {limit} header fields"))
        }
    }

    /// A body that a route reads is larger than `limit` bytes.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            code: "Provider.Call.Http.BodyTooLarge",
            ..Self::bad(format!(
                "this route reads the request's body, and reads at most {limit} bytes"
            ))
        }
    }

    /// The body broke off or is malformed.
    pub(crate) fn broken_body(error: &dyn std::error::Error) -> Self {
        Self::bad(format!("the request's body could not be read: {error}"))
    }

    fn bad(detail: String) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "Proxy.BadRequest",
            detail,
            proxy_status: "http_request_error",
            close: true,
        }
    }
}

impl From<TargetError> for Refusal {
    fn from(error: TargetError) -> Self {
        Self::bad(error.to_string())
    }
}
