//! What the schemas of one file may cost to compile, and its literal arguments to check.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use jsonschema::PatternCache;

use super::pattern;
use crate::source::Span;

/// How much work there is room for at first, in nanoseconds.
const FIRST: u64 = 25_000_000;

/// How much more there is for each byte of a file: for 64 KiB as much again.
const PER_BYTE: u64 = 400;

/// What is left for one file. Patterns are compiled at once, and a few characters may stand for thousands of states. So the
/// patterns of a file share this, and each is compiled once. Checks of literal arguments also take from it; those for which
/// nothing is left are made at run time only.
#[derive(Debug)]
pub struct Room {
    left: Cell<u64>,
    known: RefCell<HashSet<Box<str>>>,
    pub(super) patterns: PatternCache,
}

impl Default for Room {
    fn default() -> Self {
        Self { left: Cell::new(FIRST), known: RefCell::default(), patterns: PatternCache::new() }
    }
}

impl Room {
    /// Makes room for what is written at `span`.
    pub fn grow(&self, span: Span) {
        let more = u64::from(span.end.saturating_sub(span.start)).saturating_mul(PER_BYTE);
        self.left.set(self.left.get().saturating_add(more));
    }

    /// What is left, in nanoseconds.
    pub(super) const fn left(&self) -> u64 {
        self.left.get()
    }

    /// Takes room for some work, and returns whether there was enough.
    pub(super) fn takes(&self, work: u64) -> bool {
        let left = self.left.get().checked_sub(work);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Takes room for a pattern, unless it was met before.
    pub(super) fn takes_pattern(&self, pattern: &str) -> bool {
        if self.known.borrow().contains(pattern) {
            return true;
        }
        let takes = self.takes(pattern::cost(pattern));
        if takes {
            self.known.borrow_mut().insert(pattern.into());
        }
        takes
    }
}
