//! Floods of frames.
//!
//! PING, SETTINGS, `WINDOW_UPDATE` and similar frames are not part of any message, but cost work. A peer that sends many
//! of them only keeps the worker busy, so they are limited.

use std::time::Duration;

use tokio::time::Instant;

use super::error::{Fault, Reason};
use super::frame::{END_STREAM, Head, kind};

/// How many frames that are not part of a message may arrive within [`FLOOD_INTERVAL`].
const MAX_EMPTY_FRAMES: u32 = 1000;
/// See [`MAX_EMPTY_FRAMES`].
pub(super) const FLOOD_INTERVAL: Duration = Duration::from_secs(1);
/// Each frame of a message, in either direction, allows this many others: a receiver may open two windows for each
/// DATA frame, and measure the round trip.
const ALLOWED_EACH: u32 = 4;
/// How many streams may be reset by the other side before anybody has taken them (rapid reset).
const MAX_UNTAKEN_RESETS: u32 = 20;
/// How many streams of one connection may have to be reset because the other side broke the protocol on them
/// (`MadeYouReset`).
const MAX_LOCAL_RESETS: u32 = 1024;
/// How many header blocks of one connection may be far too large.
const LARGE_BLOCKS: u32 = 16;
/// Data in smaller pieces than this costs more memory than it has bytes.
const CRUMB: usize = 256;
/// What untaken crumbs may cost at least, in bytes.
const CRUMBS: usize = 25_600;

/// What one connection has used of its bounds.
#[derive(Debug)]
pub(super) struct Guard {
    /// How many frames were not part of a message, less those that were allowed.
    empty: u32,
    /// Since when they are counted.
    since: Instant,
    untaken_resets: u32,
    local_resets: u32,
    large_blocks: u32,
    /// What untaken crumbs cost.
    crumbs: usize,
    max_crumbs: usize,
}

impl Guard {
    /// Bounds for a connection with this window.
    pub(super) fn new(window: u32) -> Self {
        Self {
            empty: 0,
            since: Instant::now(),
            untaken_resets: 0,
            local_resets: 0,
            large_blocks: 0,
            crumbs: 0,
            max_crumbs: (window as usize / 2).max(CRUMBS),
        }
    }

    /// A frame was received.
    pub(super) fn received(&mut self, head: Head) -> Result<(), Fault> {
        let of_message = match head.kind {
            kind::HEADERS => true,
            kind::DATA => head.length > 0 || head.has(END_STREAM),
            // These are limited elsewhere, or end the connection.
            kind::PUSH_PROMISE | kind::GOAWAY | kind::CONTINUATION => return Ok(()),
            _ => false,
        };
        if of_message {
            self.empty = self.empty.saturating_sub(ALLOWED_EACH);
            return Ok(());
        }
        self.empty += 1;
        if self.empty > MAX_EMPTY_FRAMES { self.too_many() } else { Ok(()) }
    }

    /// A DATA frame was sent.
    pub(super) const fn sent_data(&mut self) {
        self.empty = self.empty.saturating_sub(ALLOWED_EACH);
    }

    /// The limit was reached, which is allowed once per interval.
    fn too_many(&mut self) -> Result<(), Fault> {
        let now = Instant::now();
        let since = std::mem::replace(&mut self.since, now);
        self.empty = 0;
        if now.duration_since(since) >= FLOOD_INTERVAL {
            return Ok(());
        }
        calm("too many frames that belong to no message")
    }

    /// The other side has reset a stream that nobody has taken.
    pub(super) const fn untaken_reset(&mut self) -> Result<(), Fault> {
        self.untaken_resets += 1;
        if self.untaken_resets > MAX_UNTAKEN_RESETS { calm("too_many_resets") } else { Ok(()) }
    }

    /// A stream of those was taken.
    pub(super) const fn taken_reset(&mut self) {
        self.untaken_resets = self.untaken_resets.saturating_sub(1);
    }

    /// A stream must be reset.
    pub(super) const fn local_reset(&mut self) -> Result<(), Fault> {
        self.local_resets += 1;
        if self.local_resets > MAX_LOCAL_RESETS { calm("too_many_internal_resets") } else { Ok(()) }
    }

    /// A header block is far too large.
    pub(super) const fn large_block(&mut self) -> Result<(), Fault> {
        self.large_blocks += 1;
        if self.large_blocks > LARGE_BLOCKS { calm("too_many_large_heads") } else { Ok(()) }
    }

    /// A piece of a body was received, and waits to be taken.
    pub(super) const fn piece(&mut self, size: usize) -> Result<(), Fault> {
        if size >= CRUMB {
            self.crumbs = self.crumbs.saturating_sub(size - CRUMB);
            return Ok(());
        }
        self.crumbs += CRUMB - size;
        if self.crumbs > self.max_crumbs { calm("too_many_data_frames") } else { Ok(()) }
    }

    /// A piece was taken.
    pub(super) const fn taken(&mut self, size: usize) {
        if size < CRUMB {
            self.crumbs = self.crumbs.saturating_sub(CRUMB - size);
        }
    }
}

const fn calm(what: &'static str) -> Result<(), Fault> {
    Err(Fault::Connection(Reason::ENHANCE_YOUR_CALM, what))
}
