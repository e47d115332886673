//! Decides when a changing file has finished changing.
//!
//! A writer truncates, writes in pieces and closes; an editor writes a new file and renames it; a
//! `ConfigMap` swaps a link. Part of a file may be a well-formed configuration that nobody meant, so
//! nothing is loaded while a writer has the file open. Its close says that it is done. Any other change
//! is loaded after a short quiet time, so that the steps of one change cause one load.

use std::time::Duration;

use tokio::time::Instant;

/// How long nothing must happen after a change.
const QUIET_TIME: Duration = Duration::from_millis(100);

/// How long a file may be missing before we believe that it was deleted. Also how long a new file may
/// stay unwritten before we believe that it is a link.
const INCOMPLETE_WAIT: Duration = Duration::from_secs(1);

/// What happened to a path that we watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The path now leads to another file, or a writer has closed it: the file is complete.
    Complete,
    /// The path was created, and a writer may be about to fill it; or it was removed, and another file
    /// may be about to replace it.
    Incomplete,
    /// A writer has the file open and has written to it.
    Writing,
}

/// Collects changes and decides when to load.
#[derive(Debug, Default)]
pub(super) struct Debounce {
    due: Option<Instant>,
    writing: bool,
}

impl Debounce {
    /// Records a change.
    pub(super) fn on(&mut self, change: Change, now: Instant) {
        self.writing = change == Change::Writing;
        self.due = match change {
            Change::Complete => Some(now + QUIET_TIME),
            Change::Incomplete => Some(now + INCOMPLETE_WAIT),
            Change::Writing => None,
        };
    }

    /// When to load if nothing more happens.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a writer has the file open.
    pub(super) const fn is_writing(&self) -> bool {
        self.writing
    }

    /// The file is being loaded: forgets the changes.
    pub(super) fn clear(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times at which a load happens, for changes at these times, in milliseconds.
    fn loads(changes: &[(u64, Change)]) -> Vec<u64> {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut debounce = Debounce::default();
        let mut loads = Vec::new();
        let end = (u64::MAX / 1_000_000, Change::Writing);
        for (millis, change) in changes.iter().copied().chain([end]) {
            if let Some(due) = debounce.due().filter(|due| *due <= at(millis)) {
                debounce.clear();
                let after = due.duration_since(begun).as_millis();
                loads.push(u64::try_from(after).unwrap());
            }
            debounce.on(change, at(millis));
        }
        loads
    }

    #[test]
    fn a_slow_writer_is_waited_for() {
        use Change::{Complete, Writing};
        // Truncate, write half, write the rest, close.
        let changes = [(0, Writing), (300, Writing), (600, Writing), (601, Complete)];
        assert_eq!(loads(&changes), [701]);
    }

    #[test]
    fn the_steps_of_one_change_make_one_load() {
        use Change::{Complete, Incomplete, Writing};
        // An editor's rename: the old file goes, the new one comes.
        assert_eq!(loads(&[(0, Incomplete), (1, Complete)]), [101]);
        // Deleted, then written again.
        let anew = [(0, Incomplete), (20, Incomplete), (20, Writing), (30, Complete)];
        assert_eq!(loads(&anew), [130]);
        // A ConfigMap: the link swapped, the old directory removed.
        assert_eq!(loads(&[(0, Complete), (50, Complete), (1000, Complete)]), [150, 1100]);
    }

    #[test]
    fn a_link_that_nobody_writes_and_a_file_that_stays_away_are_taken_after_a_while() {
        use Change::{Incomplete, Writing};
        assert_eq!(loads(&[(0, Incomplete)]), [1000]);
        assert_eq!(loads(&[(0, Incomplete), (500, Writing)]), [0; 0]);
    }

    #[test]
    fn a_writer_is_known_until_it_closes() {
        let mut debounce = Debounce::default();
        assert!(!debounce.is_writing());
        debounce.on(Change::Writing, Instant::now());
        assert!(debounce.is_writing());
        debounce.on(Change::Complete, Instant::now());
        assert!(!debounce.is_writing());
    }
}
