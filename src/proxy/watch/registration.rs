//! The list of the connections that are watched.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::task::AbortHandle;

use super::by_number::ByNumber;
use super::taken::TakenBytes;
use super::{ConnectionState, lock};

/// By their numbers.
pub(super) type OpenConnections = Mutex<HashMap<u64, OpenConnection, ByNumber>>;

/// One that is open.
#[derive(Debug)]
pub(super) struct OpenConnection {
    pub(super) state: Arc<ConnectionState>,
    pub(super) task: Option<AbortHandle>,
    pub(super) taken: TakenBytes,
}

/// One entry of [`Connections`](super::Connections), removed when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    open: Arc<OpenConnections>,
    number: u64,
}

impl Registration {
    /// Of the connection with this number, which is in the list.
    pub(super) const fn new(open: Arc<OpenConnections>, number: u64) -> Self {
        Self { open, number }
    }

    /// Its number, for [`Connections::closed_by`](super::Connections::closed_by).
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Allows the watch to close the connection by aborting this task, which serves nothing else.
    pub(crate) fn closed_by(&self, task: AbortHandle) {
        closed_by(&self.open, self.number, task);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.number);
    }
}

/// The same for the connection with this number.
pub(super) fn closed_by(open: &OpenConnections, number: u64, task: AbortHandle) {
    if let Some(open) = lock(open).get_mut(&number) {
        open.task = Some(task);
    }
}
