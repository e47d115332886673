//! Finds providers by URI (MWL, "The provider catalog").
//!
//! A catalog starts with the spec-defined providers. It refuses a provider that would give a URI or a code
//! two meanings. It is cheap to clone and extend: each route has its own, with its own `http` provider.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::behaviour::Middleware;
use super::contract::Contract;
use super::dispatch::CallProvider;
use super::installation::InstalledFor;
use crate::language::code::CodePattern;
use crate::language::uri::{ProviderKind, ProviderUri};

/// The providers that definitions may name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    calls: BTreeMap<String, Arc<dyn CallProvider>>,
    middlewares: BTreeMap<String, Arc<dyn Middleware>>,
    /// Codes that the host has declared, beside those of the providers.
    more_codes: Vec<String>,
    /// The providers that may emit any code, but for which the host has declared which ones.
    declared: Vec<ProviderUri>,
    /// Whose definitions are compiled with it.
    host: Option<InstalledFor>,
}

/// Why a catalog refuses a provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// Two providers would have the same URI.
    #[error("the catalog already has `{0}`")]
    DuplicateUri(String),
    /// Two providers of one kind would have the same codes.
    #[error("`{uri}` has the codePrefix `{prefix}`, which is that of `{other}`")]
    DuplicatePrefix {
        /// The one that was to be added.
        uri: String,
        /// The prefix of both.
        prefix: String,
        /// The one that has it already.
        other: String,
    },
    /// `mwl` is the specification's, and `example` names nothing real ("Reserved namespaces").
    #[error("`{uri}` stands in the reserved namespace `{namespace}`; use one of your own")]
    Reserved {
        /// The URI.
        uri: String,
        /// Its namespace.
        namespace: String,
    },
    /// The document is for the other kind of provider.
    #[error("`{uri}` is not the URI of a `{}`", wanted.as_str())]
    WrongKind {
        /// The URI.
        uri: String,
        /// What was to be added.
        wanted: ProviderKind,
    },
}

/// Who adds a provider.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Specification,
    Platform,
}

impl Catalog {
    /// The providers that the specification defines. Only they can be in the `mwl` namespace. With a `seed`,
    /// their random draws depend only on it: for rehearsals.
    pub fn spec_defined(seed: Option<u64>) -> Self {
        let mut catalog = Self::default();
        let mut added = Ok(());
        for call in super::call::all() {
            added = added.and_then(|()| catalog.insert_call(call, Origin::Specification));
        }
        for middleware in super::middleware::all(seed) {
            added =
                added.and_then(|()| catalog.insert_middleware(middleware, Origin::Specification));
        }
        debug_assert_eq!(added, Ok(()), "the spec-defined providers do not fit together");
        catalog
    }

    /// The same providers, for the definitions of `route`. The middlewares that keep state get what `host` lends.
    #[must_use]
    pub fn for_route(&self, route: Arc<str>, host: Arc<dyn Any + Send + Sync>) -> Self {
        Self { host: Some(InstalledFor { route, host }), ..self.clone() }
    }

    /// Whose definitions are compiled with it.
    pub const fn host(&self) -> Option<&InstalledFor> {
        self.host.as_ref()
    }

    /// Adds a call provider.
    ///
    /// # Errors
    /// If its URI or its code prefix is taken, its namespace is reserved, or its document is a middleware's.
    pub fn add_call(&mut self, provider: Arc<dyn CallProvider>) -> Result<(), CatalogError> {
        self.insert_call(provider, Origin::Platform)
    }

    /// Adds a middleware.
    ///
    /// # Errors
    /// If its URI or its code prefix is taken, its namespace is reserved, or its document is a call
    /// provider's.
    pub fn add_middleware(&mut self, middleware: Arc<dyn Middleware>) -> Result<(), CatalogError> {
        self.insert_middleware(middleware, Origin::Platform)
    }

    fn insert_call(
        &mut self,
        provider: Arc<dyn CallProvider>,
        origin: Origin,
    ) -> Result<(), CatalogError> {
        let uri = self.admit(provider.contract(), ProviderKind::Call, origin)?;
        self.calls.insert(uri, provider);
        Ok(())
    }

    fn insert_middleware(
        &mut self,
        middleware: Arc<dyn Middleware>,
        origin: Origin,
    ) -> Result<(), CatalogError> {
        let uri = self.admit(middleware.contract(), ProviderKind::Middleware, origin)?;
        self.middlewares.insert(uri, middleware);
        Ok(())
    }

    /// The URI of a provider that may be added.
    fn admit(
        &self,
        contract: &Contract,
        wanted: ProviderKind,
        origin: Origin,
    ) -> Result<String, CatalogError> {
        let uri = contract.uri.as_str().to_owned();
        if contract.uri.kind() != wanted {
            return Err(CatalogError::WrongKind { uri, wanted });
        }
        let namespace = contract.uri.namespace();
        if namespace == "example" || (namespace == "mwl" && origin == Origin::Platform) {
            let namespace = namespace.to_owned();
            return Err(CatalogError::Reserved { uri, namespace });
        }
        let alike = |other: &&Contract| other.uri.kind() == wanted;
        for other in self.contracts().filter(alike) {
            if other.uri == contract.uri {
                return Err(CatalogError::DuplicateUri(uri));
            }
            if other.code_prefix == contract.code_prefix {
                let prefix = contract.code_prefix.clone();
                let other = other.uri.as_str().to_owned();
                return Err(CatalogError::DuplicatePrefix { uri, prefix, other });
            }
        }
        Ok(uri)
    }

    /// The call provider at `uri`.
    pub fn call(&self, uri: &str) -> Option<&Arc<dyn CallProvider>> {
        self.calls.get(uri)
    }

    /// The middleware at `uri`.
    pub fn middleware(&self, uri: &str) -> Option<&Arc<dyn Middleware>> {
        self.middlewares.get(uri)
    }

    /// Every contract: call providers first, in order of URI.
    pub fn contracts(&self) -> impl Iterator<Item = &Contract> {
        let calls = self.calls.values().map(|call| call.contract());
        let middlewares = self.middlewares.values().map(|middleware| middleware.contract());
        calls.chain(middlewares)
    }

    /// Declares which codes the provider of `uri`, which may emit any code, really emits beside those that it
    /// lists. The host knows them (a route's own classification), so matchers of other codes get a warning.
    pub fn declare_codes(&mut self, uri: ProviderUri, codes: impl IntoIterator<Item = String>) {
        self.declared.push(uri);
        self.more_codes.extend(codes);
    }

    /// Whether a provider with this contract may emit codes that are not declared.
    pub fn may_emit_any(&self, contract: &Contract) -> bool {
        contract.open.iter().any(|open| open == "*") && !self.declared.contains(&contract.uri)
    }

    /// Every code that is declared exactly.
    pub fn codes(&self) -> impl Iterator<Item = &str> {
        let closed = self.contracts().flat_map(|contract| &contract.closed);
        closed.chain(&self.more_codes).map(String::as_str)
    }

    /// The patterns of the codes that providers may emit beside the declared ones, without `*`: that one says
    /// something only about the calls of its own provider.
    pub fn open_codes(&self) -> impl Iterator<Item = CodePattern> {
        let open = self.contracts().flat_map(|contract| &contract.open);
        open.filter_map(|open| CodePattern::parse(open).ok())
            .filter(|open| *open != CodePattern::Any)
    }

    /// The providers of the same kind and name as `uri`, in any namespace.
    pub fn namesakes(&self, uri: &ProviderUri) -> impl Iterator<Item = &ProviderUri> {
        self.contracts()
            .map(|contract| &contract.uri)
            .filter(move |other| other.kind() == uri.kind() && other.bare_name() == uri.bare_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::provider::contract::Phase;

    #[derive(Debug)]
    struct Test(Contract);

    impl Middleware for Test {
        fn contract(&self) -> &Contract {
            &self.0
        }
    }

    fn middleware(uri: &str, prefix: &str) -> Arc<dyn Middleware> {
        let kind = ProviderUri::parse(uri).unwrap().kind();
        let mut document = serde_json::json!({
            "$schema": "https://mwl.dev/v0.1/provider/schema.json",
            "uri": uri,
            "codePrefix": prefix,
            "description": "",
            "failureCatalog": { "closed": [], "open": ["Provider.Middleware.P.*", "*"] }
        });
        let more = match kind {
            ProviderKind::Call => {
                document["failureCatalog"] = serde_json::json!({ "closed": [], "open": [] });
                serde_json::json!({ "parameters": { "type": "object" } })
            }
            ProviderKind::Middleware => serde_json::json!({
                "attachment": ["step", "flow"],
                "phases": { "onEntry": { "action": { "kind": "control", "description": "" } } }
            }),
        };
        for (key, value) in more.as_object().unwrap() {
            document[key] = value.clone();
        }
        document["failureCatalog"]["open"].as_array_mut().unwrap().retain(|_| prefix == "P");
        Arc::new(Test(Contract::parse(&document.to_string()).unwrap()))
    }

    #[test]
    fn the_specifications_providers_fit_together() {
        let catalog = Catalog::spec_defined(None);
        let uris: Vec<&str> = catalog.contracts().map(|contract| contract.uri.as_str()).collect();
        assert_eq!(
            uris,
            [
                "mwl:provider.call/mwl/mock/v1",
                "mwl:provider.middleware/mwl/finally/v1",
                "mwl:provider.middleware/mwl/loop/v1",
                "mwl:provider.middleware/mwl/retry/v1",
                "mwl:provider.middleware/mwl/timeout/v1",
            ]
        );
        // This compiles all schemas of each document; else they are compiled when they are used.
        for contract in catalog.contracts() {
            assert_eq!(Contract::parse(&contract.document.to_string()).err(), None);
        }
        assert!(catalog.codes().any(|code| code == "Provider.Middleware.Retry.Exhausted"));
        let timeout = catalog.middleware("mwl:provider.middleware/mwl/timeout/v1").unwrap();
        assert!(timeout.contract().bounds());
    }

    /// At which phases each of the specification's middlewares acts, and what it contributes.
    #[test]
    fn each_middleware_says_where_it_acts() {
        let phases = [Phase::Entry, Phase::Success, Phase::Failure, Phase::Always];
        for (name, acts, contributed) in [
            ("finally", [false, false, false, true], None),
            ("loop", [true, true, false, false], Some("iteration")),
            ("retry", [true, false, true, false], Some("attempt")),
            ("timeout", [true, false, false, false], Some("deadline")),
        ] {
            let uri = format!("mwl:provider.middleware/mwl/{name}/v1");
            let catalog = Catalog::spec_defined(None);
            let contract = catalog.middleware(&uri).unwrap().contract();
            assert_eq!(phases.map(|phase| contract.phase(phase).is_some()), acts);
            assert_eq!(contract.contributed(), Vec::from_iter(contributed));
            for (phase, declared) in contract.document["phases"].as_object().unwrap() {
                let said = declared["action"]["description"].as_str().unwrap();
                assert!(!said.is_empty(), "{name} says nothing of its {phase}");
            }
        }
    }

    #[test]
    fn what_would_mean_two_things_is_refused() {
        let mut catalog = Catalog::spec_defined(None);
        let mut add = |uri: &str, prefix: &str| {
            catalog.add_middleware(middleware(uri, prefix)).map_err(|error| error.to_string())
        };
        assert_eq!(add("mwl:provider.middleware/acme/x/v1", "X"), Ok(()));
        let mut refused = |uri: &str, prefix: &str| add(uri, prefix).unwrap_err();
        insta::assert_snapshot!(refused("mwl:provider.middleware/acme/x/v1", "Y"), @"the catalog already has `mwl:provider.middleware/acme/x/v1`");
        insta::assert_snapshot!(refused("mwl:provider.middleware/acme/y/v1", "Retry"), @"`mwl:provider.middleware/acme/y/v1` has the codePrefix `Retry`, which is that of `mwl:provider.middleware/mwl/retry/v1`");
        insta::assert_snapshot!(refused("mwl:provider.middleware/example/cache/v1", "Cache"), @"`mwl:provider.middleware/example/cache/v1` stands in the reserved namespace `example`; use one of your own");
        insta::assert_snapshot!(refused("mwl:provider.middleware/mwl/cache/v1", "Cache"), @"`mwl:provider.middleware/mwl/cache/v1` stands in the reserved namespace `mwl`; use one of your own");
        insta::assert_snapshot!(refused("mwl:provider.call/acme/x/v1", "X"), @"`mwl:provider.call/acme/x/v1` is not the URI of a `provider.middleware`");
        // A call provider and a middleware may have the same prefix: their codes differ before it.
        assert_eq!(add("mwl:provider.middleware/acme/mock/v1", "Mock"), Ok(()));
    }

    #[test]
    fn codes_are_those_that_providers_and_the_host_declare() {
        let mut catalog = Catalog::default();
        catalog.add_middleware(middleware("mwl:provider.middleware/acme/p/v1", "P")).unwrap();
        let may_emit_any = |catalog: &Catalog| {
            let mut contracts = catalog.contracts();
            contracts.any(|contract| catalog.may_emit_any(contract))
        };
        assert!(may_emit_any(&catalog));
        let uri = catalog.contracts().next().unwrap().uri.clone();
        catalog.declare_codes(uri, ["Route.Made".to_owned()]);
        assert!(!may_emit_any(&catalog));
        let open: Vec<String> = catalog.open_codes().map(|code| code.to_string()).collect();
        assert_eq!(open, ["Provider.Middleware.P.*"]);
        assert_eq!(catalog.codes().collect::<Vec<_>>(), ["Route.Made"]);
    }
}
