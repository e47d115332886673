//! When a file that changes has finished changing.
//!
//! A writer truncates, writes in pieces, and closes; an editor writes beside and renames; a `ConfigMap`
//! swaps a link. A piece of a file may be a well-formed configuration that nobody wrote, so while a
//! writer has the file open nothing is loaded: its close says that it is done. Whatever else happens is
//! taken after a short quiet, so that the steps of one change make one load.

use std::time::Duration;

use tokio::time::Instant;

/// How long it must be quiet after a change.
const QUIET: Duration = Duration::from_millis(100);

/// How long a file may be missing before it is taken for gone, or there without being written before it
/// is taken for a link.
const PATIENCE: Duration = Duration::from_secs(1);

/// What happened to a path that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is another file now, or a writer has closed it: complete.
    Settled,
    /// It came into being, and a writer may be about to fill it; or it went, and another may be about
    /// to take its place.
    Incomplete,
    /// A writer has it open, and wrote.
    Writing,
}

/// Decides when to load.
#[derive(Debug, Default)]
pub(super) struct Settle {
    due: Option<Instant>,
    writing: bool,
}

impl Settle {
    /// Something happened.
    pub(super) fn on(&mut self, change: Change, now: Instant) {
        self.writing = change == Change::Writing;
        self.due = match change {
            Change::Settled => Some(now + QUIET),
            Change::Incomplete => Some(now + PATIENCE),
            Change::Writing => None,
        };
    }

    /// When to load, where nothing more happens.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a writer is in the middle of it.
    pub(super) const fn is_writing(&self) -> bool {
        self.writing
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
        use Change::{Incomplete, Settled, Writing};
        // An editor's rename: the old away, the new in place.
        assert_eq!(loads(&[(0, Incomplete), (1, Settled)]), [101]);
        // Deleted, and written anew.
        let anew = [(0, Incomplete), (20, Incomplete), (20, Writing), (30, Settled)];
        assert_eq!(loads(&anew), [130]);
        // A ConfigMap: the link swapped, the old directory removed.
        assert_eq!(loads(&[(0, Settled), (50, Settled), (1000, Settled)]), [150, 1100]);
    }

    #[test]
    fn a_link_that_nobody_writes_and_a_file_that_stays_away_are_taken_after_a_while() {
        use Change::{Incomplete, Writing};
        assert_eq!(loads(&[(0, Incomplete)]), [1000]);
        assert_eq!(loads(&[(0, Incomplete), (500, Writing)]), [0; 0]);
    }

    #[test]
    fn a_writer_is_known_until_it_closes() {
        let mut settle = Settle::default();
        assert!(!settle.is_writing());
        settle.on(Change::Writing, Instant::now());
        assert!(settle.is_writing());
        settle.on(Change::Settled, Instant::now());
        assert!(!settle.is_writing());
    }
}
