//! A body in memory.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

/// A body in memory, with its trailers.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    bytes: Bytes,
    trailers: Option<Box<HeaderMap>>,
}

impl Whole {
    /// No body.
    pub(crate) const EMPTY: Self = Self::new(Bytes::new(), None);

    /// These bytes, then these trailers.
    pub(crate) const fn new(bytes: Bytes, trailers: Option<Box<HeaderMap>>) -> Self {
        Self { bytes, trailers }
    }

    /// The next frame.
    pub(crate) fn next(&mut self) -> Option<Frame<Bytes>> {
        if self.bytes.is_empty() {
            return self.trailers.take().map(|trailers| Frame::trailers(*trailers));
        }
        Some(Frame::data(std::mem::take(&mut self.bytes)))
    }

    /// Whether there is no next frame.
    pub(crate) const fn is_end(&self) -> bool {
        self.bytes.is_empty() && self.trailers.is_none()
    }

    /// How many bytes are left.
    pub(crate) const fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether trailers follow.
    pub(crate) const fn is_trailed(&self) -> bool {
        self.trailers.is_some()
    }
}
