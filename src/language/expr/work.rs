//! The bound on the work of one evaluation.
//!
//! The CEL crate evaluates to the end, however long that takes, and has no hook to stop it. But only a few
//! things multiply work in CEL: the turns of a comprehension, and values that are copied, compared or joined.
//! The rewritten expression (see `rewrite`) pays for each of these here, before it happens. Once the account
//! is empty, every further payment fails, so that the evaluation ends soon. The account is thread-local
//! because the crate's functions are plain `fn`s, and an evaluation never leaves its thread.

use std::cell::Cell;

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelList, CelMap, CelOptional, CelString};
use cel::common::value::Val;

use super::values::{List, Object, Text};

/// What one evaluation may spend. A unit is about the cost of one operator, 50 to 100 ns: all of it is spent
/// in about 50 ms, and in less than 100 ms without optimisation.
pub(super) const BUDGET: u64 = 400_000;

/// How many bytes of text one unit pays for.
const BYTES_PER_UNIT: u64 = 64;

thread_local! {
    /// What the evaluation on this thread has left to spend; the whole budget if none runs.
    static LEFT: Cell<u64> = const { Cell::new(BUDGET) };
}

/// The account of one evaluation. It is open until it is dropped.
pub(super) struct Account(());

impl Account {
    /// A full account for the evaluation that begins now.
    pub(super) fn open() -> Self {
        LEFT.set(BUDGET);
        Self(())
    }

    /// Whether the evaluation asked for more than there was.
    #[expect(clippy::unused_self, reason = "asked of an account that is open")]
    pub(super) fn overdrawn(&self) -> bool {
        LEFT.get() == 0
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        LEFT.set(BUDGET);
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
