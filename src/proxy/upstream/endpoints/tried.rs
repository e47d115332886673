//! The endpoints that one execution has tried, of whatever upstream: no two have the same id.

use smallvec::SmallVec;

/// Those to which it has sent attempts that did not succeed, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Tried(SmallVec<[TriedEndpoint; 2]>);

#[derive(Clone, Copy, Debug)]
struct TriedEndpoint {
    id: u64,
    /// Whether the attempt has ended.
    failed: bool,
}

impl Tried {
    /// An attempt begins at the endpoint with this id.
    pub(crate) fn begin(&mut self, id: u64) {
        self.forget(id);
        self.0.push(TriedEndpoint { id, failed: false });
    }

    /// It has failed, or was interrupted.
    pub(crate) fn fail(&mut self, id: u64) {
        for tried in self.0.iter_mut().filter(|tried| tried.id == id) {
            tried.failed = true;
        }
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
