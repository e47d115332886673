//! The metrics of bodies in memory.

use prometheus::{IntCounter, IntGauge};

use super::Metrics;
use crate::telemetry::families::counter;

/// Which body was to be kept in memory, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyUse {
    /// A client's, for expressions.
    Request,
    /// An upstream's, for expressions.
    Response,
    /// A client's, to be sent again.
    Replay,
}

/// The handles of bodies in memory. The gauge is also the count that the limit is held against.
#[derive(Clone, Debug)]
pub struct BufferMetrics {
    held: IntGauge,
    /// In the order of [`BodyUse::ALL`].
    refused: [IntCounter; 3],
}

impl BodyUse {
    const ALL: [Self; 3] = [Self::Request, Self::Response, Self::Replay];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Replay => "replay",
        }
    }
}

impl Metrics {
    /// `mwl_buffered_bytes`, `mwl_bodies_not_buffered_total{body}`.
    pub fn buffers(&self) -> BufferMetrics {
        let refused = |body: BodyUse| counter(&self.families.unbuffered, &[body.as_str()]);
        BufferMetrics { held: self.families.buffered.clone(), refused: BodyUse::ALL.map(refused) }
    }
}

impl BufferMetrics {
    /// Adds `bytes` to what is held, and returns that.
    pub fn take(&self, bytes: usize) -> usize {
        self.held.add(signed(bytes));
        usize::try_from(self.held.get()).unwrap_or_default()
    }

    /// `bytes` are held no longer.
    pub fn give_back(&self, bytes: usize) {
        self.held.sub(signed(bytes));
    }

    /// A body found no room.
    pub fn refused(&self, body: BodyUse) {
        let [request, response, replay] = &self.refused;
        match body {
            BodyUse::Request => request.inc(),
            BodyUse::Response => response.inc(),
            BodyUse::Replay => replay.inc(),
        }
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
