//! What operators are told of breakers: `mwl_circuit_breaker_state`, and a line at each change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::state::{Breaker, Mode};
use crate::language::provider::LoadId;
use crate::language::temporal::Span;
use crate::telemetry::limiter::LogLimiter;
use crate::telemetry::metrics::{Metrics, StateGauge};

const OPENED: &str = "A circuit breaker opened.";
const TRIES: &str = "A circuit breaker lets probes through.";
const CLOSED: &str = "A circuit breaker closed.";

/// Who is told of the changes of one state.
#[derive(Debug)]
pub(super) struct Told {
    /// The gauges of the entries that have the state.
    gauges: Mutex<Vec<Weak<PlaceGauge>>>,
    opened: LogLimiter,
    tries: LogLimiter,
    closed: LogLimiter,
}

/// A route, and the place of an entry in it.
pub(super) type Place = (Arc<str>, Arc<str>);

/// The gauges of all places.
#[derive(Debug, Default)]
pub(super) struct Gauges(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The load that asked last.
    load: Option<LoadId>,
    gauges: HashMap<Place, Weak<PlaceGauge>>,
}

/// The gauge of a place. Two entries may stand there: one of a configuration whose last requests run, or that turns out to
/// be wrong, beside the one that is served. The gauge shows the state that is farther from closed.
#[derive(Debug)]
struct PlaceGauge {
    gauge: StateGauge,
    breakers: Mutex<Vec<Arc<Breaker>>>,
}

/// An entry's part of a gauge, as long as the entry is there.
#[derive(Debug)]
pub(super) struct Shown {
    gauge: Arc<PlaceGauge>,
    breaker: Arc<Breaker>,
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

    /// One more entry has the state.
    pub(super) fn shows(&self, shown: &Shown) {
        let gauge = Arc::downgrade(&shown.gauge);
        let mut gauges = lock(&self.gauges);
        // After a reload it may be there already.
        if gauges.iter().any(|known| known.ptr_eq(&gauge)) {
            return;
        }
        if gauges.len() == gauges.capacity() {
            gauges.retain(|gauge| gauge.strong_count() > 0);
        }
        gauges.push(gauge);
    }

    /// The state has changed to `mode`, by a run of this entry.
    pub(super) fn changed(&self, (route, entry): (&str, &str), mode: Mode, open_for: Duration) {
        let gauges: Vec<_> = lock(&self.gauges).iter().filter_map(Weak::upgrade).collect();
        for gauge in gauges {
            gauge.show();
        }
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

impl Gauges {
    /// Shows the state of `breaker` at `place`, beside others there, as long as what is returned lives.
    pub(super) fn show(
        &self,
        load: LoadId,
        place: Place,
        breaker: &Arc<Breaker>,
        metrics: &Metrics,
    ) -> Shown {
        let mut known = lock(&self.0);
        if known.load.replace(load) != Some(load) {
            known.gauges.retain(|_, gauge| gauge.strong_count() > 0);
        }
        let gauge = known.gauges.get(&place).and_then(Weak::upgrade).unwrap_or_else(|| {
            let gauge = metrics.circuit_breaker(&place.0, &place.1);
            let gauge = Arc::new(PlaceGauge { gauge, breakers: Mutex::default() });
            known.gauges.insert(place, Arc::downgrade(&gauge));
            gauge
        });
        drop(known);
        lock(&gauge.breakers).push(Arc::clone(breaker));
        gauge.show();
        Shown { gauge, breaker: Arc::clone(breaker) }
    }
}

impl PlaceGauge {
    fn show(&self) {
        let breakers = lock(&self.breakers);
        let modes = breakers.iter().map(|breaker| breaker.mode().number());
        self.gauge.set(modes.max().unwrap_or_default());
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let Self { gauge, breaker } = self;
        let mut breakers = lock(&gauge.breakers);
        let own = breakers.iter().position(|shown| Arc::ptr_eq(shown, breaker));
        if let Some(own) = own {
            breakers.swap_remove(own);
        }
        drop(breakers);
        gauge.show();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
