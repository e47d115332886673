//! Bodies: what a client sends ([`source`]), what an attempt sends on ([`request`]), what an upstream
//! answers ([`response`]) and what the client gets ([`answer`]).
//!
//! A body is moved, never copied: each of these is a stream of reference-counted chunks. What is kept
//! in memory is kept for a reason that the configuration states (a replay, an expression that reads
//! it) and within a bound.

pub(crate) mod answer;
pub(crate) mod collect;
pub(crate) mod hold;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod source;
pub(crate) mod stall;
pub(crate) mod trailers;

use std::time::Duration;

/// Why a body ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The client's body broke off or is malformed.
    #[error("the client's request body broke off")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The upstream's body broke off or is malformed.
    #[error("the upstream's response body broke off")]
    Upstream(#[source] hyper::Error),
    /// No byte came for the upstream's `idleTimeout`.
    #[error("no byte of the body came for {}", crate::language::temporal::Span::from_duration(*.0))]
    Stalled(Duration),
    /// A later attempt has taken the request body over, or nobody wants the answer any more. The source is
    /// what an HTTP/2 upstream is told.
    #[error("this attempt's request is abandoned")]
    Abandoned(#[source] h2::Error),
}
