//! The middlewares that the specification defines. To add one: a folder with its behaviour and its
//! contract document, and a line in [`all`].

use std::sync::Arc;

use super::Middleware;

pub mod finally;
pub mod loop_;
pub mod retry;
pub mod timeout;

/// Every spec-defined middleware.
pub fn all() -> Vec<Arc<dyn Middleware>> {
    vec![
        Arc::new(retry::Retry::new()),
        Arc::new(timeout::Timeout::new()),
        Arc::new(loop_::Loop::new()),
        Arc::new(finally::Finally::new()),
    ]
}
