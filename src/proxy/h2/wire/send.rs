//! What is sent on streams: heads, data, trailers.
//!
//! Frames are appended to the connection's buffer at once where it has room, and a stream's data where the windows allow it.
//! Everything else waits on its stream. Streams that wait for room send one frame each in turn.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, request};

use super::error::{Cause, Error, Initiator};
use super::frame::{END_STREAM, MAX_PAYLOAD, kind, put_head};
use super::head::has_forbidden;
use super::state::State;
use super::stream::{Direction, Item, Key, Stream};

/// The highest identifier of a stream (RFC 9113 §5.1.1).
const MAX_ID: u32 = (1 << 31) - 1;

const CLOSED: Error = Error::misuse("inactive stream");

impl State {
    /// Sends the head of an answer, or an interim response. `end`: nothing follows it.
    pub(super) fn send_response(
        &mut self,
        key: Key,
        (status, fields): (StatusCode, HeaderMap),
        end: bool,
    ) -> Result<(), Error> {
        if has_forbidden(&fields) {
            return Err(Error::misuse("malformed headers"));
        }
        let stream = self.streams.get_mut(key).ok_or(CLOSED)?;
        if let Some(cause) = &stream.cause {
            return Err(cause.into());
        }
        if stream.sends != Direction::Head {
            return Err(Error::misuse("unexpected frame type"));
        }
        if !status.is_informational() {
            stream.sends = if end { Direction::Ended } else { Direction::Body };
        }
        if self.may_append(key) {
            let id = self.streams.get(key).map_or(0, |stream| stream.id);
            self.put_response(id, status, &fields, end);
            self.settle(key);
            self.notify();
        } else {
            self.enqueue(key, Item::Response(Box::new((status, fields)), end));
        }
        Ok(())
    }

    /// Sends a request on a new stream, whose place is returned.
    pub(super) fn send_request(&mut self, parts: request::Parts, end: bool) -> Result<Key, Error> {
        if let Some(error) = self.unusable() {
            return Err(error);
        }
        if has_forbidden(&parts.headers) {
            return Err(Error::misuse("malformed headers"));
        }
        let mut stream = Stream::new(0, self.own_window, i64::from(self.peer_window));
        stream.heads = parts.method == Method::HEAD;
        stream.sends = if end { Direction::Ended } else { Direction::Body };
        stream.queue.push_back(Item::Request(Box::new(parts), end));
        let key = self.streams.insert(stream);
        self.opening.push_back(key);
        self.open_requests();
        self.notify();
        Ok(key)
    }

    /// Why no request can be sent on this connection, if none can.
    pub(super) fn unusable(&self) -> Option<Error> {
        if let Some(error) = self.broken() {
            return Some(error);
        }
        if let Some((_, reason, text)) = &self.left {
            let cause = Cause::GoAway(*reason, Initiator::Remote, text.clone());
            return Some(Error::from(&cause));
        }
        (self.newest >= MAX_ID - 1).then(|| Error::misuse("stream ID overflowed"))
    }

    /// Sends those requests for which there is a place.
    fn open_requests(&mut self) {
        while self.active < self.max_streams && self.out.has_room() && self.newest < MAX_ID - 1 {
            let Some(key) = self.opening.pop_front() else {
                return;
            };
            let Some(stream) = self.streams.get_mut(key) else {
                continue;
            };
            let Some(Item::Request(parts, end)) = stream.queue.pop_front() else {
                continue;
            };
            self.newest = if self.newest == 0 { 1 } else { self.newest + 2 };
            self.active += 1;
            stream.counted = true;
            stream.id = self.newest;
            let waits = !stream.queue.is_empty();
            self.streams.name(self.newest, key);
            self.put_request(self.newest, &parts, end);
            self.assign(key);
            if waits {
                self.schedule(key);
            }
        }
    }

    /// Sends trailers, which end the stream.
    pub(super) fn send_trailers(&mut self, key: Key, fields: HeaderMap) -> Result<(), Error> {
        if has_forbidden(&fields) {
            return Err(Error::misuse("malformed headers"));
        }
        let stream = self.streams.get_mut(key).filter(|stream| stream.takes_data());
        let stream = stream.ok_or(CLOSED)?;
        stream.sends = Direction::Ended;
        if self.may_append(key) {
            let id = self.streams.get(key).map_or(0, |stream| stream.id);
            self.put_fields(id, &fields);
            self.settle(key);
            self.notify();
        } else {
            self.enqueue(key, Item::Trailers(Box::new(fields)));
        }
        self.reserve(key, 0);
        Ok(())
    }

    /// Sends data. What the windows do not allow waits. `end`: nothing follows it.
    pub(super) fn send_data(&mut self, key: Key, data: Bytes, end: bool) -> Result<(), Error> {
        let stream = self.streams.get_mut(key).filter(|stream| stream.takes_data());
        let stream = stream.ok_or(CLOSED)?;
        let size = data.len();
        if end {
            stream.sends = Direction::Ended;
        }
        let wanted = stream.queued + size;
        if stream.wanted < wanted {
            stream.wanted = wanted;
            self.assign(key);
        }
        let allowed = self.streams.get(key).is_some_and(|stream| stream.assigned >= size);
        if allowed && size <= MAX_PAYLOAD && self.may_append(key) {
            self.put_data(key, &data, end);
            self.settle(key);
            self.notify();
        } else {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.queued += size;
            }
            self.enqueue(key, Item::Data(data, end));
        }
        if end {
            self.reserve(key, 0);
        }
        Ok(())
    }

    /// Whether a frame of this stream may be appended at once.
    fn may_append(&self, key: Key) -> bool {
        let open = |stream: &Stream| stream.id != 0 && stream.queue.is_empty();
        self.sending.is_empty() && self.out.has_room() && self.streams.get(key).is_some_and(open)
    }

    /// Something waits to be sent on a stream.
    fn enqueue(&mut self, key: Key, item: Item) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.queue.push_back(item);
            self.schedule(key);
        }
    }

    /// Puts a stream in the queue of those that send, if it may send what it has first.
    pub(super) fn schedule(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        let may = match stream.queue.front() {
            Some(Item::Data(data, _)) => stream.assigned > 0 || data.is_empty(),
            Some(_) => true,
            None => false,
        };
        if may && stream.id != 0 && !std::mem::replace(&mut stream.sending, true) {
            self.sending.push_back(key);
            self.notify();
        }
    }

    /// Appends what waits, as far as there is room.
    pub(super) fn pump(&mut self) {
        if !self.opening.is_empty() {
            self.open_requests();
        }
        while self.out.has_room()
            && let Some(key) = self.sending.pop_front()
        {
            self.send_next(key);
        }
    }

    /// Appends the next frame of a stream.
    fn send_next(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        stream.sending = false;
        let id = stream.id;
        match stream.queue.pop_front() {
            Some(Item::Data(mut data, end)) => {
                let size = data.len().min(stream.assigned).min(MAX_PAYLOAD);
                let before = stream.capacity(self.settings.max_send_buffer_size);
                let piece = data.split_to(size);
                stream.queued -= size;
                let whole = data.is_empty();
                if !whole {
                    stream.queue.push_front(Item::Data(data, end));
                }
                if !piece.is_empty() || whole {
                    self.put_data(key, &piece, end && whole);
                }
                self.wake_if_roomier(key, before);
            }
            Some(Item::Response(head, end)) => self.put_response(id, head.0, &head.1, end),
            Some(Item::Trailers(fields)) => self.put_fields(id, &fields),
            Some(Item::Request(..)) | None => {}
        }
        if let Some(stream) = self.streams.get_mut(key)
            && stream.queue.is_empty()
            && let Some(reason) = stream.reset_after.take()
        {
            self.reset(key, reason, Initiator::User);
        }
        self.schedule(key);
        self.settle(key);
    }

    /// Wakes the writer if more may be handed over than before.
    pub(super) fn wake_if_roomier(&mut self, key: Key, before: usize) {
        if let Some(stream) = self.streams.get_mut(key)
            && stream.capacity(self.settings.max_send_buffer_size) > before
        {
            stream.wake_writer();
        }
    }

    /// Appends a DATA frame, for which the windows have room.
    fn put_data(&mut self, key: Key, data: &[u8], end: bool) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        let size = data.len();
        stream.assigned = stream.assigned.saturating_sub(size);
        stream.wanted = stream.wanted.saturating_sub(size);
        let sent = i64::try_from(size).unwrap_or(0);
        stream.send_window -= sent;
        self.send_window -= sent;
        self.guard.sent_data();
        let out = self.out.buffer();
        put_head(out, size, kind::DATA, if end { END_STREAM } else { 0 }, stream.id);
        out.extend_from_slice(data);
    }
}
