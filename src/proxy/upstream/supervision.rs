//! Whether somebody looks after the endpoints of an upstream.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::{CancellationToken, DropGuard};

/// Whether somebody does. The work ends when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Supervision(Mutex<Option<DropGuard>>);

impl Supervision {
    /// Whether it has begun.
    pub(super) fn is_begun(&self) -> bool {
        self.lock().is_some()
    }

    /// Begins it. The token is cancelled when it is to end.
    pub(super) fn begin(&self) -> CancellationToken {
        let ended = CancellationToken::new();
        *self.lock() = Some(ended.clone().drop_guard());
        ended
    }

    /// Ends it. It may begin again.
    pub(super) fn end(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<DropGuard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
