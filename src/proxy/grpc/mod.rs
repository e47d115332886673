//! gRPC, as far as a proxy must know it: that a call is one, and where it says how it ended.
//!
//! A call answers 200 and says how it ended in `grpc-status`: in the header section where that is all there
//! is ("trailers-only"), else in the trailers. A call that has sent a message is a success here, whatever its
//! trailers say: the message is the client's already. One that ends before its first message is a failure of
//! its own code, and may be tried again. This is gRPC's own line: a call is committed with its first message
//! (gRFC A6).
//!
//! `grpc-timeout` passes unchanged: it is the client's bound on the call, and the upstream's to keep.

mod status;

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};

pub(crate) use status::Status;

/// How long the head of a gRPC response is held back to see whether the call ends without a message.
///
/// A server that fails at once without "trailers-only" sends head and trailers in one go, so they are here
/// together. A stream whose first message takes longer is not held: its head goes on alone, and what comes
/// later is passed on as it comes.
pub(crate) const PEEK: Duration = Duration::from_millis(10);

pub(crate) static STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) static MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
static PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Why a retry is out of the question where the server asks for none.
pub(crate) const REFUSED_BY_SERVER: &str = "serverPushback";

/// How a call ended that sent no message and has not succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Its status.
    pub(crate) status: Status,
    /// What the server says of another attempt.
    pub(crate) pushback: Pushback,
}

/// What a server says of another attempt (gRFC A6, "Pushback").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushback {
    /// Nothing.
    None,
    /// It is welcome after exactly this long.
    After(Duration),
    /// There must be none.
    Never,
}

/// Whether a message with this `Content-Type` is gRPC's. gRPC-Web, whose trailers are in the body, is not.
pub(crate) fn is_grpc(content_type: Option<&HeaderValue>) -> bool {
    let rest = content_type.and_then(|ty| {
        let (essence, rest) = ty.as_bytes().split_at_checked(b"application/grpc".len())?;
        essence.eq_ignore_ascii_case(b"application/grpc").then_some(rest)
    });
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t')))
}

impl Ended {
    /// What these fields say, the header section of a response that has no body or the trailers that come
    /// without a message; `None` where they say success, or nothing.
    pub(crate) fn of(fields: &HeaderMap) -> Option<Self> {
        let status = Status::read(fields.get(&STATUS)?.as_bytes());
        let pushback = Pushback::of(fields.get(&PUSHBACK));
        status.map(|status| Self { status, pushback })
    }

    /// The failure's advisory signal. Of all codes only `UNAVAILABLE` says by itself that the call may be
    /// tried again (gRPC's status codes); of any other the server may say so.
    pub(crate) const fn retryable(self) -> bool {
        match self.pushback {
            Pushback::None => self.status.is_unavailable(),
            Pushback::After(_) => true,
            Pushback::Never => false,
        }
    }
}

impl Pushback {
    /// What the field says. A negative number, and what is no number, ask for no retry (gRFC A6).
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
