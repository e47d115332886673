//! Errors of an exchange on a connection.

use std::io;

/// What went wrong in an exchange.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// An error of the system.
    #[error("connection error")]
    Io(#[source] io::Error),
    /// The peer closed before its message was complete (RFC 9112 §8).
    #[error("connection closed before message completed")]
    Closed,
    /// The bytes that arrived are not HTTP/1.1.
    #[error(transparent)]
    Malformed(Malformed),
    /// The request's own body broke off.
    #[error("the request could not be sent whole")]
    Request(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The request's body does not have the length that its head announces.
    #[error("the request's body is not as long as its head says")]
    Length,
}

/// How the bytes break HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// A status line or a field is malformed (RFC 9112 §4, §5).
    #[error("the head cannot be read: {0}")]
    Head(httparse::Error),
    /// A line feed without a carriage return (RFC 9112 §2.2).
    #[error("a line ends in a line feed without a carriage return")]
    LineFeed,
    /// The head exceeds the limit.
    #[error("the head is over {0} bytes (limits.headSize)")]
    HeadTooLarge(usize),
    /// The head has more fields than the limit.
    #[error("the head has more than {0} fields (limits.headers)")]
    TooManyFields(usize),
    /// A status below 100.
    #[error("the status is below 100")]
    Status,
    /// Both framing fields are present, so one of them is wrong (RFC 9112 §6.1).
    #[error("the head has both Content-Length and Transfer-Encoding")]
    TwoFramings,
    /// `Content-Length` is not a number, or has several values (RFC 9112 §6.3).
    #[error("Content-Length is no number, or several")]
    ContentLength,
    /// A request's transfer coding does not end in `chunked`, so nobody knows where the body ends (RFC 9112 §6.3).
    #[error("Transfer-Encoding does not end in chunked")]
    Coding,
    /// HTTP/1.0 has no transfer codings (RFC 9112 §6.1).
    #[error("Transfer-Encoding came in HTTP/1.0, which has none")]
    OldCoding,
    /// The method is malformed (RFC 9110 §9.1).
    #[error("the method cannot be read")]
    Method,
    /// The protocol was switched before the request was sent completely (RFC 9110 §7.8).
    #[error("the protocol changed within the request")]
    Switched,
    /// A chunk's size line is malformed (RFC 9112 §7.1).
    #[error("a chunk's head cannot be read")]
    ChunkHead,
    /// A chunk's size does not fit into 64 bits.
    #[error("a chunk's size is beyond any")]
    ChunkSize,
    /// A chunk is longer than its size.
    #[error("a chunk is longer than its size")]
    ChunkEnd,
    /// The chunk extensions exceed the limit (RFC 9112 §7.1.1).
    #[error("chunk extensions are over {} bytes", super::decode::EXTENSIONS)]
    Extensions,
    /// A trailer field is malformed.
    #[error("the trailers cannot be read")]
    Trailers,
    /// The trailers exceed the limit of a head.
    #[error("the trailers are over {0} bytes (limits.headSize)")]
    TrailersTooLarge(usize),
    /// There are more trailers than a head may have fields.
    #[error("there are more than {0} trailers (limits.headers)")]
    TooManyTrailers(usize),
}

impl Malformed {
    /// Whether the message is well-formed, but exceeds `limits`.
    pub(crate) const fn is_beyond_limits(self) -> bool {
        matches!(
            self,
            Self::HeadTooLarge(_)
                | Self::TooManyFields(_)
                | Self::TrailersTooLarge(_)
                | Self::TooManyTrailers(_)
        )
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}
