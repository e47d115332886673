//! The bound on a body that makes no progress.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Counts from the last progress. The timer is made when a body first has to wait, so a body that is
/// there already costs none.
#[derive(Debug)]
pub(crate) struct Stall {
    bound: Duration,
    /// Armed since the body last had nothing.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the timer counts for the wait that is going on.
    counting: bool,
}

impl Stall {
    /// A bound of `bound` between two chunks.
    pub(crate) const fn new(bound: Duration) -> Self {
        Self { bound, timer: None, counting: false }
    }

    /// The bound.
    pub(crate) const fn bound(&self) -> Duration {
        self.bound
    }

    /// Something came: the wait, if one was counted, is over.
    pub(crate) const fn progress(&mut self) {
        self.counting = false;
    }

    /// Nothing came: ready when that has lasted for the bound.
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
