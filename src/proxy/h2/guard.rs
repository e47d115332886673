//! Watches the frames of a connection.
//!
//! PING, SETTINGS, `WINDOW_UPDATE` and similar frames are not part of any message, but cost work. A peer that sends many
//! of them only keeps the worker busy, so they are limited.
//!
//! The library also serves a client whose first frame is not SETTINGS.
//!
//! The library does not report which streams it refuses, or that it drops trailers that are too large. The frames show
//! both, so they are noted here for others ([`Traffic`]).

use std::sync::Arc;
use std::time::Duration;

use h2::Reason;
use tokio::time::Instant;

use super::frames::{Frame, kind};
use super::traffic::{Traffic, Violation};

/// How many frames that are not part of a message may arrive within [`FLOOD_INTERVAL`].
const MAX_EMPTY_FRAMES: u32 = 1000;
pub(super) const FLOOD_INTERVAL: Duration = Duration::from_secs(1);
/// Each frame of a message, in either direction, allows this many others: a receiver may open two windows for each
/// DATA frame, and measure the round trip.
const ALLOWED_EACH: u32 = 4;
/// How much larger a header block may be than its fields, because of padding and table updates.
const BLOCK_OVERHEAD: usize = 512;

/// Watches the frames of one connection.
#[derive(Debug)]
pub(super) struct Guard {
    traffic: Arc<Traffic>,
    /// Whether the other side is a client.
    serves: bool,
    /// Whether the next frame must be a client's first SETTINGS.
    awaits_settings: bool,
    /// The largest allowed header block.
    max_block: usize,
    /// The size of the current header block so far.
    block: usize,
    /// How many frames were not part of a message, less those that were allowed.
    empty: u32,
    /// Since when they are counted.
    since: Instant,
    /// The highest stream that was opened.
    newest: u32,
}

impl Guard {
    /// Heads may have `max_head` bytes. `serves`: the other side is a client.
    pub(super) fn new(max_head: usize, serves: bool) -> Self {
        Self {
            traffic: Arc::default(),
            serves,
            awaits_settings: serves,
            max_block: max_head.saturating_add(BLOCK_OVERHEAD),
            block: 0,
            empty: 0,
            since: Instant::now(),
            newest: 0,
        }
    }

    /// What is known of the connection.
    pub(super) const fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// A frame was read.
    pub(super) fn received(&mut self, frame: Frame) {
        if std::mem::take(&mut self.awaits_settings) {
            if !frame.may_be_first() {
                self.traffic.violated(Violation::NoSettings);
            }
            return;
        }
        match frame.kind {
            kind::HEADERS => self.block = frame.length,
            kind::CONTINUATION => self.block = self.block.saturating_add(frame.length),
            _ => {}
        }
        if matches!(frame.kind, kind::HEADERS | kind::CONTINUATION) && frame.ends_fields() {
            self.end_block(frame.stream);
        }
        if frame.is_of_message() {
            self.empty = self.empty.saturating_sub(ALLOWED_EACH);
        } else if !frame.is_limited_below() {
            self.empty += 1;
            if self.empty > MAX_EMPTY_FRAMES {
                self.too_many();
            }
        }
    }

    /// The last frame of a header block was read.
    fn end_block(&mut self, stream: u32) {
        if self.serves && stream > self.newest {
            self.newest = stream;
            self.traffic.opened(stream);
        }
        if self.block > self.max_block {
            self.traffic.large_block(stream);
        }
    }

    /// The limit was reached, which is allowed once per interval.
    fn too_many(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.since) < FLOOD_INTERVAL {
            self.traffic.violated(Violation::Flood);
        }
        self.since = now;
        self.empty = 0;
    }

    /// A frame was written.
    pub(super) fn sent(&mut self, frame: Frame) {
        match frame.kind {
            kind::DATA => self.empty = self.empty.saturating_sub(ALLOWED_EACH),
            // The only response that the library makes itself is 431.
            kind::HEADERS if self.serves => self.traffic.ended(frame.stream, None),
            kind::RST_STREAM if self.serves => {
                self.traffic.ended(frame.stream, Some(Reason::from(frame.reason)));
            }
            _ => {}
        }
    }
}
