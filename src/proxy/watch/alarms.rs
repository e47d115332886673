//! The timers that a connection's executions have left.

use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::language::engine::Alarm;

/// How many are kept at most.
const MOST: usize = 16;

/// Timers for later executions. HTTP/2 runs several at once.
#[derive(Debug, Default)]
pub(super) struct Alarms(Mutex<SmallVec<[Alarm; 1]>>);

impl Alarms {
    /// The timer that an earlier execution left.
    pub(super) fn take(&self) -> Alarm {
        self.lock().pop().unwrap_or_default()
    }

    /// Keeps a timer for a later execution, if there are not enough.
    pub(super) fn keep(&self, alarm: Alarm) {
        let mut alarms = self.lock();
        if alarms.len() < MOST {
            alarms.push(alarm);
        }
    }

    /// Drops all of them, so that they wake nobody.
    pub(super) fn clear(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    fn lock(&self) -> MutexGuard<'_, SmallVec<[Alarm; 1]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timers_of_many_requests_at_once_are_kept_up_to_a_bound() {
        let alarms = Alarms::default();
        for _ in 0..2 * MOST {
            alarms.keep(Alarm::default());
        }
        assert_eq!(alarms.lock().len(), MOST);
        alarms.clear();
        assert!(alarms.lock().is_empty());
    }
}
