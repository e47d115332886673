//! The proxy's own middlewares, in the namespace `mwl-proxy`. To add one: a folder with its behaviour and its contract
//! document, and a line in [`ALL`].

mod circuit_breaker;
mod concurrency_limit;
mod failures;
mod fault;
mod states;
mod written;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::code::Meaning;
use crate::language::outcome::Failure;
use crate::language::provider::{Catalog, Draws, Middleware};
use crate::language::temporal::Span;
use crate::telemetry::metrics::Metrics;

/// A middleware of the proxy's own.
pub(super) struct Own {
    /// Makes it. It lives as long as the process, and configurations come and go around it.
    make: fn(Draws) -> Arc<dyn Middleware>,
    /// What its failures mean to a client; `None` of a failure that is not its own.
    meaning: fn(&Failure) -> Option<Meaning>,
    /// The fields that tell a client more of such a failure.
    fields: fn(&Failure) -> Vec<(HeaderName, HeaderValue)>,
}

/// What a load of a configuration lends to middlewares that keep state.
#[derive(Debug)]
pub(crate) struct EntryHost {
    pub(crate) metrics: Arc<Metrics>,
}

const ALL: &[Own] = &[circuit_breaker::OWN, concurrency_limit::OWN, fault::OWN];

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

/// What `failure` means to a client, where one of the proxy's own middlewares made it.
pub(super) fn meaning(failure: &Failure) -> Option<Meaning> {
    ALL.iter().find_map(|own| (own.meaning)(failure))
}

/// The fields that tell a client more of `failure`, where one of the proxy's own middlewares made it.
pub(super) fn fields(failure: &Failure) -> Vec<(HeaderName, HeaderValue)> {
    ALL.iter().flat_map(|own| (own.fields)(failure)).collect()
}

/// When `failure` says that it makes sense to ask again.
fn retry_after(failure: &Failure) -> Option<Duration> {
    let told = failure.details.as_ref()?.get("retryAfter")?;
    told.as_str().and_then(Span::parse).map(Span::to_duration)
}

const fn no_fields(_failure: &Failure) -> Vec<(HeaderName, HeaderValue)> {
    Vec::new()
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
