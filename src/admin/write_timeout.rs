//! Closes a connection whose client stops reading.
//!
//! Such a client would hold one of the few connections forever, and enough of them would leave no room
//! for the probes. So each write must make progress within a fixed time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::proxy::io::wrapped::{Hooks, Wrapped};

/// How long the client may read nothing.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream that fails when no written byte has left for too long.
pub(super) type WriteTimeout<T> = Wrapped<T, Timer>;

/// Since when it waits.
#[derive(Debug)]
pub(super) struct Timer {
    timer: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<T> WriteTimeout<T> {
    /// Wraps `io`.
    pub(super) fn new(io: T) -> Self {
        let timer = Box::pin(sleep(WRITE_TIMEOUT));
        Self { io, hooks: Timer { timer, waiting: false } }
    }
}

impl Hooks for Timer {
    /// The outcome of a write, or an error if it has been waiting for too long.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let polled = write(cx);
        if polled.is_ready() {
            self.waiting = false;
            return polled;
        }
        if !std::mem::replace(&mut self.waiting, true) {
            self.timer.as_mut().reset(Instant::now() + WRITE_TIMEOUT);
        }
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the other side reads nothing");
        self.timer.as_mut().poll(cx).map(|()| Err(late()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stops_is_given_up() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = WriteTimeout::new(near);
        let begun = Instant::now();
        let (written, ()) = tokio::join!(near.write_all(&[0; 64]), async {
            // A slow reader has not stopped.
            for _ in 0..2 {
                sleep(Duration::from_secs(29)).await;
                far.read_exact(&mut [0; 16]).await.unwrap();
            }
        });
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), 2 * 29 + 30);
    }
}
