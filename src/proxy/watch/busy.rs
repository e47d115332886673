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
        self.0.alarms.take()
    }

    /// Keeps the timer for a later execution.
    pub(crate) fn keep_alarm(&self, alarm: Alarm) {
        self.0.alarms.keep(alarm);
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}
