//! The bound on the work of one evaluation, and of one turn of an execution.
//!
//! The CEL crate evaluates to the end, however long that takes, and has no hook to stop it. But only a few
//! things multiply work in CEL: the turns of a comprehension, and values that are copied, compared or joined.
//! The rewritten expression (see `rewrite`) pays for each of these here, before it happens. Once the account
//! is empty, every further payment fails, so that the evaluation ends soon. The account is thread-local
//! because the crate's functions are plain `fn`s, and an evaluation never leaves its thread.
//!
//! An execution shares its thread with others. So what its evaluations spend in one turn (one poll) is added up: once that
//! is much, the execution goes on in its next turn ([`Turn`]). Evaluations that follow each other with no place to stop
//! between them, such as those of one `assign` block, have an account in common.

use std::cell::Cell;

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelList, CelMap, CelOptional, CelString};
use cel::common::value::Val;

use super::values::{List, Object, Text};

/// What one evaluation may spend. A unit is about the cost of one operator, 50 to 100 ns: all of it is spent
/// in about 50 ms, and in less than 100 ms without optimisation.
pub(super) const BUDGET: u64 = 400_000;

/// After this much work, a turn of an execution ends at the next place where it can: about 10 ms.
pub(super) const TURN: u64 = 80_000;

/// What the evaluations between two such places may spend together: about 250 ms.
pub(super) const AT_ONCE: u64 = 2_000_000;

/// How many bytes of text one unit pays for.
const BYTES_PER_UNIT: u64 = 64;

thread_local! {
    /// What the evaluation on this thread has left to spend; the whole budget if none runs.
    static LEFT: Cell<u64> = const { Cell::new(BUDGET) };
    /// The turn on this thread.
    static NOW: Cell<Spent> = const { Cell::new(Spent { turn: 0, at_once: None }) };
}

/// What a turn's evaluations have spent.
#[derive(Clone, Copy)]
struct Spent {
    /// Since it began.
    turn: u64,
    /// Since the work last waited or could have; `None` outside a turn, where nobody adds it up.
    at_once: Option<u64>,
}

/// A turn of an execution on this thread. It lasts until it is dropped.
#[must_use = "a turn ends when it is dropped"]
pub(in crate::language) struct Turn(Spent);

impl Turn {
    /// Begins a turn.
    pub(in crate::language) fn begin() -> Self {
        Self(NOW.replace(Spent { turn: 0, at_once: Some(0) }))
    }

    /// Whether the turn on this thread has done enough. Then the execution should go on in its next one.
    pub(in crate::language) fn is_over() -> bool {
        NOW.get().turn >= TURN
    }

    /// The work waits, or would if the turn were over: what follows has an account of its own.
    pub(in crate::language) fn may_end() {
        let now = NOW.get();
        NOW.set(Spent { at_once: now.at_once.map(|_| 0), ..now });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        NOW.set(self.0);
    }
}

/// The account of one evaluation. It is open until it is dropped.
pub(super) struct Account {
    /// What was in it.
    full: u64,
}

impl Account {
    /// A full account for the evaluation that begins now, or what the ones right before it have left.
    pub(super) fn open() -> Self {
        let before = NOW.get().at_once.unwrap_or_default();
        let full = BUDGET.min(AT_ONCE.saturating_sub(before));
        LEFT.set(full);
        Self { full }
    }

    /// Whether the evaluation asked for more than there was.
    #[expect(clippy::unused_self, reason = "asked of an account that is open")]
    pub(super) fn overdrawn(&self) -> bool {
        LEFT.get() == 0
    }

    /// Whether there was less than for an evaluation by itself.
    pub(super) const fn was_shared(&self) -> bool {
        self.full < BUDGET
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let spent = self.full.saturating_sub(LEFT.replace(BUDGET));
        let now = NOW.get();
        let at_once = now.at_once.map(|before| before.saturating_add(spent));
        NOW.set(Spent { turn: now.turn.saturating_add(spent), at_once });
    }
}

/// Pays `units`. If the account is empty, this payment and every later one fails.
pub(super) fn spend(units: u64) -> Result<(), ExecutionError> {
    let left = LEFT.get().saturating_sub(units);
    LEFT.set(left);
    if left == 0 {
        return Err(ExecutionError::function_error("@work", "too much work"));
    }
    Ok(())
}

/// Pays for `bytes` of text.
pub(super) fn spend_bytes(bytes: usize) -> Result<(), ExecutionError> {
    spend(1 + count(bytes) / BYTES_PER_UNIT)
}

/// Pays for going through `elements` elements of shared data.
pub(super) fn spend_elements(elements: usize) -> Result<(), ExecutionError> {
    spend(1 + count(elements))
}

/// Pays for copying or reading `value` once.
pub(super) fn spend_copy(value: &dyn Val) -> Result<(), ExecutionError> {
    if let Some(text) = value.downcast_ref::<Text>() {
        return spend_bytes(text.as_str().len());
    }
    if let Some(list) = value.downcast_ref::<List>() {
        return spend_elements(list.items().len());
    }
    if value.downcast_ref::<Object>().is_some() {
        return spend(1);
    }
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return spend_bytes(text.inner().len());
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return spend_bytes(bytes.inner().len());
    }
    if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        spend(3 + count(list.inner().len()))?;
        return list.inner().iter().try_for_each(|item| spend_copy(item.as_ref()));
    }
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        spend(1 + count(map.inner().len()))?;
        return map.inner().values().try_for_each(|item| spend_copy(item.as_ref()));
    }
    match value.downcast_ref::<CelOptional<'_>>().and_then(CelOptional::inner) {
        Some(inner) => spend_copy(inner),
        None => spend(1),
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX - 1)
}
