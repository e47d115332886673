//! What operators are told of breakers: `mwl_circuit_breaker_state`, and a line at each change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::state::Mode;
use crate::language::temporal::Span;
use crate::telemetry::limiter::LogLimiter;
use crate::telemetry::metrics::StateGauge;

/// Who is told of the changes of one state.
#[derive(Debug)]
pub(super) struct Told {
    /// The gauges of the entries that have the state.
    gauges: Mutex<Vec<Weak<Shown>>>,
    opened: LogLimiter,
    tries: LogLimiter,
    closed: LogLimiter,
}

/// The gauge of an entry, as long as the entry is there.
#[derive(Debug)]
pub(super) struct Shown {
    gauge: StateGauge,
    /// Whose value the gauge shows: after a reload another entry may stand at the same place.
    owner: Arc<AtomicU64>,
    own: u64,
}

impl Told {
    /// `about` tells the state from others.
    pub(super) fn new(about: &Arc<str>) -> Self {
        let limiter = |line| LogLimiter::new(line, Some(Arc::clone(about)));
        Self {
            gauges: Mutex::default(),
            opened: limiter(OPENED),
            tries: limiter(TRIES),
            closed: limiter(CLOSED),
        }
    }

    /// Shows `mode` for one more entry from now on.
    pub(super) fn shows(&self, shown: &Arc<Shown>, mode: Mode) {
        let mut gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        if gauges.len() == gauges.capacity() {
            gauges.retain(|gauge| gauge.strong_count() > 0);
        }
        gauges.push(Arc::downgrade(shown));
        shown.set(mode);
    }

    /// The state has changed to `mode`, by a run of this entry.
    pub(super) fn changed(&self, (route, entry): (&str, &str), mode: Mode, open_for: Duration) {
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.iter().filter_map(Weak::upgrade).for_each(|shown| shown.set(mode));
        drop(gauges);
        let limiter = match mode {
            Mode::Open => &self.opened,
            Mode::HalfOpen => &self.tries,
            Mode::Closed => &self.closed,
        };
        let Some(untold) = limiter.admits(Instant::now()) else {
            return;
        };
        match mode {
            Mode::Open => {
                let open_for = Span::from_duration(open_for);
                tracing::warn!(route, entry, %open_for, untold, "{OPENED}");
            }
            Mode::HalfOpen => tracing::info!(route, entry, untold, "{TRIES}"),
            Mode::Closed => tracing::info!(route, entry, untold, "{CLOSED}"),
        }
    }
}

const OPENED: &str = "A circuit breaker opened.";
const TRIES: &str = "A circuit breaker lets probes through.";
const CLOSED: &str = "A circuit breaker closed.";

impl Shown {
    /// The gauge shows the value of this from now on. `owner` is what all entries have that stood at this place.
    pub(super) fn new(gauge: StateGauge, owner: Arc<AtomicU64>) -> Arc<Self> {
        let own = owner.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Arc::new(Self { gauge, owner, own })
    }

    fn set(&self, mode: Mode) {
        if self.owner.load(Ordering::Relaxed) == self.own {
            self.gauge.set(mode.number());
        }
    }
}

/// An entry that is gone is not open.
impl Drop for Shown {
    fn drop(&mut self) {
        self.set(Mode::Closed);
    }
}
