//! Marks connections that are answering a request.

use std::sync::Arc;

use super::ConnectionState;
use crate::language::engine::Alarm;

/// Marks a connection as answering a request, until it is dropped.
#[derive(Debug)]
pub(crate) struct BusyGuard(Arc<ConnectionState>);

impl BusyGuard {
    /// Marks the connection of `state` as answering a request.
    pub(crate) fn new(state: &Arc<ConnectionState>) -> Self {
        state.begin();
        Self(Arc::clone(state))
    }

    /// This many bytes of an answer were handed over to the connection.
    pub(crate) fn handed(&self, bytes: usize) {
        self.0.handed(bytes);
    }

    /// A timer that an earlier execution of the connection left, for reuse.
    pub(crate) fn take_alarm(&self) -> Alarm {
        self.0.take_alarm()
    }

    /// Keeps the timer for a later execution.
    pub(crate) fn keep_alarm(&self, alarm: Alarm) {
        self.0.keep_alarm(alarm);
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::watch::{ALARMS, Connections, lock};

    #[test]
    fn the_timers_of_many_requests_at_once_are_kept_up_to_a_bound() {
        let connections = Connections::default();
        let (state, _registered) = connections.register(None);
        let busy = BusyGuard::new(&state);
        for _ in 0..2 * ALARMS {
            busy.keep_alarm(Alarm::default());
        }
        assert_eq!(lock(&state.alarms).len(), ALARMS);
    }
}
