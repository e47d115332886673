//! The timeout of a body that makes no progress.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Measures the time since the last progress. The timer is created when a body first has to wait, so a body
/// that is already there costs none.
#[derive(Debug)]
pub(crate) struct StallTimer {
    bound: Duration,
    /// Created when the body first had nothing.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the timer is set for the present wait.
    counting: bool,
}

impl StallTimer {
    /// Allows at most `bound` between two chunks.
    pub(crate) const fn new(bound: Duration) -> Self {
        Self { bound, timer: None, counting: false }
    }

    /// The time allowed.
    pub(crate) const fn bound(&self) -> Duration {
        self.bound
    }

    /// Data arrived: the wait is over.
    pub(crate) const fn progress(&mut self) {
        self.counting = false;
    }

    /// No data arrived: ready when that has lasted for the bound.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let bound = self.bound;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(bound)));
        if !self.counting {
            self.counting = true;
            let now = Instant::now();
            timer.as_mut().reset(now.checked_add(bound).unwrap_or(now));
        }
        timer.as_mut().poll(cx)
    }
}
