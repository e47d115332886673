//! URI → provider.
use super::{CallProvider, Contract, Middleware};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The providers that definitions may name. Cheap to clone and extend: each route has its own with its own http provider.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    calls: BTreeMap<String, Arc<dyn CallProvider>>,
    middlewares: BTreeMap<String, Arc<dyn Middleware>>,
}
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("todo")]
    Duplicate,
}
impl Catalog {
    /// The providers that the specification defines.
    pub fn spec_defined() -> Self {
        unimplemented!()
    }
    pub fn add_call(&mut self, provider: Arc<dyn CallProvider>) -> Result<(), CatalogError> {
        unimplemented!()
    }
    pub fn add_middleware(&mut self, middleware: Arc<dyn Middleware>) -> Result<(), CatalogError> {
        unimplemented!()
    }
    pub fn call(&self, uri: &str) -> Option<&Arc<dyn CallProvider>> {
        self.calls.get(uri)
    }
    pub fn middleware(&self, uri: &str) -> Option<&Arc<dyn Middleware>> {
        self.middlewares.get(uri)
    }
    pub fn contracts(&self) -> impl Iterator<Item = &Contract> {
        self.calls
            .values()
            .map(|c| c.contract())
            .chain(self.middlewares.values().map(|m| m.contract()))
    }
}
