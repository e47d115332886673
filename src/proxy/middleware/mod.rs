//! The proxy's own middlewares, in the namespace `mwl-proxy`. To add one: a folder with its behaviour and its contract
//! document, and a line in [`ALL`].

mod circuit_breaker;
mod concurrency_limit;
mod failures;
mod fault;
mod idempotency;
mod known;
mod rate_limit;
mod states;
mod written;

use std::sync::Arc;

use self::known::Known;
use super::store::{Store, Stores};
use crate::language::provider::{Catalog, Draws, Installation, Middleware};
use crate::language::value::Value;
use crate::source::{Diagnostic, Diagnostics, did_you_mean};
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

/// The store that an entry names, if it names one. `None` if there is none of that name, which is reported.
///
/// A definition that is run without a host has no stores, and a rehearsal asks none: what an entry keeps is then its own.
#[expect(clippy::option_option, reason = "whether there is one, of what is right")]
fn installed_store(
    at: &Installation<'_>,
    with: &Value,
    found: &mut Diagnostics,
) -> Option<Option<Arc<Store>>> {
    let named = with.get("store").filter(|named| !named.is_null());
    let (Some(named), Some(host)) = (named, entry_host(at)) else {
        return Some(None);
    };
    let named = named.as_str().unwrap_or_default();
    if let Some(store) = host.stores.get(named) {
        return Some(Some(Arc::clone(store)).filter(|_| !host.rehearsed));
    }
    let message = format!("there is no store `{named}`");
    let help = did_you_mean(named, host.stores.names())
        .unwrap_or_else(|| "add it to `stores` of the configuration".to_owned());
    found.push(Diagnostic::error("unknown-store", at.place("store"), message).with_help(help));
    None
}

/// Whether two entries keep what they keep at one place.
fn same_store(one: Option<&Arc<Store>>, other: Option<&Arc<Store>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
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
