//! A request that a connection is answering.

use std::sync::Arc;

use super::State;
use crate::language::engine::Alarm;

/// A connection is answering until this is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<State>);

impl Busy {
    /// A request on the connection of `state` is being answered.
    pub(crate) fn new(state: &Arc<State>) -> Self {
        state.begin();
        Self(Arc::clone(state))
    }

    /// The timer that the connection's last execution left, for the bounds of this one.
    pub(crate) fn take_alarm(&self) -> Alarm {
        self.0.take_alarm()
    }

    /// Keeps it for the next.
    pub(crate) fn keep_alarm(&self, alarm: Alarm) {
        self.0.keep_alarm(alarm);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.end();
    }
}
