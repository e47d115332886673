//! The endpoints that one execution has tried, of whatever upstream: no two have the same id.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::WorkerEndpoint;

/// Those to which it has sent attempts that did not succeed, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Tried(SmallVec<[TriedEndpoint; 2]>);

/// The same for all attempts of the execution. As long as none has failed, nothing is locked.
#[derive(Debug, Default)]
pub(crate) struct SharedTried {
    /// Whether any ever was in the list.
    any: AtomicBool,
    list: Mutex<Tried>,
}

#[derive(Clone, Copy, Debug)]
struct TriedEndpoint {
    id: u64,
    /// Whether the attempt has ended.
    failed: bool,
}

impl SharedTried {
    /// The endpoint that `pick` chooses by those that were tried. If attempts are made `beside` each other, it counts as tried
    /// from now on, and not only once its attempt has failed.
    pub(crate) fn pick(
        &self,
        beside: bool,
        pick: impl FnOnce(&Tried) -> Option<Arc<WorkerEndpoint>>,
    ) -> Option<Arc<WorkerEndpoint>> {
        if !beside && !self.any.load(Ordering::Relaxed) {
            return pick(&Tried::default());
        }
        let mut list = self.lock();
        let picked = pick(&list);
        if let Some(picked) = picked.as_ref().filter(|_| beside) {
            self.any.store(true, Ordering::Relaxed);
            list.begin(picked.id);
        }
        picked
    }

    /// See [`Tried::begin`].
    pub(crate) fn begin(&self, id: u64) {
        self.any.store(true, Ordering::Relaxed);
        self.lock().begin(id);
    }

    /// See [`Tried::fail`].
    pub(crate) fn fail(&self, id: u64) {
        self.any.store(true, Ordering::Relaxed);
        self.lock().fail(id);
    }

    /// See [`Tried::forget`].
    pub(crate) fn forget(&self, id: u64) {
        if self.any.load(Ordering::Relaxed) {
            self.lock().forget(id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tried> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tried {
    /// An attempt begins at the endpoint with this id.
    pub(crate) fn begin(&mut self, id: u64) {
        self.forget(id);
        self.0.push(TriedEndpoint { id, failed: false });
    }

    /// It has failed, or was interrupted, whether or not it was told that it began.
    pub(crate) fn fail(&mut self, id: u64) {
        self.forget(id);
        self.0.push(TriedEndpoint { id, failed: true });
    }

    /// Nothing is to be held against the endpoint.
    pub(crate) fn forget(&mut self, id: u64) {
        self.0.retain(|tried| tried.id != id);
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the endpoint with this id was tried; with `failed_only`, in vain.
    pub(super) fn has(&self, id: u64, failed_only: bool) -> bool {
        self.0.iter().any(|tried| tried.id == id && (tried.failed || !failed_only))
    }

    /// The last one that is `among` some, likewise.
    pub(super) fn last(&self, failed_only: bool, among: impl Fn(u64) -> bool) -> Option<u64> {
        let mut tried = self.0.iter().rev();
        let last = tried.find(|tried| (tried.failed || !failed_only) && among(tried.id));
        last.map(|tried| tried.id)
    }
}
