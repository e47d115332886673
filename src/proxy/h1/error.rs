//! Why an exchange over a connection came to no good end.

use std::io;

/// What went wrong with an exchange.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The system says so.
    #[error("connection error")]
    Io(#[source] io::Error),
    /// The other side has ended before its message did (RFC 9112 §8).
    #[error("connection closed before message completed")]
    Closed,
    /// What came is no HTTP/1.1.
    #[error("{0}")]
    Malformed(#[source] Malformed),
    /// The request's own body cannot go on.
    #[error("the request could not be sent whole")]
    Request(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The request's body is not of the length that its head says.
    #[error("the request's body is not as long as its head says")]
    Length,
}

/// In which way what came is no HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// A status line or a field is none (RFC 9112 §4, §5).
    #[error("the head cannot be read: {0}")]
    Head(httparse::Error),
    /// A head over the bound.
    #[error("the head is over {} bytes", super::SIZE)]
    HeadTooLarge,
    /// Three digits that are no status.
    #[error("the status is below 100")]
    Status,
    /// Both fields that frame a body: one of them lies (RFC 9112 §6.1).
    #[error("the head has both Content-Length and Transfer-Encoding")]
    TwoFramings,
    /// `Content-Length` is no number, or is several (RFC 9112 §6.3).
    #[error("Content-Length is no number, or several")]
    ContentLength,
    /// A request's body in a coding that does not end in `chunked`: nobody knows where it ends (RFC 9112 §6.3).
    #[error("Transfer-Encoding does not end in chunked")]
    Coding,
    /// A coding in HTTP/1.0, which has none (RFC 9112 §6.1).
    #[error("Transfer-Encoding came in HTTP/1.0, which has none")]
    OldCoding,
    /// The method is none (RFC 9110 §9.1).
    #[error("the method cannot be read")]
    Method,
    /// The target is none (RFC 9112 §3.2).
    #[error("the target is no URI, nor a part of one")]
    Target,
    /// Another protocol before the request was sent whole (RFC 9110 §7.8).
    #[error("the protocol changed within the request")]
    Switched,
    /// A chunk's size is none, or its line is not one (RFC 9112 §7.1).
    #[error("a chunk's head cannot be read")]
    ChunkHead,
    /// A chunk's size that no number here holds.
    #[error("a chunk's size is beyond any")]
    ChunkSize,
    /// A chunk that goes on behind its size.
    #[error("a chunk is longer than its size")]
    ChunkEnd,
    /// More of chunk extensions than anybody means (RFC 9112 §7.1.1).
    #[error("chunk extensions are over {} bytes", super::decode::EXTENSIONS)]
    Extensions,
    /// A trailer field is none.
    #[error("the trailers cannot be read")]
    Trailers,
    /// More trailers than a head may have fields.
    #[error("the trailers are over {} bytes", super::SIZE)]
    TrailersTooLarge,
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
