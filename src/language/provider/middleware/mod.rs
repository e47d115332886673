//! The middlewares that the specification defines. To add one: a folder with its behaviour and its
//! contract document, and a line in [`all`].

use std::sync::Arc;

use super::behaviour::Middleware;
use super::draws::Draws;

pub mod finally;
pub mod loop_;
pub mod retry;
pub mod timeout;

/// Every spec-defined middleware. With a `seed`, their random draws depend only on it.
pub fn all(seed: Option<u64>) -> Vec<Arc<dyn Middleware>> {
    vec![
        Arc::new(retry::Retry::new(Draws::of(seed))),
        Arc::new(timeout::Timeout),
        Arc::new(loop_::Loop),
        Arc::new(finally::Finally),
    ]
}
