//! Marks connections that are answering a request.

use std::sync::Arc;

use super::State;
use crate::language::engine::Alarm;

/// Marks a connection as answering a request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<State>);

impl Busy {
    /// Marks the connection of `state` as answering a request.
    pub(crate) fn new(state: &Arc<State>) -> Self {
        state.begin();
        Self(Arc::clone(state))
    }

    /// The timer that the connection's last execution left, for reuse.
    pub(crate) fn take_alarm(&self) -> Alarm {
        self.0.take_alarm()
    }

    /// Keeps the timer for the next execution.
    pub(crate) fn keep_alarm(&self, alarm: Alarm) {
        self.0.keep_alarm(alarm);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.end();
    }
}
