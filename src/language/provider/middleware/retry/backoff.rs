//! The waits between runs: a schedule with jitter.
//!
//! The n-th gap of a policy has the delay d(n) = min(initial × rate^(n−1), max). `none` waits d(n). `full`
//! waits a uniform draw from [0, d(n)]. `equal` waits d(n)/2 plus a uniform draw from [0, d(n)/2].
//! `decorrelated` waits a uniform draw from [initial, 3 × the previous draw], but at most max; the first is
//! from [initial, 3 × initial].

use std::fmt;
use std::time::Duration;

use super::{span, wrong};
use crate::language::outcome::Failure;
use crate::language::temporal::Span;
use crate::language::value::Value;

/// A policy's `backoff`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    /// Nanoseconds, not negative.
    initial: f64,
    rate: f64,
    /// Nanoseconds; infinite if it is not written.
    max: f64,
    jitter: Jitter,
}

/// One wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gap {
    /// How long it is.
    pub(super) wait: Duration,
    /// The range from which it was drawn, if it has jitter.
    pub(super) range: Option<(Duration, Duration)>,
    /// The draw on which the next decorrelated one depends, in nanoseconds.
    pub(super) drawn: Option<f64>,
}

/// A jitter mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jitter {
    None,
    Full,
    Equal,
    Decorrelated,
}

impl Backoff {
    /// Reads a `backoff` object.
    pub(super) fn read(written: &Value) -> Result<Self, Failure> {
        let nanos = |name: &str| {
            let value = written.get(name);
            value
                .map(|value| Ok::<_, Failure>(nanos(span(name, &value)?.to_duration())))
                .transpose()
        };
        let initial = nanos("initial")?
            .ok_or_else(|| wrong("initial", "an ISO 8601 duration", Value::Null))?;
        let rate = written.get("rate").unwrap_or(Value::Number(1.0));
        let rate = rate
            .as_number()
            .filter(|rate| *rate >= 1.0)
            .ok_or_else(|| wrong("rate", "a number of at least 1", rate))?;
        let jitter = written.get("jitter").unwrap_or_else(|| Value::from("none"));
        let jitter = match jitter.as_str() {
            Some("none") => Jitter::None,
            Some("full") => Jitter::Full,
            Some("equal") => Jitter::Equal,
            Some("decorrelated") => Jitter::Decorrelated,
            _ => return Err(wrong("jitter", "none, full, equal or decorrelated", jitter)),
        };
        Ok(Self { initial, rate, max: nanos("max")?.unwrap_or(f64::INFINITY), jitter })
    }

    /// The shortest that the first wait may be.
    pub(super) fn shortest(&self) -> Duration {
        let Gap { wait, range, .. } = self.gap(1, None, 0.0);
        range.map_or(wait, |(shortest, _)| shortest)
    }

    /// The wait of the `n`-th gap (from 1). `drawn` is the last draw of the policy, `uniform` a draw from [0,
    /// 1).
    pub(super) fn gap(&self, n: u32, drawn: Option<f64>, uniform: f64) -> Gap {
        let exponent = i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX);
        let scheduled = match self.initial {
            // Zero times an infinite power would be NaN.
            0.0 => 0.0,
            initial => (initial * self.rate.powi(exponent)).min(self.max),
        };
        let (low, high) = match self.jitter {
            Jitter::None => return Gap { wait: duration(scheduled), range: None, drawn },
            Jitter::Full => (0.0, scheduled),
            Jitter::Equal => (scheduled / 2.0, scheduled),
            Jitter::Decorrelated => (self.initial, 3.0 * drawn.unwrap_or(self.initial)),
        };
        let wait = (low + (high - low).max(0.0) * uniform).min(self.max);
        let range = Some((duration(low.min(self.max)), duration(high.min(self.max))));
        let drawn = if self.jitter == Jitter::Decorrelated { Some(wait) } else { drawn };
        Gap { wait: duration(wait), range, drawn }
    }
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waits {}", Span::from_duration(duration(self.initial)))?;
        if self.rate > 1.0 {
            write!(f, " ×{}", self.rate)?;
        }
        if self.max.is_finite() {
            write!(f, " up to {}", Span::from_duration(duration(self.max)))?;
        }
        match self.jitter {
            Jitter::None => Ok(()),
            Jitter::Full => f.write_str(", jitter full"),
            Jitter::Equal => f.write_str(", jitter equal"),
            Jitter::Decorrelated => f.write_str(", jitter decorrelated"),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a wait of more than 104 days may lose nanoseconds")]
fn nanos(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

/// Saturates if the schedule has grown beyond what a timer can wait.
fn duration(nanos: f64) -> Duration {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    Duration::from_nanos(nanos.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn backoff(initial: f64, rate: f64, max: Option<f64>, jitter: Jitter) -> Backoff {
        let max = max.map_or(f64::INFINITY, |max| max * 1e9);
        Backoff { initial: initial * 1e9, rate, max, jitter }
    }

    #[test]
    fn the_schedule_grows_to_its_cap() {
        let backoff = backoff(10.0, 2.0, Some(120.0), Jitter::None);
        let waits = (1..=6).map(|n| backoff.gap(n, None, 0.5).wait.as_secs());
        assert_eq!(waits.collect::<Vec<_>>(), [10, 20, 40, 80, 120, 120]);
    }

    #[test]
    fn a_rate_of_one_waits_the_same_each_time() {
        let backoff = backoff(1.0, 1.0, None, Jitter::None);
        assert_eq!(backoff.gap(1000, None, 0.0).wait, Duration::from_secs(1));
    }

    /// The mean of many draws is near the middle of their range.
    #[test]
    fn jitter_is_uniform() {
        use rand::{Rng, SeedableRng};
        const DRAWS: u32 = 10_000;
        let mean = |jitter, n| {
            let backoff = backoff(1.0, 2.0, Some(60.0), jitter);
            let mut random = rand::rngs::StdRng::seed_from_u64(7);
            let draw = |_| backoff.gap(n, None, random.random_range(0.0..1.0)).wait;
            let all: Duration = (0..DRAWS).map(draw).sum();
            (all / DRAWS).as_secs_f64()
        };
        for (jitter, n, wanted) in [
            (Jitter::None, 3, 4.0),
            (Jitter::Full, 3, 2.0),
            (Jitter::Equal, 3, 3.0),
            // The first is between the initial wait and three times that.
            (Jitter::Decorrelated, 1, 2.0),
            (Jitter::Full, 10, 30.0),
        ] {
            let mean = mean(jitter, n);
            assert!((mean / wanted - 1.0).abs() < 0.02, "{jitter:?} {n}: {mean}, not {wanted}");
        }
    }

    proptest! {
        #[test]
        fn every_wait_is_within_its_mode_s_bounds(
            initial in 0.0..1e5_f64,
            rate in 1.0..10.0_f64,
            max in proptest::option::of(0.0..1e6_f64),
            n in 1_u32..2000,
            uniform in 0.0..1.0_f64,
        ) {
            let scheduled = backoff(initial, rate, max, Jitter::None).gap(n, None, uniform).wait;
            let full = backoff(initial, rate, max, Jitter::Full).gap(n, None, uniform).wait;
            let equal = backoff(initial, rate, max, Jitter::Equal).gap(n, None, uniform).wait;
            prop_assert!(full <= scheduled);
            prop_assert!(equal <= scheduled);
            prop_assert!(equal + Duration::from_nanos(2) >= scheduled / 2);
            if let Some(max) = max {
                prop_assert!(scheduled <= Duration::from_secs_f64(max) + Duration::from_nanos(1));
            }
        }

        #[test]
        fn a_jittered_wait_lies_in_the_range_that_it_is_said_to_be_drawn_from(
            rate in 1.0..10.0_f64,
            n in 1_u32..40,
            previous in proptest::option::of(1e9..1e12_f64),
            uniform in 0.0..1.0_f64,
        ) {
            for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated] {
                let gap = backoff(1.0, rate, Some(600.0), jitter).gap(n, previous, uniform);
                let (low, high) = gap.range.unwrap();
                prop_assert!(low <= gap.wait && gap.wait <= high, "{jitter:?} {gap:?}");
            }
            let fixed = backoff(1.0, rate, Some(600.0), Jitter::None).gap(n, previous, uniform);
            prop_assert_eq!(fixed.range, None);
        }

        #[test]
        fn the_schedule_never_shrinks(rate in 1.0..5.0_f64, n in 1_u32..500) {
            let backoff = backoff(0.25, rate, Some(60.0), Jitter::None);
            prop_assert!(backoff.gap(n, None, 0.0).wait <= backoff.gap(n + 1, None, 0.0).wait);
        }

        #[test]
        fn decorrelated_draws_from_the_previous_draw(draws in prop::collection::vec(0.0..1.0_f64, 1..40)) {
            let backoff = backoff(1.0, 1.0, Some(20.0), Jitter::Decorrelated);
            let mut previous = None;
            for uniform in draws {
                let Gap { wait, range, drawn } = backoff.gap(1, previous, uniform);
                let (lowest, highest) = range.unwrap();
                prop_assert!(lowest <= wait && wait <= highest);
                let high = previous.map_or(3e9, |previous: f64| 3.0 * previous).min(20e9);
                prop_assert!(wait >= Duration::from_secs(1));
                prop_assert!(nanos(wait) <= high + 1.0);
                previous = drawn;
            }
        }
    }
}
