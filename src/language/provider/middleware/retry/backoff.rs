//! The waits between runs: a schedule, and jitter over it.
//!
//! With d(n) = min(initial × rate^(n−1), max) for a policy's n-th gap, `none` waits d(n), `full` a
//! uniform draw from [0, d(n)], `equal` d(n)/2 plus a uniform draw from [0, d(n)/2], and `decorrelated` a
//! uniform draw from [initial, 3 × the previous draw], at most max; its first from [initial, 3 × initial].

use std::time::Duration;

use super::{span, wrong};
use crate::language::outcome::Failure;
use crate::language::value::Value;

/// A policy's `backoff`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    /// Nanoseconds, not negative.
    initial: f64,
    rate: f64,
    /// Nanoseconds; infinite where none is written.
    max: f64,
    jitter: Jitter,
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

    /// The wait of the `n`-th gap (from 1), and what is drawn from next time. `uniform` is a draw from
    /// [0, 1).
    pub(super) fn gap(&self, n: u32, drawn: Option<f64>, uniform: f64) -> (Duration, Option<f64>) {
        let exponent = i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX);
        let scheduled = match self.initial {
            // Zero times an infinite power is no wait, not a NaN.
            0.0 => 0.0,
            initial => (initial * self.rate.powi(exponent)).min(self.max),
        };
        let wait = match self.jitter {
            Jitter::None => scheduled,
            Jitter::Full => scheduled * uniform,
            Jitter::Equal => scheduled / 2.0 + scheduled / 2.0 * uniform,
            Jitter::Decorrelated => {
                let high = 3.0 * drawn.unwrap_or(self.initial);
                let spread = (high - self.initial).max(0.0);
                let wait = (self.initial + spread * uniform).min(self.max);
                return (duration(wait), Some(wait));
            }
        };
        (duration(wait), drawn)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a wait of more than 104 days may lose nanoseconds")]
fn nanos(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

/// Saturates where the schedule has grown beyond what a timer can wait.
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
        let waits = (1..=6).map(|n| backoff.gap(n, None, 0.5).0.as_secs());
        assert_eq!(waits.collect::<Vec<_>>(), [10, 20, 40, 80, 120, 120]);
    }

    #[test]
    fn a_rate_of_one_waits_the_same_each_time() {
        let backoff = backoff(1.0, 1.0, None, Jitter::None);
        assert_eq!(backoff.gap(1000, None, 0.0).0, Duration::from_secs(1));
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
            let scheduled = backoff(initial, rate, max, Jitter::None).gap(n, None, uniform).0;
            let full = backoff(initial, rate, max, Jitter::Full).gap(n, None, uniform).0;
            let equal = backoff(initial, rate, max, Jitter::Equal).gap(n, None, uniform).0;
            prop_assert!(full <= scheduled);
            prop_assert!(equal <= scheduled);
            prop_assert!(equal + Duration::from_nanos(2) >= scheduled / 2);
            if let Some(max) = max {
                prop_assert!(scheduled <= Duration::from_secs_f64(max) + Duration::from_nanos(1));
            }
        }

        #[test]
        fn the_schedule_never_shrinks(rate in 1.0..5.0_f64, n in 1_u32..500) {
            let backoff = backoff(0.25, rate, Some(60.0), Jitter::None);
            prop_assert!(backoff.gap(n, None, 0.0).0 <= backoff.gap(n + 1, None, 0.0).0);
        }

        #[test]
        fn decorrelated_draws_from_the_previous_draw(draws in prop::collection::vec(0.0..1.0_f64, 1..40)) {
            let backoff = backoff(1.0, 1.0, Some(20.0), Jitter::Decorrelated);
            let mut previous = None;
            for uniform in draws {
                let (wait, drawn) = backoff.gap(1, previous, uniform);
                let high = previous.map_or(3e9, |previous: f64| 3.0 * previous).min(20e9);
                prop_assert!(wait >= Duration::from_secs(1));
                prop_assert!(nanos(wait) <= high + 1.0);
                previous = drawn;
            }
        }
    }
}
