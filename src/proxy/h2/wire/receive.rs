//! What is received: each frame is checked and applied (RFC 9113 §5, §6).

use bytes::Bytes;

use super::error::{Cause, Fault, Initiator, Reason};
use super::frame::{ACK, END_STREAM, Head, kind, number_at, put_head, put_ping};
use super::settings::{DEFAULT_WINDOW, Settings};
use super::state::{Farewell, Role, State};
use super::stream::{Direction, Key};

/// The connection ends because of this.
pub(super) const fn wrong(what: &'static str) -> Fault {
    Fault::Connection(Reason::PROTOCOL_ERROR, what)
}

const fn wrong_size(what: &'static str) -> Fault {
    Fault::Connection(Reason::FRAME_SIZE_ERROR, what)
}

impl State {
    /// Applies a frame. A fault of a stream only resets it.
    pub(super) fn frame(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        match self.checked(head, payload) {
            Err(Fault::Stream(id, reason)) => self.reset_wrong(id, reason),
            applied => applied,
        }
    }

    fn checked(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        if !self.greeted && (head.kind != kind::SETTINGS || head.has(ACK)) {
            return Err(wrong(if self.role == Role::Server {
                "the client's first frame is not SETTINGS"
            } else {
                "the server's first frame is not SETTINGS"
            }));
        }
        if self.partial.is_some() && head.kind != kind::CONTINUATION {
            return Err(wrong("a head is interrupted"));
        }
        if self.greeted {
            self.guard.received(head)?;
        }
        match head.kind {
            kind::DATA => self.data(head, payload),
            kind::HEADERS => self.headers(head, payload),
            kind::CONTINUATION => self.continuation(head, payload),
            kind::RST_STREAM => self.reset_received(head, payload),
            kind::SETTINGS => self.settings_received(head, payload),
            kind::PING => self.ping(head, payload),
            kind::GOAWAY => self.goaway(head, payload),
            kind::WINDOW_UPDATE => self.window_update(head, payload),
            kind::PRIORITY if head.stream == 0 => Err(wrong("a priority without a stream")),
            kind::PRIORITY if payload.len() != 5 => Err(wrong_size("PRIORITY of a wrong size")),
            kind::PUSH_PROMISE => Err(wrong("nobody may push")),
            // RFC 9113 §5.5: others are ignored, and so are priorities.
            _ => Ok(()),
        }
    }

    /// Whether the client's streams with this identifier have been opened, or will never be.
    pub(super) const fn is_past(&self, id: u32) -> bool {
        id % 2 == 1 && id <= self.newest
    }

    /// Whether frames of this stream are ignored because of the farewell (RFC 9113 §6.8).
    pub(super) fn is_beyond_farewell(&self, id: u32) -> bool {
        self.role == Role::Server && self.farewell == Farewell::Said && id > self.newest
    }

    fn data(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        let id = head.stream;
        let data = head.unpadded(payload)?;
        let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        if id == 0 {
            return Err(wrong("data without a stream"));
        }
        if !self.window.allows(size) {
            let reason = Reason::FLOW_CONTROL_ERROR;
            return Err(Fault::Connection(reason, "more data than the window allows"));
        }
        self.window.receive(size);
        let Some(key) = self.streams.find(id) else {
            self.window.release(size);
            if self.remembered.contains(&id) || self.is_beyond_farewell(id) {
                return Ok(());
            }
            if self.is_past(id) {
                return Err(Fault::Stream(id, Reason::STREAM_CLOSED));
            }
            return Err(wrong("data on an idle stream"));
        };
        let kept = self.stream_data(key, data, size, head.has(END_STREAM));
        if !matches!(kept, Ok(true)) {
            self.window.release(size);
        }
        kept.map(drop)
    }

    /// Data of an open stream. `size` includes padding. Returns whether the data is kept, and its window used.
    fn stream_data(&mut self, key: Key, data: &[u8], size: u32, end: bool) -> Result<bool, Fault> {
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(false);
        };
        match stream.receives {
            Direction::Body => {}
            Direction::Head => return Err(wrong("data before a head")),
            Direction::Ended => {
                return Err(Fault::Connection(Reason::STREAM_CLOSED, "data behind the end"));
            }
        }
        if !stream.window.allows(size) {
            return Err(Fault::Stream(stream.id, Reason::FLOW_CONTROL_ERROR));
        }
        if let Some(left) = &mut stream.left {
            let after = left.checked_sub(data.len() as u64);
            *left = after.ok_or(Fault::Stream(stream.id, Reason::PROTOCOL_ERROR))?;
        }
        if end {
            if stream.left.is_some_and(|left| left > 0) {
                return Err(Fault::Stream(stream.id, Reason::PROTOCOL_ERROR));
            }
            stream.receives = Direction::Ended;
        }
        let reads = stream.reads;
        if reads {
            stream.window.receive(size);
            let padding = size - u32::try_from(data.len()).unwrap_or(size);
            stream.window.release(padding);
            self.window.release(padding);
            if !data.is_empty() {
                stream.data.push_back(Bytes::copy_from_slice(data));
                stream.ends_with_data = end;
                if !end {
                    self.guard.piece(data.len())?;
                }
            }
            if end || !data.is_empty() {
                stream.wake_reader();
            }
        }
        if end {
            self.settle(key);
        }
        Ok(reads)
    }

    fn reset_received(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        let Some(code) = number_at(payload, 0).filter(|_| payload.len() == 4) else {
            return Err(wrong_size("RST_STREAM of a wrong size"));
        };
        if let Some(key) = self.streams.find(head.stream) {
            return self.was_reset(key, code.into());
        }
        let known = self.is_past(head.stream) || self.is_beyond_farewell(head.stream);
        if known { Ok(()) } else { Err(wrong("a reset of an idle stream")) }
    }

    fn settings_received(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        if head.stream != 0 {
            return Err(wrong("settings of a stream"));
        }
        if head.has(ACK) {
            if !payload.is_empty() {
                return Err(wrong_size("an acknowledgement with settings"));
            }
            if std::mem::replace(&mut self.acknowledged, true) {
                return Err(wrong("an acknowledgement of nothing"));
            }
            self.apply_own();
            return Ok(());
        }
        let settings = Settings::parse(payload, self.role == Role::Server)?;
        self.apply(settings)?;
        self.greeted = true;
        put_head(self.out.control(), 0, kind::SETTINGS, ACK, 0);
        Ok(())
    }

    /// The other side knows our settings. If they make windows smaller than the default, they are from now on.
    fn apply_own(&mut self) {
        let own = i64::from(self.settings.window.unwrap_or(DEFAULT_WINDOW));
        let by = own - self.own_window;
        self.own_window = own;
        if by != 0 {
            for key in self.streams.keys() {
                if let Some(stream) = self.streams.get_mut(key) {
                    stream.window.change(by);
                }
            }
        }
    }

    fn ping(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        let payload =
            <[u8; 8]>::try_from(payload).map_err(|_| wrong_size("PING of a wrong size"))?;
        if head.stream != 0 {
            return Err(wrong("a PING of a stream"));
        }
        if head.has(ACK) {
            self.answered(payload);
        } else {
            put_ping(self.out.control(), ACK, payload);
        }
        Ok(())
    }

    fn goaway(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        let (Some(last), Some(code)) = (number_at(payload, 0), number_at(payload, 4)) else {
            return Err(wrong_size("GOAWAY of a wrong size"));
        };
        if head.stream != 0 {
            return Err(wrong("GOAWAY of a stream"));
        }
        let last = last & 0x7fff_ffff;
        if self.left.as_ref().is_some_and(|(before, ..)| last > *before) {
            return Err(wrong("GOAWAY takes streams back"));
        }
        let (reason, text) = (Reason::from(code), payload.get(8..).unwrap_or_default());
        let text = Bytes::copy_from_slice(text);
        let cause = Cause::GoAway(reason, Initiator::Remote, text.clone());
        self.left = Some((last, reason, text));
        if self.role == Role::Client {
            let unprocessed = self.streams.named_above(last);
            let unsent = self.opening.iter().copied().collect::<Vec<_>>();
            for key in unprocessed.into_iter().chain(unsent) {
                self.end(key, cause.clone());
            }
        }
        Ok(())
    }

    fn window_update(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        let Some(size) = number_at(payload, 0).filter(|_| payload.len() == 4) else {
            return Err(wrong_size("WINDOW_UPDATE of a wrong size"));
        };
        let (id, size) = (head.stream, size & 0x7fff_ffff);
        if size == 0 {
            return Err(wrong("WINDOW_UPDATE of nothing"));
        }
        if id != 0 && !self.is_past(id) && !self.is_beyond_farewell(id) {
            return Err(wrong("a window of an idle stream"));
        }
        self.window_opened(id, size)
    }
}
