//! Holds what the process reserves at its start against its limit of address space.
//!
//! Most of what is reserved is never used. But if there is no room for it, the allocator finds none for its first bytes
//! on a thread, and the process is aborted without a reason.

use crate::app::StartError;
use crate::system::address_space::{self, AddressSpace};

const MIB: u64 = 1 << 20;

/// What the allocator reserves for all threads together, if there is room for that.
const ARENA: u64 = 1024 * MIB;

/// What it reserves for each thread otherwise, and beyond this many threads.
const SEGMENT: u64 = 32 * MIB;
const IN_ARENA: u64 = 28;

/// The stack of a thread.
const STACK: u64 = 2 * MIB;

/// How many threads there may be beside the workers: the main one, of the admin address, of the logs and of spans, and
/// those on which names are looked up.
const OTHERS: u64 = 6;

/// For everything else that happens before the first request.
const REST: u64 = 16 * MIB;

/// Whether a configuration can be compiled, and then served by at least one worker.
pub(super) fn before_load() -> Result<(), StartError> {
    check(1)
}

/// Whether this many workers can be started.
pub(super) fn for_workers(workers: usize) -> Result<(), StartError> {
    check(workers)
}

fn check(workers: usize) -> Result<(), StartError> {
    let Some(space) = address_space::limited() else {
        return Ok(());
    };
    let needed = needed(workers, space.used);
    if needed <= space.limit {
        return Ok(());
    }
    let AddressSpace { limit, used: _ } = space;
    Err(StartError::AddressSpace { limit: limit / MIB, needed: needed.div_ceil(MIB), workers })
}

/// How much a process that uses `used` bytes now will have reserved when this many workers serve.
fn needed(workers: usize, used: u64) -> u64 {
    let threads = u64::try_from(workers).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let segments = if used < ARENA { threads } else { threads.saturating_sub(IN_ARENA) };
    let reserved = threads.saturating_mul(STACK).saturating_add(segments.saturating_mul(SEGMENT));
    used.saturating_add(reserved).saturating_add(REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_a_stack_and_a_part_of_the_allocator_s() {
        assert_eq!(needed(2, 50 * MIB) / MIB, 50 + 8 * 34 + 16);
        assert_eq!(needed(2, 1100 * MIB) / MIB, 1100 + 8 * 2 + 16);
        assert_eq!(needed(64, 1100 * MIB) / MIB, 1100 + 70 * 2 + 42 * 32 + 16);
        assert_eq!(needed(usize::MAX, 0), u64::MAX);
    }
}
