//! Finds how many runs may go on at once: the gradient algorithm, as published with Netflix' `concurrency-limits` and
//! used by Envoy's adaptive concurrency.
//!
//! While runs take as long as they do without a queue (the base), more may go on; when they take longer, they wait for
//! each other somewhere, and the limit shrinks by that gradient: `limit × 1.1 × base ÷ mean`. Three things are our own:
//!
//! - The limit grows towards what Little's law says of the rate at which runs end (rate × base), so that it does not
//!   overshoot.
//! - The base is measured now and then: for some hundred runs with half the limit, at which no queue is left.
//! - A limit that shrinks in vain, because runs go on taking as long, goes back to where it was: the base has changed.
//!
//! A run only adds to a few counters. Each tenth of a second, or when enough runs have ended, one of them computes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::places::Went;
use super::settings::Range;

/// How long a window is at least.
const WINDOW: Duration = Duration::from_millis(100);
/// How many runs end in it at least.
const RUNS: u32 = 50;
/// Unless it takes so long; then fewer will do.
const LONG_WINDOW: Duration = Duration::from_secs(5);
const FEW_RUNS: u32 = 10;
/// How much longer than the base runs may take.
const GAIN: f64 = 1.1;
/// How much a window counts beside those before it.
const WEIGHT: f64 = 0.25;
/// The most that the limit shrinks at a time, and when runs fail.
const SHRINKS: f64 = 0.9;
/// The least that it grows at a time.
const GROWS: f64 = 0.25;
/// How often the base is measured; sooner, when it has changed much.
const MEASURED: f64 = 30.0;
const SOONER: f64 = 3.0;
/// By how many runs, and for how many windows at most. The first of them still has the old queue.
const MEASURING_RUNS: f64 = 400.0;
const MEASURING_WINDOWS: u32 = 3;
/// A share of failed runs that is no accident.
const BAD: f64 = 0.1;

/// What finds the limit.
#[derive(Debug)]
pub(super) struct Gradient {
    origin: Instant,
    /// When the window began, in nanoseconds after `origin`.
    begun: AtomicU64,
    well: AtomicU32,
    badly: AtomicU32,
    /// How long those took together that went well, in microseconds.
    took: AtomicU64,
    /// The most that went on at once.
    peak: AtomicUsize,
    found: Mutex<Found>,
}

/// What a window has shown.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// In seconds.
    length: f64,
    well: f64,
    badly: f64,
    /// The mean of those that went well, in seconds.
    mean: f64,
    peak: f64,
}

/// What is known so far.
#[derive(Debug)]
struct Found {
    min: f64,
    max: f64,
    limit: f64,
    /// How long a run takes without a queue, in seconds; the sum and count of runs until it is known.
    base: f64,
    first: (f64, f64),
    /// Both over some windows; 0 when they begin anew.
    mean: f64,
    rate: f64,
    /// Since the base was measured, in seconds.
    since: f64,
    measuring: Option<Measuring>,
    /// The limit at which runs took longest since it began to shrink, and how long.
    slowest: Option<(f64, f64)>,
}

/// The base is being measured.
#[derive(Clone, Copy, Debug)]
struct Measuring {
    /// The limit that comes back afterwards.
    limit: f64,
    windows: u32,
    took: f64,
    runs: f64,
}

impl Gradient {
    pub(super) fn new(range: Range) -> Self {
        Self {
            origin: Instant::now(),
            begun: AtomicU64::new(0),
            well: AtomicU32::new(0),
            badly: AtomicU32::new(0),
            took: AtomicU64::new(0),
            peak: AtomicUsize::new(0),
            found: Mutex::new(Found::new(range)),
        }
    }

    /// A run begins `now`, so that so many go on. When that is, in nanoseconds after `origin`.
    pub(super) fn begins(&self, at_once: usize, now: Instant) -> u64 {
        // Read first: a word that all workers write at each run would travel between them.
        if at_once > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(at_once, Ordering::Relaxed);
        }
        self.nanos(now)
    }

    /// A run has ended that had `begun` then. The limit, if it was computed anew.
    pub(super) fn ended(&self, begun: u64, went: Went) -> Option<usize> {
        let now = self.nanos(Instant::now());
        self.ended_at(now, now.saturating_sub(begun), went)
    }

    fn nanos(&self, at: Instant) -> u64 {
        let after = at.saturating_duration_since(self.origin);
        u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The same at `now`. It `took` so many nanoseconds.
    fn ended_at(&self, now: u64, took: u64, went: Went) -> Option<usize> {
        let runs = match went {
            Went::Well => {
                self.took.fetch_add(took / 1_000, Ordering::Relaxed);
                self.well.fetch_add(1, Ordering::Relaxed) + self.badly.load(Ordering::Relaxed)
            }
            Went::Badly => {
                self.badly.fetch_add(1, Ordering::Relaxed) + self.well.load(Ordering::Relaxed)
            }
        };
        let runs = runs.saturating_add(1);
        if runs < FEW_RUNS {
            return None;
        }
        let length = now.saturating_sub(self.begun.load(Ordering::Relaxed));
        let length = Duration::from_nanos(length);
        let whole = (runs >= RUNS && length >= WINDOW) || length >= LONG_WINDOW;
        if !whole {
            return None;
        }
        // Whoever comes meanwhile goes on: the counters keep what it added.
        let mut found = self.found.try_lock().ok()?;
        self.begun.store(now, Ordering::Relaxed);
        let well = f64::from(self.well.swap(0, Ordering::Relaxed));
        let badly = f64::from(self.badly.swap(0, Ordering::Relaxed));
        #[expect(clippy::cast_precision_loss, reason = "a mean, and a count of runs")]
        let (took, peak) = (
            self.took.swap(0, Ordering::Relaxed) as f64 / 1e6,
            self.peak.swap(0, Ordering::Relaxed) as f64,
        );
        let mean = if well > 0.0 { took / well } else { 0.0 };
        found.update(Sample { length: length.as_secs_f64(), well, badly, mean, peak });
        Some(found.whole())
    }
}

impl Found {
    fn new(Range { initial, min, max }: Range) -> Self {
        Self {
            min: min.into(),
            max: max.into(),
            limit: initial.into(),
            base: 0.0,
            first: (0.0, 0.0),
            mean: 0.0,
            rate: 0.0,
            since: 0.0,
            measuring: None,
            slowest: None,
        }
    }

    /// The limit.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between `min` and `max`, which are 32 bits"
    )]
    fn whole(&self) -> usize {
        self.limit.max(1.0) as usize
    }

    fn update(&mut self, sample: Sample) {
        self.since += sample.length;
        if let Some(measuring) = self.measuring.take() {
            self.measure(measuring, sample);
        } else if sample.badly > BAD * (sample.badly + sample.well) {
            // Runs that fail say nothing of how long others take.
            self.set(self.limit * SHRINKS);
        } else if self.first.1 < MEASURING_RUNS {
            let (took, runs) = self.first;
            self.first = (took + sample.mean * sample.well, runs + sample.well);
            self.base = self.first.0 / self.first.1.max(1.0);
        } else {
            self.adapt(sample);
        }
    }

    fn adapt(&mut self, Sample { length, well, mean, peak, .. }: Sample) {
        let smooth = |old: f64, new: f64| if old > 0.0 { old + WEIGHT * (new - old) } else { new };
        self.mean = smooth(self.mean, mean);
        self.rate = smooth(self.rate, well / length.max(f64::MIN_POSITIVE));
        if self.mean < 0.9 * self.base {
            self.base += 0.1 * (self.mean - self.base);
        }
        if peak >= self.limit - 1.0 {
            let gradient = GAIN * self.base / self.mean.max(f64::MIN_POSITIVE);
            if gradient >= 1.0 {
                self.grow();
            } else {
                self.shrink(gradient, mean);
            }
        }
        if self.since > MEASURED {
            self.measuring =
                Some(Measuring { limit: self.limit, windows: 0, took: 0.0, runs: 0.0 });
            self.set(self.limit / 2.0);
        }
    }

    fn grow(&mut self) {
        let wanted = (self.rate * self.base * GAIN).min(self.limit * 1.25 + 1.0);
        let next = wanted.max(self.limit + GROWS);
        if next > self.limit * 1.05 {
            self.slowest = None;
        }
        self.set(next);
    }

    fn shrink(&mut self, gradient: f64, latest: f64) {
        let next = self.limit * gradient.max(SHRINKS);
        match self.slowest {
            Some((limit, mean)) if self.mean <= mean => {
                // Nothing got faster, so there is no queue: a run takes longer now.
                let in_vain = self.mean > 0.88 * mean && latest > 0.88 * mean;
                if self.limit < 0.7 * limit && in_vain {
                    self.base = self.mean;
                    self.slowest = None;
                    self.set(limit);
                    return;
                }
            }
            _ => self.slowest = Some((self.limit, self.mean)),
        }
        self.set(next);
    }

    fn measure(&mut self, mut measuring: Measuring, Sample { well, mean, .. }: Sample) {
        measuring.windows += 1;
        if measuring.windows > 1 {
            measuring.took += mean * well;
            measuring.runs += well;
        }
        if measuring.runs < MEASURING_RUNS && measuring.windows < MEASURING_WINDOWS {
            self.measuring = Some(measuring);
            return;
        }
        self.since = 0.0;
        if measuring.runs > 0.0 {
            let measured = measuring.took / measuring.runs;
            if (measured - self.base).abs() > 0.3 * self.base {
                self.base = measured;
                self.since = MEASURED - SOONER;
            } else {
                self.base += 0.3 * (measured - self.base);
            }
        }
        (self.mean, self.rate, self.slowest) = (0.0, 0.0, None);
        self.set(measuring.limit);
    }

    fn set(&mut self, limit: f64) {
        self.limit = limit.clamp(self.min, self.max);
    }
}

#[cfg(test)]
mod tests;
