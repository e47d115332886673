//! What an error says about a request that got no response.

use std::error::Error as StdError;

use super::http2 as stream;
use crate::proxy::h1::Error;
use crate::proxy::h2::{self, Reason};
use crate::proxy::tls;

/// An error on a connection, by protocol.
#[derive(Debug)]
pub(crate) enum TransportError {
    /// HTTP/1.1.
    Http1(Error),
    /// HTTP/2.
    Http2(stream::Error),
}

impl TransportError {
    /// The error.
    pub(crate) fn error(&self) -> &(dyn StdError + 'static) {
        match self {
            Self::Http1(error) => error,
            Self::Http2(error) => error,
        }
    }
}

/// How a request without a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The connection was lost.
    Lost,
    /// The other side refused the stream, so it has not processed the request (RFC 9113 §8.7).
    Refused,
    /// The other side sent GOAWAY before the request, so it has not processed it (RFC 9113 §6.8).
    Leaving,
    /// The other side refused the TLS handshake after this side had completed it. It has not processed the request.
    Unwelcome,
    /// The other side reset the stream.
    Reset(Reason),
    /// The other side took no more of the request.
    Stalled,
    /// The bytes that arrived are not valid HTTP.
    Invalid,
    /// It answered with a head beyond the limits, and would again.
    TooLarge,
}

impl FailureKind {
    /// Interprets `error`.
    pub(super) fn of_stream(error: &stream::Error) -> Self {
        match error {
            stream::Error::Io(_) => Self::Lost,
            _ if error.is_flood() => Self::Lost,
            stream::Error::Stream(error) => Self::of_h2(error),
            stream::Error::Request(_) => Self::Reset(Reason::CANCEL),
            stream::Error::Stalled(_) => Self::Stalled,
            stream::Error::Head(_) | stream::Error::Switched => Self::Invalid,
        }
    }

    /// Interprets `error` of an HTTP/1.1 connection.
    pub(super) fn of_link(error: &Error) -> Self {
        match error {
            Error::Io(error) if tls::is_late_refusal(error) => Self::Unwelcome,
            Error::Malformed(malformed) if malformed.is_beyond_limits() => Self::TooLarge,
            Error::Malformed(_) => Self::Invalid,
            Error::Io(_) | Error::Closed | Error::Request(_) | Error::Length => Self::Lost,
        }
    }

    /// Whether the other side says that it has not processed the request.
    pub(crate) const fn is_unprocessed(self) -> bool {
        matches!(self, Self::Refused | Self::Leaving | Self::Unwelcome)
    }

    /// Whether the other side was gone: it did not say anything, nor take anything.
    pub(crate) const fn is_silent(self) -> bool {
        matches!(self, Self::Lost | Self::Stalled)
    }

    /// Whether the connection can still carry other requests.
    pub(crate) const fn spares_connection(self) -> bool {
        matches!(self, Self::Refused | Self::Reset(_) | Self::Stalled)
    }

    fn of_h2(error: &h2::Error) -> Self {
        let reason = error.reason().unwrap_or(Reason::NO_ERROR);
        match (error.is_remote(), error.is_go_away(), error.is_reset()) {
            // After a GOAWAY, streams above its last stream id end with the GOAWAY's error, and the
            // others with a lost connection.
            (true, true, _) => Self::Leaving,
            (true, _, true) if reason == Reason::REFUSED_STREAM => Self::Refused,
            (true, _, true) => Self::Reset(reason),
            (false, true, _) | (false, _, true) => Self::Invalid,
            _ => Self::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_our_own_making_is_no_statement_of_the_other_side_s() {
        assert_eq!(FailureKind::of_h2(&Reason::REFUSED_STREAM.into()), FailureKind::Lost);
    }
}
