//! The counters of a store.

use std::sync::Arc;

use prometheus::IntCounter;

use super::Metrics;
use super::live::{Label, LiveNames, NameGuard};
use crate::telemetry::families::counter;

/// The handles of one store.
#[derive(Debug)]
pub struct StoreMetrics {
    errors: IntCounter,
    names: Arc<LiveNames>,
    _name: NameGuard,
}

impl Metrics {
    /// The handles of a store.
    pub fn store(&self, name: &str) -> StoreMetrics {
        StoreMetrics {
            errors: counter(&self.families.store_errors, &[name]),
            names: Arc::clone(&self.live),
            _name: self.live.hold(Label::Store, name),
        }
    }
}

impl StoreMetrics {
    /// `mwl_store_errors_total`.
    pub fn failed(&self) {
        self.errors.inc();
    }

    /// Whether `metrics` show them.
    pub fn are_of(&self, metrics: &Metrics) -> bool {
        Arc::ptr_eq(&self.names, &metrics.live)
    }
}

/// Why an answer that was to be kept is not.
const LOST: [&str; 3] = ["evicted", "tooLarge", "lapsed"];

/// The handles of an entry that keeps answers.
#[derive(Debug)]
pub struct AnswerMetrics {
    lost: [IntCounter; 3],
    _name: NameGuard,
}

impl Metrics {
    /// The handles of the entry at a place of a route that keeps answers.
    pub fn answers(&self, route: &str, entry: &str) -> AnswerMetrics {
        AnswerMetrics {
            lost: LOST.map(|why| counter(&self.families.lost_answers, &[route, entry, why])),
            _name: self.live.hold(Label::Route, route),
        }
    }
}

impl AnswerMetrics {
    /// `mwl_idempotency_answers_lost_total`: so many, for the reason at this place of the list: `evicted`, `tooLarge`,
    /// `lapsed`.
    pub fn lost(&self, why: usize, count: usize) {
        if let Some(lost) = self.lost.get(why) {
            lost.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        }
    }
}
