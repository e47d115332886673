//! The timeout for a window that stays closed.
//!
//! As long as data of the stream is in the socket, nobody knows whether the other side wants it. Only when everything was
//! flushed and the window stays closed, the other side does not want this body. It may still be reading what it got
//! ([`reading_time`]). Whether a client's socket takes anything at all is the matter of the watch over all connections
//! ([`watch`](crate::proxy::watch)).

use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::stall::StallTimer;
use crate::proxy::h2::Traffic;
use crate::proxy::io::buffered::reading_time;

/// Runs since the window last allowed a byte.
#[derive(Debug)]
pub(super) struct WindowStall {
    timer: StallTimer,
    /// How many bytes the window had allowed at the last check,
    allowed: u64,
    /// and how often the connection had been flushed and blocked by then.
    writes: (u64, u64),
    /// How many bytes the window has allowed since it was last closed.
    burst: u64,
    /// Whether the timeout was already extended because the socket was full.
    extended: bool,
}

impl WindowStall {
    /// A timeout of `limit`, for a body that begins now on a connection with these counts.
    pub(super) fn new(limit: Duration, traffic: &Traffic) -> Self {
        let (timer, writes) = (StallTimer::new(limit), traffic.writes());
        Self { timer, allowed: 0, writes, burst: 0, extended: false }
    }

    /// The timeout.
    pub(super) const fn limit(&self) -> Duration {
        self.timer.bound()
    }

    /// Notes that the window has allowed `allowed` bytes so far.
    pub(super) fn progress(&mut self, allowed: u64, traffic: &Traffic) {
        if allowed != self.allowed {
            self.burst += allowed.saturating_sub(self.allowed);
            (self.allowed, self.writes, self.extended) = (allowed, traffic.writes(), false);
            self.timer.progress();
        }
    }

    /// Call it while the window is closed. Ready when the timeout has expired.
    pub(super) fn poll(&mut self, traffic: &Traffic, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let reading = reading_time(std::mem::take(&mut self.burst), self.limit());
            ready!(self.timer.poll_longer(reading, cx));
            let (flushes, blocks) = traffic.writes();
            let unflushed = flushes == self.writes.0;
            let was_blocked = blocks != self.writes.1 && !self.extended;
            if !unflushed && !was_blocked {
                return Poll::Ready(());
            }
            self.extended = !unflushed;
            self.timer.progress();
        }
    }
}
