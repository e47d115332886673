//! The parts of gRPC that a proxy must know: how to recognise a call, and where it reports its outcome.
//!
//! A call answers 200 and reports its outcome in `grpc-status`: in the headers if there is nothing else
//! ("trailers-only"), otherwise in the trailers. A call that has sent a message counts as a success here,
//! whatever its trailers say, because the client already has the message. A call that fails before its first
//! message is a failure with its own code, and may be retried. gRPC draws the same line: a call is committed
//! with its first message (gRFC A6).
//!
//! `grpc-timeout` passes unchanged. It is the client's bound on the call, and the upstream applies it.

mod status;

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};

pub(crate) use status::Status;

/// How long a gRPC response's head is held back to see whether the call ends without a message.
///
/// A server that fails at once without "trailers-only" sends the head and the trailers together. If the first
/// message takes longer than this, the head is sent on alone, and everything after it passes as it comes.
pub(crate) const PEEK: Duration = Duration::from_millis(10);

pub(crate) static STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) static MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
static PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The reason for no retry if the server asks for none.
pub(crate) const REFUSED_BY_SERVER: &str = "serverPushback";

/// The outcome of a call that failed without a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Its status.
    pub(crate) status: Status,
    /// What the server says about a retry.
    pub(crate) pushback: Pushback,
}

/// What a server says about a retry (gRFC A6, "Pushback").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushback {
    /// Nothing.
    None,
    /// Retry after exactly this time.
    After(Duration),
    /// Do not retry.
    Never,
}

/// Whether a message with this `Content-Type` is gRPC. gRPC-Web, which has its trailers in the body, is not.
pub(crate) fn is_grpc(content_type: Option<&HeaderValue>) -> bool {
    let rest = content_type.and_then(|ty| {
        let (essence, rest) = ty.as_bytes().split_at_checked(b"application/grpc".len())?;
        essence.eq_ignore_ascii_case(b"application/grpc").then_some(rest)
    });
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t')))
}

impl Ended {
    /// Reads the headers of a response without a body, or the trailers of one without a message. `None` if they
    /// report success or nothing.
    pub(crate) fn of(fields: &HeaderMap) -> Option<Self> {
        let status = Status::read(fields.get(&STATUS)?.as_bytes());
        let pushback = Pushback::of(fields.get(&PUSHBACK));
        status.map(|status| Self { status, pushback })
    }

    /// Whether the failure is retryable. `UNAVAILABLE` always is (gRPC's status codes); for any other code the
    /// server may say so.
    pub(crate) const fn retryable(self) -> bool {
        match self.pushback {
            Pushback::None => self.status.is_unavailable(),
            Pushback::After(_) => true,
            Pushback::Never => false,
        }
    }
}

impl Pushback {
    /// A negative number, or something that is not a number, asks for no retry (gRFC A6).
    fn of(field: Option<&HeaderValue>) -> Self {
        let Some(field) = field else {
            return Self::None;
        };
        let millis = field.to_str().ok().and_then(|text| text.trim().parse::<i32>().ok());
        let millis = millis.and_then(|millis| u64::try_from(millis).ok());
        millis.map_or(Self::Never, |millis| Self::After(Duration::from_millis(millis)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_type_says_what_is_grpc() {
        let is = |text: &'static str| is_grpc(Some(&HeaderValue::from_static(text)));
        for grpc in ["application/grpc", "application/grpc+proto", "Application/gRPC; a=b"] {
            assert!(is(grpc), "{grpc}");
        }
        for other in ["application/grpc-web", "application/grpc-web+proto", "application/grp", ""] {
            assert!(!is(other), "{other}");
        }
        assert!(!is_grpc(None));
    }

    fn ended(status: &'static str, pushback: Option<&'static str>) -> Option<Ended> {
        let mut fields = HeaderMap::new();
        fields.insert(&STATUS, HeaderValue::from_static(status));
        if let Some(pushback) = pushback {
            fields.insert(&PUSHBACK, HeaderValue::from_static(pushback));
        }
        Ended::of(&fields)
    }

    #[test]
    fn a_server_may_ask_to_wait_or_not_to_come_again() {
        let millis = |millis| Pushback::After(Duration::from_millis(millis));
        let table = [
            (None, Pushback::None, false),
            (Some("100"), millis(100), true),
            (Some("0"), millis(0), true),
            (Some("-1"), Pushback::Never, false),
            (Some("x"), Pushback::Never, false),
            (Some(""), Pushback::Never, false),
            (Some("1.5"), Pushback::Never, false),
            (Some("99999999999"), Pushback::Never, false),
        ];
        for (field, pushback, retryable) in table {
            let ended = ended("8", field).unwrap();
            assert_eq!((ended.pushback, ended.retryable()), (pushback, retryable), "{field:?}");
        }
    }

    #[test]
    fn only_unavailable_is_retryable_by_itself() {
        for status in 1..=16 {
            let status = Status::read(status.to_string().as_bytes()).unwrap();
            let ended = Ended { status, pushback: Pushback::None };
            assert_eq!(ended.retryable(), status.name() == "Unavailable", "{status:?}");
        }
        assert!(!Ended { pushback: Pushback::Never, ..ended("14", None).unwrap() }.retryable());
    }

    #[test]
    fn success_and_silence_are_no_failure() {
        assert_eq!(ended("0", None), None);
        assert_eq!(Ended::of(&HeaderMap::new()), None);
    }
}
