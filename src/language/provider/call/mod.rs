//! The call providers that the specification defines. To add one: a folder with its behaviour and its
//! contract document, and a line in [`all`].

use std::sync::Arc;

use super::dispatch::CallProvider;

pub mod mock;

/// Every spec-defined call provider.
pub fn all() -> Vec<Arc<dyn CallProvider>> {
    vec![Arc::new(mock::Mock)]
}
