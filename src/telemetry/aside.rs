//! Work beside the process's own: what happens in it is not the process's to tell.
//!
//! A rehearsal in a process that serves takes requests their whole way, on a thread of its own. Neither the log nor those
//! who listen to events may take them for clients' requests.

use std::cell::Cell;

use tracing::Dispatch;
use tracing::dispatcher::with_default;

thread_local! {
    /// Whether this thread works aside.
    static ASIDE: Cell<bool> = const { Cell::new(false) };
}

/// Does `work`, of which neither the log nor events tell anything.
pub fn aside<R>(work: impl FnOnce() -> R) -> R {
    /// Sets what was before, also after a panic.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            ASIDE.set(self.0);
        }
    }
    let _before = Before(ASIDE.replace(true));
    with_default(&Dispatch::none(), work)
}

/// Whether this thread works aside.
pub(super) fn is_aside() -> bool {
    ASIDE.get()
}
