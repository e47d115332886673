//! One timer for the bounds of an execution, and of those that come after it.
//!
//! A bound hardly ever fires, and to set a timer for each and take it back costs more than all else that a
//! policy does. So a timer that is set stays set, whatever becomes of its bound. Where the next bound falls
//! due later there is nothing to do: the timer wakes the task too early, which looks again and sets it to
//! the instant that it waits for by then. Bounds fire when they would with timers of their own; a task is
//! woken once for nothing for each that it set and did not need, instead of setting one for each wait.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that one task keeps from one execution to the next.
#[derive(Debug, Default)]
pub struct Alarm(Option<Set>);

/// A timer that was set.
#[derive(Debug)]
struct Set {
    sleep: Pin<Box<Sleep>>,
    /// Whom it wakes.
    waker: Waker,
}

impl Alarm {
    /// Ready once `due` has come; the task that polls is woken then, or before.
    pub(super) fn poll(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        match &self.0 {
            Some(set) if set.wakes(due, cx) => Poll::Pending,
            _ => self.set(due, cx),
        }
    }

    fn set(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let set = match self.0.take() {
            Some(Set { mut sleep, .. }) => {
                sleep.as_mut().reset(due);
                self.0.insert(Set { sleep, waker })
            }
            None => self.0.insert(Set { sleep: Box::pin(sleep_until(due)), waker }),
        };
        // Out of the task's budget: a poll that is put off has not told the timer whom to wake.
        pin!(unconstrained(set.sleep.as_mut())).poll(cx)
    }
}

impl Set {
    /// Whether it will wake the task of `cx` at `due` or before.
    fn wakes(&self, due: Instant, cx: &Context<'_>) -> bool {
        self.sleep.deadline() <= due && !self.sleep.is_elapsed() && self.waker.will_wake(cx.waker())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::task::coop::{consume_budget, has_budget_remaining};

    use super::*;

    /// When `alarm` is ready, in milliseconds after `from`, for a bound of `after` from now; and how often
    /// the task looked.
    async fn rings(alarm: &mut Alarm, from: Instant, after: u64) -> (u128, u32) {
        let due = Instant::now() + Duration::from_millis(after);
        let mut looked = 0;
        poll_fn(|cx| {
            looked += 1;
            alarm.poll(due, cx)
        })
        .await;
        (from.elapsed().as_millis(), looked)
    }

    /// A bound of `after` that is polled once and not needed.
    async fn unneeded(alarm: &mut Alarm, after: u64) {
        let due = Instant::now() + Duration::from_millis(after);
        let pending = poll_fn(|cx| Poll::Ready(alarm.poll(due, cx).is_pending())).await;
        assert!(pending);
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_when_the_bound_is_due_whatever_it_was_set_to() {
        let (from, mut alarm) = (Instant::now(), Alarm::default());
        assert_eq!(rings(&mut alarm, from, 30).await, (30, 2));
        // Set for an earlier bound, which was not needed: one look more.
        unneeded(&mut alarm, 10).await;
        assert_eq!(rings(&mut alarm, from, 40).await, (70, 3));
        // For a later one.
        unneeded(&mut alarm, 1_000).await;
        assert_eq!(rings(&mut alarm, from, 5).await, (75, 2));
        // For the same instant.
        unneeded(&mut alarm, 25).await;
        assert_eq!(rings(&mut alarm, from, 25).await, (100, 2));
        // It rang while nobody waited.
        unneeded(&mut alarm, 10).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(rings(&mut alarm, from, 7).await, (127, 2));
        // At once.
        assert_eq!(rings(&mut alarm, from, 0).await.0, 127);
    }

    #[tokio::test(start_paused = true)]
    async fn it_wakes_the_task_that_waits_now() {
        let mut alarm = Alarm::default();
        unneeded(&mut alarm, 10).await;
        let from = Instant::now();
        let other = tokio::spawn(async move { rings(&mut alarm, from, 50).await });
        assert_eq!(other.await.unwrap(), (50, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_without_budget_is_woken_all_the_same() {
        let (from, mut alarm) = (Instant::now(), Alarm::default());
        while has_budget_remaining() {
            consume_budget().await;
        }
        assert_eq!(rings(&mut alarm, from, 30).await, (30, 2));
    }
}
