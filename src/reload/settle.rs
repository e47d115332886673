//! When a file that changes has finished changing.
//!
//! A writer truncates, writes in pieces, and closes; an editor writes beside and renames; a `ConfigMap`
//! swaps a link. A piece of a file may be a well-formed configuration that nobody wrote, so while a
//! writer has the file open nothing is loaded: its close says that it is done. Whatever else happens is
//! taken after a short quiet, so that the steps of one change make one load.

use std::time::Duration;

use tokio::time::Instant;

/// How long it must be quiet after a change.
pub(super) const QUIET: Duration = Duration::from_millis(100);

/// How long a file may be there without being written before it is taken for a link.
pub(super) const CREATED: Duration = Duration::from_secs(1);

/// What happened to a path that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is another file now, or a writer has closed it: complete.
    Settled,
    /// It came into being; a writer may be about to fill it.
    Created,
    /// A writer has it open, and wrote.
    Writing,
}

/// Decides when to load.
#[derive(Debug, Default)]
pub(super) struct Settle {
    due: Option<Instant>,
}

impl Settle {
    /// Something happened.
    pub(super) fn on(&mut self, change: Change, now: Instant) {
        self.due = match change {
            Change::Settled => Some(now + QUIET),
            Change::Created => Some(now + CREATED),
            Change::Writing => None,
        };
    }

    /// When to load, where nothing more happens.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// It is loaded now.
    pub(super) fn taken(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The milliseconds at which a load happens, for changes at these milliseconds.
    fn loads(changes: &[(u64, Change)]) -> Vec<u64> {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut settle = Settle::default();
        let mut loads = Vec::new();
        let end = (u64::MAX / 1_000_000, Change::Writing);
        for (millis, change) in changes.iter().copied().chain([end]) {
            if let Some(due) = settle.due().filter(|due| *due <= at(millis)) {
                settle.taken();
                let after = due.duration_since(begun).as_millis();
                loads.push(u64::try_from(after).unwrap());
            }
            settle.on(change, at(millis));
        }
        loads
    }

    #[test]
    fn a_slow_writer_is_waited_for() {
        use Change::{Settled, Writing};
        // Truncate, half, the rest, close.
        let changes = [(0, Writing), (300, Writing), (600, Writing), (601, Settled)];
        assert_eq!(loads(&changes), [701]);
    }

    #[test]
    fn the_steps_of_one_change_make_one_load() {
        use Change::{Created, Settled, Writing};
        // An editor's rename: the old away, the new in place.
        assert_eq!(loads(&[(0, Settled), (1, Settled)]), [101]);
        // Deleted, and written anew.
        let anew = [(0, Settled), (20, Created), (20, Writing), (30, Settled)];
        assert_eq!(loads(&anew), [130]);
        // A ConfigMap: the link swapped, the old directory removed.
        assert_eq!(loads(&[(0, Settled), (50, Settled), (1000, Settled)]), [150, 1100]);
    }

    #[test]
    fn a_link_that_nobody_writes_is_taken_after_a_while() {
        use Change::{Created, Writing};
        assert_eq!(loads(&[(0, Created)]), [1000]);
        assert_eq!(loads(&[(0, Created), (500, Writing)]), [0; 0]);
    }
}
