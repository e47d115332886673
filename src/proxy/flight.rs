//! One request being served, as the metrics and the drain count it.

use std::sync::Arc;

use super::request::Exchange;

/// Counted once: as its status where it ended, as 499 where it was dropped before (the client left).
#[derive(Debug)]
pub(crate) struct Flight {
    exchange: Arc<Exchange>,
    /// Of the answer, once there is one.
    status: u16,
    done: bool,
}

/// The client went away before its answer was complete: nginx's number, which no upstream sends.
const CLIENT_CLOSED_REQUEST: u16 = 499;

impl Flight {
    /// Counts `exchange` as begun.
    pub(crate) fn begin(exchange: Arc<Exchange>) -> Self {
        exchange.route.metrics.request_started();
        Self { exchange, status: CLIENT_CLOSED_REQUEST, done: false }
    }

    /// The answer's head is known.
    pub(crate) const fn answered(&mut self, status: u16) {
        self.status = status;
    }

    /// All of the answer was handed over.
    pub(crate) fn finish(mut self) {
        self.done = true;
        let took = self.exchange.begun.elapsed();
        self.exchange.route.metrics.request_done(self.status, took);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.done {
            let took = self.exchange.begun.elapsed();
            let metrics = &self.exchange.route.metrics;
            metrics.request_done(CLIENT_CLOSED_REQUEST, took);
        }
    }
}
