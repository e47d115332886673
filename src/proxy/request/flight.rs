//! One running request, as the metrics, the drain and the records count it.

use std::sync::Arc;

use super::exchange::Exchange;
use crate::telemetry::record::{AnswerSummary, CLIENT_CLOSED_REQUEST};

/// Counted once: with its status if the answer was completed, with 499 if it was dropped before (the client left), with
/// 598 if the upstream broke it off.
#[derive(Debug)]
pub(crate) struct Flight {
    exchange: Arc<Exchange>,
    /// The answer's status, once known.
    status: u16,
    done: bool,
}

impl Flight {
    /// Counts `exchange` as begun.
    pub(crate) fn begin(exchange: Arc<Exchange>) -> Self {
        exchange.route.metrics.request_started();
        exchange.record_from(exchange.begun);
        Self { exchange, status: CLIENT_CLOSED_REQUEST, done: false }
    }

    /// The answer's head is known.
    pub(crate) const fn answered(&mut self, status: u16) {
        self.status = status;
    }

    /// Whose it is.
    pub(crate) const fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// The status of the answer's head.
    pub(crate) const fn status(&self) -> u16 {
        self.status
    }

    /// The whole answer was handed over, with `sent` bytes of body.
    pub(crate) fn finish(mut self, sent: u64) {
        self.end(self.status, sent);
    }

    /// The client left after `sent` bytes of body.
    pub(crate) fn abandon(mut self, sent: u64) {
        self.end(CLIENT_CLOSED_REQUEST, sent);
    }

    /// The upstream broke its response off after `sent` bytes of body. It counts as `status`, and as a failure with
    /// this code and message.
    pub(crate) fn truncated(mut self, sent: u64, status: u16, (code, message): (&str, &str)) {
        if let Some(recorder) = self.exchange.recorder(true) {
            recorder.broke_off(code, message);
        }
        self.end(status, sent);
    }

    fn end(&mut self, status: u16, sent: u64) {
        self.done = true;
        let took = self.exchange.begun.elapsed();
        self.exchange.route.metrics.request_done(status, took);
        let failed = status == CLIENT_CLOSED_REQUEST;
        if let Some(recorder) = self.exchange.recorder(failed) {
            recorder.answered(AnswerSummary { status, began: self.exchange.begun, took, sent });
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.done {
            self.end(CLIENT_CLOSED_REQUEST, 0);
        }
    }
}
