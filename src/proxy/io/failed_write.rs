//! A failed write, reported late.
//!
//! An upstream may respond and close before it has read the whole request. Then the next write fails while the
//! response is still in the socket. So a failed write is reported only when there is nothing left to read, or when
//! nothing has arrived for [`WRITE_FAILURE_GRACE`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// How long a failed write is held back at most.
pub(crate) const WRITE_FAILURE_GRACE: Duration = Duration::from_secs(1);

/// A write that failed.
#[derive(Debug)]
pub(crate) struct FailedWrite {
    error: io::Error,
    /// When it is reported at the latest.
    until: Pin<Box<Sleep>>,
}

impl FailedWrite {
    /// A write that failed now.
    pub(crate) fn new(error: io::Error) -> Self {
        Self { error, until: Box::pin(sleep(WRITE_FAILURE_GRACE)) }
    }

    /// The error.
    pub(crate) fn error(&self) -> io::Error {
        io::Error::new(self.error.kind(), self.error.to_string())
    }

    /// Ready with the error when it has been held back long enough.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        ready!(self.until.as_mut().poll(cx));
        Poll::Ready(self.error())
    }
}
