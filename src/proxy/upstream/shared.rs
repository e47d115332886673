//! What all workers share of an upstream. It outlives a reload that leaves the upstream's settings as they are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::time::Instant;

use super::capacity::Places;
use super::connect_error::ConnectError;
use super::endpoints::Endpoints;
use super::name_cache::NameCache;
use super::retry_budget::RetryBudget;
use super::supervision::Supervision;
use crate::proxy::settings;
use crate::telemetry::limiter::LogLimiter;
use crate::telemetry::metrics::{Metrics, UpstreamMetrics};

/// One upstream, as all workers see it.
#[derive(Debug)]
pub(crate) struct SharedUpstream {
    /// The configuration.
    pub(crate) settings: Arc<settings::Upstream>,
    /// Its gauges.
    pub(crate) metrics: Arc<UpstreamMetrics>,
    /// How many requests may be at it.
    pub(super) places: Arc<Places>,
    /// Its endpoints.
    pub(crate) endpoints: Endpoints,
    /// What is left of its retries, if they have a budget.
    pub(crate) retry_budget: Option<Arc<RetryBudget>>,
    /// The addresses of their names.
    pub(super) names: NameCache,
    /// Who looks after its endpoints, if anybody does.
    pub(super) supervision: Supervision,
    /// Limits how many failed lookups are logged.
    lookups: LogLimiter,
}

/// The upstreams of a process. A load whose settings of an upstream equal those of a load that is still in use gets the
/// same [`SharedUpstream`].
#[derive(Debug, Default)]
pub struct UpstreamRegistry {
    /// By name. There are several of one name while requests of older loads run.
    known: Mutex<HashMap<Arc<str>, Vec<Weak<SharedUpstream>>>>,
}

impl SharedUpstream {
    fn new(settings: settings::Upstream, metrics: &Arc<Metrics>) -> Self {
        Self {
            metrics: metrics.upstream(&settings.name),
            places: Places::new(settings.max_requests, settings.max_wait),
            retry_budget: settings.retry_budget.map(RetryBudget::new).map(Arc::new),
            endpoints: Endpoints::new(&settings, metrics),
            names: NameCache::new(settings.endpoints.len()),
            supervision: Supervision::default(),
            lookups: LogLimiter::new(
                "A name was not found; its last addresses are used.",
                Some(Arc::clone(&settings.name)),
            ),
            settings: Arc::new(settings),
        }
    }

    /// A lookup of `host` has failed, and its last addresses are used.
    pub(super) fn kept(&self, host: &str, error: &ConnectError) {
        self.metrics.lookup_failed();
        if let Some(untold) = self.lookups.admits(Instant::now()) {
            let upstream = &self.settings.name;
            tracing::warn!(%upstream, host, %error, untold, "A name was not found; its last addresses are used.");
        }
    }
}

impl UpstreamRegistry {
    /// The upstream with these `settings`: the one that is there, or else a new one, whose gauges are in `metrics`.
    pub(crate) fn upstream(
        &self,
        settings: settings::Upstream,
        metrics: &Arc<Metrics>,
    ) -> Arc<SharedUpstream> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, all| {
            all.retain(|one| one.strong_count() > 0);
            !all.is_empty()
        });
        let all = known.entry(Arc::clone(&settings.name)).or_default();
        let same = |one: &Arc<SharedUpstream>| *one.settings == settings;
        if let Some(same) = all.iter().filter_map(Weak::upgrade).find(same) {
            return same;
        }
        let made = Arc::new(SharedUpstream::new(settings, metrics));
        all.push(Arc::downgrade(&made));
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::upstream::testing::settings;

    #[test]
    fn a_load_with_equal_settings_gets_the_same_upstream() {
        let (known, metrics) = (UpstreamRegistry::default(), Metrics::new());
        let first = known.upstream(settings(&["a:1"]), &metrics);
        let changed = known.upstream(settings(&["b:1"]), &metrics);
        assert!(!Arc::ptr_eq(&first, &changed));
        // One that a refused load replaced for a moment is still the same.
        for _ in 0..100 {
            assert!(Arc::ptr_eq(&first, &known.upstream(settings(&["a:1"]), &metrics)));
        }
        let ended = Arc::downgrade(&first);
        drop(first);
        assert!(ended.upgrade().is_none());
        assert_eq!(known.upstream(settings(&["a:1"]), &metrics).endpoints.present().len(), 1);
    }
}
