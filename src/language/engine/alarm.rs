//! One timer for the bounds of an execution, and for those of later executions on the same task.
//!
//! A bound hardly ever fires, and to set and cancel a timer for each costs more than everything else that a
//! policy does. So a timer that is set stays set, whatever happens to its bound. If the next bound is due
//! later, there is nothing to do: the timer wakes the task too early, and the task then sets it to the bound
//! that it waits for by then. Bounds still fire at their own instants. The price is one useless wake-up for
//! each timer that was set and not needed.
//!
//! When the process did not run for a while (it was stopped, or its machine was), a bound may be due long since,
//! and what it bounds may be ready without anybody having looked. So a bound that is late gives way once: what
//! is ready is found first.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until};

/// A bound that fires so long after it was due is late: the process did not run meanwhile.
const LATE: Duration = Duration::from_millis(50);

/// A timer that one task keeps from one execution to the next.
#[derive(Debug, Default)]
pub struct Alarm {
    set: Option<Set>,
    /// When the late bound was due that gave way last.
    gave_way: Option<Instant>,
}

/// A timer that was set.
#[derive(Debug)]
struct Set {
    sleep: Pin<Box<Sleep>>,
    /// The task that it wakes.
    waker: Waker,
}

impl Alarm {
    /// Ready once `due` has come. The task that polls is woken then, or earlier.
    pub(super) fn poll(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        match &self.set {
            Some(set) if set.wakes(due, cx) => Poll::Pending,
            _ => {
                ready!(self.set(due, cx));
                self.give_way(due, cx)
            }
        }
    }

    /// Ready at once, unless `due` is long past: then it is after the runtime has looked at its sockets.
    fn give_way(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if due.elapsed() < LATE || self.gave_way.replace(due) == Some(due) {
            return Poll::Ready(());
        }
        pin!(yield_now()).poll(cx)
    }

    fn set(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let set = match self.set.take() {
            Some(Set { mut sleep, .. }) => {
                sleep.as_mut().reset(due);
                self.set.insert(Set { sleep, waker })
            }
            None => self.set.insert(Set { sleep: Box::pin(sleep_until(due)), waker }),
        };
        // Outside the task's budget: a timer whose poll is postponed would not know which task to wake.
        pin!(unconstrained(set.sleep.as_mut())).poll(cx)
    }
}

impl Set {
    /// Whether it will wake the task of `cx` at `due` or earlier.
    fn wakes(&self, due: Instant, cx: &Context<'_>) -> bool {
        self.sleep.deadline() <= due && !self.sleep.is_elapsed() && self.waker.will_wake(cx.waker())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixStream;
    use tokio::task::coop::{consume_budget, has_budget_remaining};

    use super::*;
    use crate::language::engine::scope::Scope;
    use crate::language::outcome::Failure;

    /// When `alarm` is ready for a bound that is due `after` milliseconds from now: in milliseconds since
    /// `from`. And how often the task was polled.
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

    /// Polls once for a bound that is due after `after` milliseconds and is then not needed.
    async fn unneeded(alarm: &mut Alarm, after: u64) {
        let due = Instant::now() + Duration::from_millis(after);
        let pending = poll_fn(|cx| Poll::Ready(alarm.poll(due, cx).is_pending())).await;
        assert!(pending);
    }

    #[tokio::test(start_paused = true)]
    async fn it_fires_when_the_bound_is_due_whatever_it_was_set_to() {
        let (from, mut alarm) = (Instant::now(), Alarm::default());
        assert_eq!(rings(&mut alarm, from, 30).await, (30, 2));
        // It was set for an earlier bound, which was not needed: one more poll.
        unneeded(&mut alarm, 10).await;
        assert_eq!(rings(&mut alarm, from, 40).await, (70, 3));
        // It was set for a later bound.
        unneeded(&mut alarm, 1_000).await;
        assert_eq!(rings(&mut alarm, from, 5).await, (75, 2));
        // It was set for the same instant.
        unneeded(&mut alarm, 25).await;
        assert_eq!(rings(&mut alarm, from, 25).await, (100, 2));
        // It fired while nobody waited.
        unneeded(&mut alarm, 10).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(rings(&mut alarm, from, 7).await, (127, 2));
        // The bound is due at once.
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

    #[tokio::test(start_paused = true)]
    async fn a_bound_that_is_late_gives_way_once_to_what_is_ready() {
        let (from, mut alarm) = (Instant::now(), Alarm::default());
        let due = from + Duration::from_secs(1);
        tokio::time::advance(Duration::from_millis(1049)).await;
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll(due, cx).is_ready())).await);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll(due, cx).is_pending())).await);
        poll_fn(|cx| alarm.poll(due, cx)).await;
        assert_eq!(from.elapsed(), Duration::from_millis(1050));
    }

    /// The answer is in the socket when the process goes on, but the runtime looks at its timers first.
    #[tokio::test(start_paused = true)]
    async fn what_arrived_during_a_stall_is_found_before_the_bound_fires() {
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut near = UnixStream::from_std(near).unwrap();
        let mut scope = Scope::root(None, Alarm::default());
        let why = Failure::error("A.B", "too late");
        scope.impose(Some(Instant::now() + Duration::from_secs(1)), why.into());
        let mut leaf = pin!(scope.leaf(Box::pin(near.read_u8())));
        assert!(poll_fn(|cx| Poll::Ready(leaf.as_mut().poll(cx).is_pending())).await);
        tokio::time::advance(Duration::from_secs(3)).await;
        far.write_all(b"a").unwrap();
        assert_eq!(leaf.await.unwrap().unwrap(), b'a');
    }
}
