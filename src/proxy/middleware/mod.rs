//! The proxy's own middlewares, in the namespace `mwl-proxy`. To add one: a folder with its behaviour and its contract
//! document, and a line in [`ALL`].

mod circuit_breaker;
mod concurrency_limit;
mod failures;
mod fault;
mod idempotency;
mod installing;
mod rate_limit;
mod states;
mod written;

use std::sync::Arc;

use super::store::Stores;
use crate::language::provider::{Catalog, Draws, Installation, Middleware};
use crate::telemetry::metrics::Metrics;

/// A middleware of the proxy's own.
pub(super) struct Own {
    /// Makes it. It lives as long as the process, and configurations come and go around it.
    make: fn(Draws) -> Arc<dyn Middleware>,
}

/// What a load of a configuration lends to middlewares that keep state.
#[derive(Debug)]
pub(crate) struct EntryHost {
    metrics: Arc<Metrics>,
    stores: Stores,
    /// Whether it is a rehearsal, which asks no store.
    rehearsed: bool,
}

impl EntryHost {
    /// Of one load.
    pub(crate) fn new(metrics: &Arc<Metrics>, stores: Stores, rehearsed: bool) -> Self {
        Self { metrics: Arc::clone(metrics), stores, rehearsed }
    }
}

const ALL: &[Own] =
    &[circuit_breaker::OWN, concurrency_limit::OWN, fault::OWN, idempotency::OWN, rate_limit::OWN];

/// The providers that a configuration may name, each route's own `http` aside. With a `seed`, whatever they draw is the
/// same each time: for rehearsals.
pub fn catalog(seed: Option<u64>) -> Catalog {
    let mut catalog = Catalog::spec_defined(seed);
    for own in ALL {
        let added = catalog.add_middleware((own.make)(Draws::of(seed)));
        debug_assert_eq!(added, Ok(()), "the proxy's own middlewares do not fit together");
    }
    catalog
}

/// What the host lends to an entry.
fn entry_host<'a>(at: &Installation<'a>) -> Option<&'a EntryHost> {
    at.host.and_then(|host| host.host.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::provider::Contract;

    #[test]
    fn they_fit_together_and_each_document_is_read() {
        let catalog = catalog(None);
        let uris = catalog.contracts().filter(|contract| contract.uri.namespace() == "mwl-proxy");
        let documents = uris.map(|contract| contract.document.to_string());
        let read: Vec<_> = documents.map(|document| Contract::parse(&document).err()).collect();
        assert_eq!(read, vec![None; ALL.len()]);
    }
}
