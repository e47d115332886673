//! An upstream is heard out. One that answers before it has read the whole request, and closes, makes the next write fail
//! while its answer lies in the socket: a failed write is only reported when there is nothing left to read, or when
//! nothing came for [`HEAR_OUT`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// For how long a failed write is held back.
pub(super) const HEAR_OUT: Duration = Duration::from_secs(1);

/// A write that failed, held back while there may be something to read.
#[derive(Debug)]
pub(super) struct FailedWrite {
    error: io::Error,
    /// When it is reported in any case.
    until: Pin<Box<Sleep>>,
}

impl FailedWrite {
    /// It failed now.
    pub(super) fn new(error: io::Error) -> Self {
        Self { error, until: Box::pin(sleep(HEAR_OUT)) }
    }

    /// How it failed.
    pub(super) fn error(&self) -> io::Error {
        io::Error::new(self.error.kind(), self.error.to_string())
    }

    /// The same, once nothing is waited for any more.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        ready!(self.until.as_mut().poll(cx));
        Poll::Ready(self.error())
    }
}
