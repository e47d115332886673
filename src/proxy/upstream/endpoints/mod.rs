//! The endpoints of one upstream, which all workers share, and what is known about each.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::proxy::settings;

/// The endpoints that one upstream has at present.
#[derive(Debug)]
pub(crate) struct Endpoints {
    present: ArcSwap<Vec<Arc<EndpointState>>>,
}

/// What all workers know about one endpoint. It lives as long as the upstream's settings do not change.
#[derive(Debug)]
pub(crate) struct EndpointState {
    /// Its URL as configured.
    pub(crate) at: settings::Endpoint,
}

impl Endpoints {
    /// The endpoints that `settings` lists, in order.
    pub(super) fn new(settings: &settings::Upstream) -> Self {
        let listed = settings.endpoints.iter().map(EndpointState::new).map(Arc::new);
        Self { present: ArcSwap::from_pointee(listed.collect()) }
    }

    /// The endpoints at this moment.
    pub(crate) fn present(&self) -> Arc<Vec<Arc<EndpointState>>> {
        self.present.load_full()
    }
}

impl EndpointState {
    fn new(at: &settings::Endpoint) -> Self {
        Self { at: at.clone() }
    }

    /// Its name in messages and metrics.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.at.authority
    }
}
