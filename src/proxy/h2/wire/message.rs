//! Heads and trailers that are received (RFC 9113 §8.1).

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, Version};

use super::error::{Fault, Reason};
use super::frame::{END_HEADERS, END_STREAM, Head, MAX_PAYLOAD, put_reset};
use super::head::{Block, content_length};
use super::receive::wrong;
use super::state::{Partial, Role, State};
use super::stream::{Direction, Key, Stream, Trailers};

/// How many frames one header block may have, unless the list may be so large that it needs more.
const CONTINUATIONS: usize = 5;
/// How many interim responses may wait on a stream until somebody takes them: more than come in one slice of what is read.
const MAX_INTERIM: usize = 8192;

impl State {
    /// A HEADERS frame.
    pub(super) fn headers(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        let fields = head.fields(payload)?;
        if head.stream.is_multiple_of(2) {
            return Err(wrong("a head on a stream that a client cannot open"));
        }
        let end_stream = head.has(END_STREAM);
        if head.has(END_HEADERS) {
            return self.block(head.stream, end_stream, Bytes::copy_from_slice(fields));
        }
        let (stream, bytes) = (head.stream, fields.to_vec());
        self.partial = Some(Partial { stream, end_stream, bytes, frames: 0 });
        Ok(())
    }

    /// A CONTINUATION frame.
    pub(super) fn continuation(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        let Some(partial) = self.partial.as_mut().filter(|it| it.stream == head.stream) else {
            return Err(wrong("a continuation of nothing"));
        };
        // What is far beyond the limit is not even decoded.
        let most = self.settings.list_size();
        partial.frames += 1;
        let frames = (most / MAX_PAYLOAD).saturating_mul(5) / 4;
        let calm = Reason::ENHANCE_YOUR_CALM;
        if !head.has(END_HEADERS) && partial.frames > frames.max(CONTINUATIONS) {
            return Err(Fault::Connection(calm, "too_many_continuations"));
        }
        if partial.bytes.len() + payload.len() > most.saturating_mul(2).max(2 * MAX_PAYLOAD) {
            return Err(Fault::Connection(calm, "header_block_too_large"));
        }
        partial.bytes.extend_from_slice(payload);
        if head.has(END_HEADERS)
            && let Some(Partial { stream, end_stream, bytes, .. }) = self.partial.take()
        {
            return self.block(stream, end_stream, bytes.into());
        }
        Ok(())
    }

    /// A whole header block. It is decoded in any case: later ones need its part of the table.
    fn block(&mut self, id: u32, end: bool, bytes: Bytes) -> Result<(), Fault> {
        let block = Block::decode(&mut self.decoder, &bytes, self.settings.list_size())?;
        drop(bytes);
        if block.too_large {
            self.guard.large_block()?;
        }
        if let Some(key) = self.streams.find(id) {
            return self.stream_block(key, id, end, block);
        }
        if self.remembered.contains(&id) || self.is_beyond_farewell(id) {
            return Ok(());
        }
        match (self.role, self.is_past(id)) {
            (Role::Server, false) => self.request(id, end, block),
            (Role::Client, true) => Err(Fault::Stream(id, Reason::STREAM_CLOSED)),
            (Role::Server, true) => Err(wrong("a head on a closed stream")),
            (Role::Client, false) => Err(wrong("a head on an idle stream")),
        }
    }

    /// The head of a new stream.
    fn request(&mut self, id: u32, end: bool, block: Block) -> Result<(), Fault> {
        self.newest = id;
        if block.too_large && !block.malformed {
            self.refused.push(None);
            let too_large = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            self.put_response(id, too_large, &HeaderMap::new(), true);
            if !end {
                put_reset(self.out.control(), id, Reason::NO_ERROR);
                self.remember(id);
            }
            return Ok(());
        }
        let refuse = |state: &mut Self, reason| {
            state.refused.push(Some(reason));
            Err(Fault::Stream(id, reason))
        };
        let Some(request) = block.request() else {
            return refuse(self, Reason::PROTOCOL_ERROR);
        };
        let Ok(length) = content_length(request.headers()) else {
            return refuse(self, Reason::PROTOCOL_ERROR);
        };
        if end && length.is_some_and(|length| length > 0) {
            return refuse(self, Reason::PROTOCOL_ERROR);
        }
        if self.active >= self.settings.max_concurrent() {
            return refuse(self, Reason::REFUSED_STREAM);
        }
        let mut stream = Stream::new(id, self.own_window, i64::from(self.peer_window));
        stream.receives = if end { Direction::Ended } else { Direction::Body };
        stream.left = length;
        stream.counted = true;
        stream.untaken = true;
        stream.request = Some(Box::new(request));
        self.active += 1;
        let key = self.streams.insert(stream);
        self.untaken.push_back(key);
        Ok(())
    }

    /// A head or trailers on an open stream.
    fn stream_block(&mut self, key: Key, id: u32, end: bool, block: Block) -> Result<(), Fault> {
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        match stream.receives {
            Direction::Ended => {
                Err(Fault::Connection(Reason::STREAM_CLOSED, "a head behind the end"))
            }
            Direction::Body => self.trailers(key, id, end, block),
            Direction::Head => self.response(key, id, end, block),
        }
    }

    fn trailers(&mut self, key: Key, id: u32, end: bool, block: Block) -> Result<(), Fault> {
        let malformed = Fault::Stream(id, Reason::PROTOCOL_ERROR);
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        // They are the end, and nothing may be missing before them.
        if !end || stream.left.is_some_and(|left| left > 0) {
            return Err(malformed);
        }
        let too_large = block.too_large;
        let fields = block.trailers().ok_or(malformed)?;
        stream.receives = Direction::Ended;
        if stream.reads {
            let whole = || Trailers::Whole(Box::new(fields));
            stream.trailers = Some(if too_large { Trailers::TooLarge } else { whole() });
        }
        stream.wake_reader();
        self.settle(key);
        Ok(())
    }

    fn response(&mut self, key: Key, id: u32, end: bool, block: Block) -> Result<(), Fault> {
        let malformed = Fault::Stream(id, Reason::PROTOCOL_ERROR);
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        let status = block.status().filter(|_| !block.too_large).ok_or(malformed)?;
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.version_mut() = Version::HTTP_2;
        *response.headers_mut() = block.fields;
        if status.is_informational() {
            if end {
                return Err(malformed);
            }
            if stream.interim.len() >= MAX_INTERIM {
                return Err(Fault::Stream(id, Reason::ENHANCE_YOUR_CALM));
            }
            stream.interim.push_back(response);
            stream.wake_reader();
            return Ok(());
        }
        // These have no body, whatever length they announce (RFC 9110 §6.4.1).
        let bodiless =
            stream.heads || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let length = content_length(response.headers()).map_err(|()| malformed)?;
        stream.left = length.filter(|_| !bodiless);
        if end && stream.left.is_some_and(|left| left > 0) {
            return Err(malformed);
        }
        stream.receives = if end { Direction::Ended } else { Direction::Body };
        stream.response = Some(Box::new(response));
        stream.wake_reader();
        self.settle(key);
        Ok(())
    }
}
