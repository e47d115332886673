//! The timeout of a body that makes no progress, or too little.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::BodyError;
use crate::proxy::settings::{BodyPatience, MinimumRate};

/// Measures the time since the last progress, and, where a minimum rate is set, all time that was waited. The timer is
/// created when a body first has to wait, so a body that is already there costs none.
#[derive(Debug)]
pub(crate) struct StallTimer {
    bound: Duration,
    pace: Option<Pace>,
    /// Created when the body first had nothing.
    timer: Option<Pin<Box<Sleep>>>,
    /// Since when the present wait lasts.
    since: Option<Instant>,
}

/// What a minimum rate is held against. Only time counts in which somebody waited for the body: whoever passes it on may
/// be slow, too.
#[derive(Debug)]
struct Pace {
    rate: MinimumRate,
    bytes: u64,
    waited: Duration,
}

impl StallTimer {
    /// Waits as long as `patience` says.
    pub(crate) fn new(patience: impl Into<BodyPatience>) -> Self {
        let BodyPatience { stall, rate } = patience.into();
        let pace = rate.map(|rate| Pace { rate, bytes: 0, waited: Duration::ZERO });
        Self { bound: stall, pace, timer: None, since: None }
    }

    /// Data arrived: the wait is over.
    pub(crate) const fn progress(&mut self) {
        self.since = None;
    }

    /// The same for a body whose pace counts: this many bytes arrived.
    pub(crate) fn arrived(&mut self, bytes: u64) {
        let since = self.since.take();
        if let Some(pace) = &mut self.pace {
            let waited = since.map(|since| since.elapsed()).unwrap_or_default();
            pace.waited = pace.waited.saturating_add(waited);
            pace.bytes = pace.bytes.saturating_add(bytes);
        }
    }

    /// No data arrived: ready, with the reason, when that has lasted for too long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        let left = self.pace.as_ref().map(Pace::left);
        let bound = left.map_or(self.bound, |left| left.min(self.bound));
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(bound)));
        if self.since.is_none() {
            let now = Instant::now();
            self.since = Some(now);
            timer.as_mut().reset(now.checked_add(bound).unwrap_or(now));
        }
        timer.as_mut().poll(cx).map(|()| match &self.pace {
            Some(pace) if bound < self.bound => BodyError::Slow(pace.rate),
            _ => BodyError::Stalled(self.bound),
        })
    }
}

impl Pace {
    fn left(&self) -> Duration {
        self.rate.patience(self.bytes).saturating_sub(self.waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_mins(1);

    /// How long a body lasts that brings `bytes` every `pause`, and why it ends.
    async fn lasts(
        bytes: u64,
        pause: Duration,
        rate: Option<u64>,
    ) -> Option<(Duration, BodyError)> {
        let rate = rate.and_then(MinimumRate::new);
        let mut timer = StallTimer::new(BodyPatience { stall: STALL, rate });
        let begun = Instant::now();
        for _ in 0..1000 {
            let waited = tokio::select! {
                biased;
                error = std::future::poll_fn(|cx| timer.poll(cx)) => Err(error),
                () = sleep(pause) => Ok(()),
            };
            match waited {
                Ok(()) => timer.arrived(bytes),
                Err(error) => return Some((begun.elapsed(), error)),
            }
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_a_second_is_no_stall_and_yet_too_slow_where_a_rate_is_wanted() {
        let second = Duration::from_secs(1);
        assert!(lasts(1, second, None).await.is_none());
        assert!(lasts(1000, second, Some(1000)).await.is_none());
        let (took, error) = lasts(500, second, Some(1000)).await.unwrap();
        assert!(matches!(error, BodyError::Slow(_)), "{error}");
        // Five seconds of grace, and half of each second after.
        assert!((9..=10).contains(&took.as_secs()), "{took:?}");
        let (took, error) = lasts(1, second, Some(1000)).await.unwrap();
        assert_eq!(error.to_string(), "the body came more slowly than 1000 bytes a second");
        assert_eq!(took.as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_is_told_from_slowness() {
        let (took, error) = lasts(1 << 20, STALL * 2, Some(1)).await.unwrap();
        assert!(took == Duration::from_secs(5) && matches!(error, BodyError::Slow(_)));
        let (took, error) = lasts(1 << 20, STALL * 2, None).await.unwrap();
        assert!(took == STALL && matches!(error, BodyError::Stalled(STALL)));
        let mut fast = StallTimer::new(BodyPatience { stall: STALL, rate: MinimumRate::new(1) });
        fast.arrived(1 << 20);
        let error = std::future::poll_fn(|cx| fast.poll(cx)).await;
        assert!(matches!(error, BodyError::Stalled(STALL)));
    }

    /// Time in which nobody wants the body is not the client's.
    #[tokio::test(start_paused = true)]
    async fn only_waiting_counts() {
        let mut timer =
            StallTimer::new(BodyPatience { stall: STALL, rate: MinimumRate::new(1000) });
        for _ in 0..100 {
            sleep(Duration::from_secs(10)).await;
            timer.arrived(1);
        }
        let begun = Instant::now();
        std::future::poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(5100));
    }
}
