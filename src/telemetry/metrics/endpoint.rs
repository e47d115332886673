//! The state of each endpoint of an upstream.

use prometheus::{IntCounter, IntGauge};

use super::Metrics;
use super::live::{Label, NameGuard};
use crate::telemetry::families::{counter, gauge};

/// The handles of one endpoint's state.
#[derive(Debug)]
pub struct EndpointHealth {
    up: IntGauge,
    /// In the order in which the causes were given.
    ejections: Box<[IntCounter]>,
    _name: NameGuard,
}

impl Metrics {
    /// The handles of the state of an endpoint of `upstream`, which is up, with a counter for each of these causes of
    /// ejections.
    pub fn endpoint_health(&self, upstream: &str, name: &str, causes: &[&str]) -> EndpointHealth {
        let ejections = &self.families.ejections;
        let up = gauge(&self.families.endpoint_up, &[upstream, name]);
        up.set(1);
        EndpointHealth {
            up,
            ejections: causes
                .iter()
                .map(|cause| counter(ejections, &[upstream, name, cause]))
                .collect(),
            _name: self.live.hold(Label::Endpoint, name),
        }
    }
}

impl EndpointHealth {
    /// `mwl_endpoint_up`.
    pub fn set_up(&self, up: bool) {
        self.up.set(up.into());
    }

    /// `mwl_endpoint_ejections_total`, for the cause with this index in the list that was given.
    pub fn ejected(&self, cause: usize) {
        if let Some(counter) = self.ejections.get(cause) {
            counter.inc();
        }
    }
}
