//! What operators have switched, for a time or until they switch it back: retries of a route, endpoints of an upstream.
//!
//! A switch is known by its kind and by the name of what it concerns. It belongs to the process, not to a configuration, so it
//! outlives reloads, also one that removes what it concerns for a while. All that are set are in [`Switches::standing`] and
//! `mwl_operator_switches{kind,what}`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::IntGaugeVec;
use serde_json::{Value as Json, json};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::families::gauge;

/// What is switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwitchKind {
    /// The retries of a route are off.
    Retries,
    /// An endpoint gets no new requests.
    Drain,
}

/// One switch. Whoever is concerned keeps it, and reads it without a lock.
#[derive(Debug)]
pub struct Switch {
    origin: Instant,
    /// Until when it is set, in nanoseconds since `origin`; 0 if it is not, [`FOREVER`] if it does not end by itself.
    until: AtomicU64,
}

/// The value of a switch that does not end by itself.
const FOREVER: u64 = u64::MAX;

/// All switches of a process.
#[derive(Debug)]
pub struct Switches {
    origin: Instant,
    family: IntGaugeVec,
    state: Mutex<SwitchesState>,
}

type Key = (SwitchKind, Arc<str>);

#[derive(Debug, Default)]
struct SwitchesState {
    /// Those that are set or that somebody keeps.
    known: BTreeMap<Key, Arc<Switch>>,
    /// Those that have a series, each with the task that ends it, if it ends by itself.
    shown: BTreeMap<Key, Option<AbortHandle>>,
}

/// A switch that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingSwitch {
    /// What is switched.
    pub kind: SwitchKind,
    /// The route, or `upstream/endpoint`.
    pub what: Arc<str>,
    /// How long it goes on; `None`: until somebody switches it back.
    pub left: Option<Duration>,
}

impl SwitchKind {
    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retries => "retries",
            Self::Drain => "drain",
        }
    }
}

impl Switch {
    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        match self.until.load(Ordering::Relaxed) {
            0 => false,
            FOREVER => true,
            until => nanos(self.origin.elapsed()) < until,
        }
    }

    /// How long it goes on; `None`: until it is cleared.
    fn left(&self) -> Option<Duration> {
        let until = self.until.load(Ordering::Relaxed);
        let left = until.saturating_sub(nanos(self.origin.elapsed()));
        (until != FOREVER).then(|| Duration::from_nanos(left))
    }
}

impl Switches {
    pub(super) fn new(family: IntGaugeVec) -> Self {
        Self { origin: Instant::now(), family, state: Mutex::default() }
    }

    /// The switch of this kind and name, set or not.
    pub fn of(&self, kind: SwitchKind, what: &Arc<str>) -> Arc<Switch> {
        let SwitchesState { known, .. } = &mut *self.lock();
        known.retain(|_, switch| Arc::strong_count(switch) > 1 || switch.is_set());
        let new = || Arc::new(Switch { origin: self.origin, until: AtomicU64::new(0) });
        Arc::clone(known.entry((kind, Arc::clone(what))).or_insert_with(new))
    }

    /// Sets a switch for so long; `None`: until it is cleared. What was set before ends.
    pub fn set(self: &Arc<Self>, kind: SwitchKind, what: &Arc<str>, length: Option<Duration>) {
        let switch = self.of(kind, what);
        let until = length.map_or(FOREVER, |length| {
            nanos(self.origin.elapsed().saturating_add(length)).clamp(1, FOREVER - 1)
        });
        switch.until.store(until, Ordering::Relaxed);
        gauge(&self.family, &[kind.as_str(), what]).set(1);
        let (kind_name, seconds) = (kind.as_str(), length.map(|length| length.as_secs_f64()));
        tracing::warn!(kind = kind_name, %what, seconds, "An operator has set a switch.");
        // Outside of a runtime nobody waits for the end, and the next reader notices it.
        let runtime = Handle::try_current().ok();
        let ending = length.zip(runtime).map(|(length, runtime)| {
            let (all, what) = (Arc::clone(self), Arc::clone(what));
            let ends = async move {
                sleep(length).await;
                all.end_series();
                tracing::warn!(kind = kind.as_str(), %what, "A switch has ended by itself.");
            };
            runtime.spawn(ends).abort_handle()
        });
        if let Some(Some(before)) = self.lock().shown.insert((kind, Arc::clone(what)), ending) {
            before.abort();
        }
    }

    /// Clears a switch. Returns false if it was not set.
    pub fn clear(&self, kind: SwitchKind, what: &Arc<str>) -> bool {
        let switch = self.of(kind, what);
        let was = switch.is_set();
        switch.until.store(0, Ordering::Relaxed);
        if was {
            tracing::warn!(kind = kind.as_str(), %what, "An operator has cleared a switch.");
        }
        if let Some(Some(ending)) = self.lock().shown.get(&(kind, Arc::clone(what))) {
            ending.abort();
        }
        self.end_series();
        was
    }

    /// All that are set, and the time that each has left.
    pub fn standing(&self) -> Vec<StandingSwitch> {
        let state = self.lock();
        let set = state.known.iter().filter(|(_, switch)| switch.is_set());
        let standing = set.map(|((kind, what), switch)| {
            let (what, left) = (Arc::clone(what), switch.left());
            StandingSwitch { kind: *kind, what, left }
        });
        standing.collect()
    }

    /// Removes the series of switches that have ended.
    pub(super) fn end_series(&self) {
        let SwitchesState { known, shown } = &mut *self.lock();
        shown.retain(|key, _| {
            let set = known.get(key).is_some_and(|switch| switch.is_set());
            if !set {
                // An error means that it is gone already.
                self.family.remove_label_values(&[key.0.as_str(), &key.1]).ok();
            }
            set
        });
    }

    fn lock(&self) -> MutexGuard<'_, SwitchesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StandingSwitch {
    /// As the admin address shows it.
    pub fn to_json(&self) -> Json {
        json!({
            "kind": self.kind.as_str(),
            "what": *self.what,
            "secondsLeft": self.left.map(|left| left.as_secs().max(1)),
        })
    }
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(FOREVER)
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Metrics;
    use super::*;

    const SERIES: &str = r#"mwl_operator_switches{kind="retries",what="r"} 1"#;

    #[tokio::test(start_paused = true)]
    async fn a_switch_ends_by_itself() {
        let metrics = Metrics::new();
        let (switches, r) = (metrics.switches(), Arc::<str>::from("r"));
        let switch = switches.of(SwitchKind::Retries, &r);
        assert!(!switch.is_set());
        switches.set(SwitchKind::Retries, &r, Some(Duration::from_mins(1)));
        assert!(switch.is_set());
        assert!(metrics.render().contains(SERIES));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(switch.is_set());
        let standing = switches.standing();
        assert_eq!(standing[0].left, Some(Duration::from_secs(1)));
        assert_eq!(
            standing[0].to_json(),
            json!({ "kind": "retries", "what": "r", "secondsLeft": 1 })
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!switch.is_set());
        assert_eq!(switches.standing(), []);
        assert!(!metrics.render().contains("mwl_operator_switches"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_switch_that_is_set_outlives_whom_it_concerns() {
        let metrics = Metrics::new();
        let (switches, r) = (metrics.switches(), Arc::<str>::from("r"));
        switches.set(SwitchKind::Drain, &r, None);
        for other in ["a", "b", "c"] {
            drop(switches.of(SwitchKind::Retries, &other.into()));
        }
        assert_eq!(switches.lock().known.len(), 2);
        assert!(switches.of(SwitchKind::Drain, &r).is_set());
        assert!(switches.clear(SwitchKind::Drain, &r));
        assert!(!switches.clear(SwitchKind::Drain, &r));
        assert!(!metrics.render().contains("mwl_operator_switches"));
        drop(switches.of(SwitchKind::Retries, &"a".into()));
        assert_eq!(switches.lock().known.len(), 1);
    }
}
