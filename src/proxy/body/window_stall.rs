//! The timeout for a window that stays closed.
//!
//! As long as data of the stream is in the socket, nobody knows whether the other side wants it. Only when everything was
//! flushed and the window stays closed, the other side does not want this body. It may still be reading what it got
//! ([`reading_time`]). Whether a client's socket takes anything at all is the matter of the watch over all connections
//! ([`watch`](crate::proxy::watch)).

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::proxy::h2::Traffic;
use crate::proxy::io::buffered::reading_time;

/// Runs since the window last allowed a byte.
#[derive(Debug)]
pub(super) struct WindowStall {
    limit: Duration,
    /// Created when the window is first closed.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether it is set for the present wait.
    counting: bool,
    /// How many bytes the window had allowed at the last check,
    allowed: u64,
    /// and how often the connection had been flushed by then.
    flushes: u64,
    /// How many bytes the window has allowed since it was last closed.
    burst: u64,
}

impl WindowStall {
    /// A timeout of `limit`, for a body that begins now on a connection with these counts.
    pub(super) fn new(limit: Duration, traffic: &Traffic) -> Self {
        let flushes = traffic.flushes();
        Self { limit, timer: None, counting: false, allowed: 0, flushes, burst: 0 }
    }

    /// The timeout.
    pub(super) const fn limit(&self) -> Duration {
        self.limit
    }

    /// Notes that the window has allowed `allowed` bytes so far.
    pub(super) fn progress(&mut self, allowed: u64, traffic: &Traffic) {
        if allowed != self.allowed {
            self.burst += allowed.saturating_sub(self.allowed);
            (self.allowed, self.flushes) = (allowed, traffic.flushes());
            self.counting = false;
        }
    }

    /// Call it while the window is closed. Ready when the timeout has expired.
    pub(super) fn poll(&mut self, traffic: &Traffic, cx: &mut Context<'_>) -> Poll<()> {
        let mut wait = Duration::ZERO;
        if !self.counting {
            self.counting = true;
            let reading = reading_time(std::mem::take(&mut self.burst), self.limit);
            wait = self.limit.saturating_add(reading);
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(wait)));
        loop {
            let now = Instant::now();
            if !wait.is_zero() {
                timer.as_mut().reset(now.checked_add(wait).unwrap_or(now));
            }
            ready!(timer.as_mut().poll(cx));
            wait = unflushed(self.limit, self.flushes, traffic);
            if wait.is_zero() {
                return Poll::Ready(());
            }
        }
    }
}

/// How much longer to wait, because the body left later than the window allowed it: since then, the connection had been
/// flushed `flushes` times.
fn unflushed(limit: Duration, flushes: u64, traffic: &Traffic) -> Duration {
    if traffic.flushes() == flushes {
        return limit;
    }
    let due = traffic.unblocked_at().and_then(|at| at.checked_add(limit));
    due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    const LIMIT: Duration = Duration::from_secs(5);

    /// How long a window stays closed that has allowed `allowed` bytes, if they leave after `blocked`.
    async fn lasts(allowed: u64, blocked: Duration) -> Duration {
        let traffic = Traffic::default();
        let mut stall = WindowStall::new(LIMIT, &traffic);
        let begun = Instant::now();
        stall.progress(allowed, &traffic);
        let leaves = async {
            traffic.flushed(false);
            sleep(blocked).await;
            traffic.flushed(true);
        };
        tokio::join!(poll_fn(|cx| stall.poll(&traffic, cx)), leaves);
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn it_begins_when_everything_has_left() {
        for (allowed, blocked, wanted) in [
            (1, 0, 5),
            (1, 2, 7),
            // Not flushed for longer than the timeout.
            (1, 12, 17),
            // It may be reading what it got.
            (20_000, 0, 7),
        ] {
            let took = lasts(allowed, Duration::from_secs(blocked)).await;
            assert_eq!(took.as_secs(), wanted, "{allowed} after {blocked}: {took:?}");
        }
    }
}
