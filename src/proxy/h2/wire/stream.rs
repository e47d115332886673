//! The streams of a connection.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, request};

use super::error::{Cause, Reason};
use super::window::Received;

/// A stream's place among the others of its connection.
pub(super) type Key = u32;

/// One direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// A head comes next, or an interim response.
    Head,
    /// Data or trailers come next.
    Body,
    /// Everything was received, or handed over to be sent.
    Ended,
}

/// What waits to be sent on a stream.
#[derive(Debug)]
pub(super) enum Item {
    Request(Box<request::Parts>, bool),
    Response(Box<(StatusCode, HeaderMap)>, bool),
    Trailers(Box<HeaderMap>),
    Data(Bytes, bool),
}

/// Trailers that were received.
#[derive(Debug)]
pub(super) enum Trailers {
    Whole(Box<HeaderMap>),
    TooLarge,
}

/// A stream.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Stream {
    /// Its identifier. Zero as long as a request waits to be sent.
    pub(super) id: u32,
    /// How many handles there are to it.
    pub(super) handles: u32,
    pub(super) receives: Direction,
    pub(super) sends: Direction,
    /// Why it ended early.
    pub(super) cause: Option<Cause>,
    /// Whether it counts as open.
    pub(super) counted: bool,
    /// Whether nobody has accepted it yet.
    pub(super) untaken: bool,

    /// A server's: the request, until somebody accepts it.
    pub(super) request: Option<Box<Request<()>>>,
    /// A client's: the response and those before it, until somebody asks.
    pub(super) interim: VecDeque<Response<()>>,
    pub(super) response: Option<Box<Response<()>>>,
    pub(super) data: VecDeque<Bytes>,
    pub(super) trailers: Option<Trailers>,
    /// How many bytes of data must still come, if the head says so.
    pub(super) left: Option<u64>,
    /// A client's: whether the request is a HEAD, whose response may announce a length and has no body.
    pub(super) heads: bool,
    /// Whether anybody reads the data.
    pub(super) reads: bool,
    /// Whether the last piece of data came with the end of the stream.
    pub(super) ends_with_data: bool,
    pub(super) window: Received,
    pub(super) reader: Option<Waker>,

    /// What waits to be sent.
    pub(super) queue: VecDeque<Item>,
    /// How many bytes of data are in it.
    pub(super) queued: usize,
    /// The other side's window. It may be negative (RFC 9113 §6.9.2).
    pub(super) send_window: i64,
    /// How much of the connection's window is this stream's.
    pub(super) assigned: usize,
    /// How much of it this stream wants, including what is queued.
    pub(super) wanted: usize,
    pub(super) writer: Option<Waker>,
    /// How it is reset once everything in the queue was sent.
    pub(super) reset_after: Option<Reason>,

    /// Whether it is in these queues of the connection.
    pub(super) sending: bool,
    pub(super) waiting: bool,
    pub(super) updating: bool,
}

impl Stream {
    /// A stream of this identifier, with these windows.
    pub(super) fn new(id: u32, window: i64, send_window: i64) -> Self {
        Self {
            id,
            handles: 0,
            receives: Direction::Head,
            sends: Direction::Head,
            cause: None,
            counted: false,
            untaken: false,
            request: None,
            interim: VecDeque::new(),
            response: None,
            data: VecDeque::new(),
            trailers: None,
            left: None,
            heads: false,
            reads: true,
            ends_with_data: false,
            window: Received::new(window),
            reader: None,
            queue: VecDeque::new(),
            queued: 0,
            send_window,
            assigned: 0,
            wanted: 0,
            writer: None,
            reset_after: None,
            sending: false,
            waiting: false,
            updating: false,
        }
    }

    /// Whether both directions have ended, or it was reset.
    pub(super) fn is_closed(&self) -> bool {
        let ended = self.receives == Direction::Ended && self.sends == Direction::Ended;
        self.cause.is_some() || (ended && self.queue.is_empty() && self.reset_after.is_none())
    }

    /// Whether data may be handed over.
    pub(super) const fn takes_data(&self) -> bool {
        self.cause.is_none() && matches!(self.sends, Direction::Body)
    }

    /// Whether everything that was received was taken.
    pub(super) fn is_read(&self) -> bool {
        self.receives == Direction::Ended && self.data.is_empty() && self.trailers.is_none()
    }

    /// How much data may be handed over, where at most `buffer` may wait.
    pub(super) fn capacity(&self, buffer: usize) -> usize {
        self.assigned.min(buffer).saturating_sub(self.queued)
    }

    /// Wakes the reader.
    pub(super) fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Wakes the writer.
    pub(super) fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

/// All streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    places: Vec<Option<Box<Stream>>>,
    free: Vec<Key>,
    /// The places of those that frames may name, in the order of their identifiers.
    ids: VecDeque<(u32, Key)>,
}

/// How many places a connection without streams keeps.
const KEPT: usize = 8;

impl Streams {
    /// The stream at this place.
    pub(super) fn get(&self, key: Key) -> Option<&Stream> {
        self.places.get(key as usize)?.as_deref()
    }

    /// The same.
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        self.places.get_mut(key as usize)?.as_deref_mut()
    }

    /// The place of the stream that frames call so.
    pub(super) fn find(&self, id: u32) -> Option<Key> {
        match self.ids.back() {
            Some((last, key)) if *last == id => Some(*key),
            Some((last, _)) if *last > id => {
                let at = self.ids.binary_search_by_key(&id, |(id, _)| *id).ok()?;
                self.ids.get(at).map(|(_, key)| *key)
            }
            _ => None,
        }
    }

    /// Adds a stream. Unless its identifier is zero, it is the highest one so far.
    pub(super) fn insert(&mut self, stream: Stream) -> Key {
        let id = stream.id;
        let key = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            Key::try_from(self.places.len() - 1).unwrap_or(Key::MAX)
        });
        if let Some(place) = self.places.get_mut(key as usize) {
            *place = Some(Box::new(stream));
        }
        if id != 0 {
            self.name(id, key);
        }
        key
    }

    /// Frames may name this stream from now on, by the highest identifier so far.
    pub(super) fn name(&mut self, id: u32, key: Key) {
        self.ids.push_back((id, key));
    }

    /// Frames do not name it any more.
    pub(super) fn unname(&mut self, id: u32) {
        if let Ok(at) = self.ids.binary_search_by_key(&id, |(id, _)| *id) {
            self.ids.remove(at);
        }
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, key: Key) -> Option<Box<Stream>> {
        let removed = self.places.get_mut(key as usize)?.take()?;
        self.free.push(key);
        if self.free.len() == self.places.len() && self.places.len() > KEPT {
            *self = Self::default();
        }
        Some(removed)
    }

    /// Whether there are none, and no handle to one.
    pub(super) const fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// The places of those that frames may name, above this identifier.
    pub(super) fn named_above(&self, id: u32) -> Vec<Key> {
        self.ids.iter().filter(|(other, _)| *other > id).map(|(_, key)| *key).collect()
    }

    /// The places of all.
    pub(super) fn keys(&self) -> Vec<Key> {
        let used = self.places.iter().enumerate().filter(|(_, place)| place.is_some());
        used.filter_map(|(key, _)| Key::try_from(key).ok()).collect()
    }
}
