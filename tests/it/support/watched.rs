//! State that another thread changes, and waiting for it: no test sleeps, and none waits forever.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long anything may take before the test that waits for it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Lets real time pass, where a test needs that.
#[expect(clippy::disallowed_methods, reason = "a test's own thread, on which nothing else runs")]
pub(crate) fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

/// A value that notifies waiters of its changes.
#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The present value.
    pub(crate) fn now(&self) -> MutexGuard<'_, T> {
        // The test has already failed if a peer's thread panicked; its state can still be read.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value and notifies the waiters.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.now());
        self.changed.notify_all();
        result
    }

    /// Waits until `find` finds something; panics with `what` after [`PATIENCE`].
    pub(crate) fn until<R>(&self, what: &str, mut find: impl FnMut(&T) -> Option<R>) -> R {
        let mut found = None;
        let waited = self.changed.wait_timeout_while(self.now(), PATIENCE, |state| {
            found = find(state);
            found.is_none()
        });
        drop(waited);
        found.unwrap_or_else(|| panic!("waited {PATIENCE:?} for {what}"))
    }
}

/// Closed until it is opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(std::sync::Arc<Watched<bool>>);

impl Gate {
    /// Lets everybody pass from now on.
    pub(crate) fn open(&self) {
        self.0.update(|open| *open = true);
    }

    /// Waits for [`Gate::open`].
    pub(crate) fn pass(&self) {
        self.0.until("a gate to open", |open| open.then_some(()));
    }
}
