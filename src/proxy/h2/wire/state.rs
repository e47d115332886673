//! The state of a connection, which its task and all handles to its streams share.

use std::collections::VecDeque;
use std::task::{Context, Waker};

use bytes::Bytes;

use super::config::Config;
use super::error::{Cause, Error, Initiator, Reason};
use super::frame::{put_goaway, put_ping, put_window_update};
use super::guard::Guard;
use super::out::Out;
use super::settings::{DEFAULT_WINDOW, MAX_WINDOW};
use super::stream::{Direction, Key, Streams};
use super::window::Received;
use crate::proxy::h2::hpack::{Decoder, Encoder};

/// The payload of the PING that follows a farewell.
const FAREWELL: [u8; 8] = *b"goodbye!";

/// How a stream was refused before anybody has seen it: the reset's error code, or `None` for a 431.
pub(super) type Refused = Option<Reason>;

/// Which side this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Client,
}

/// How far this side's farewell has come (RFC 9113 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    None,
    /// The other side was told that there will be one. It has not answered the PING behind that.
    Announced,
    /// It was told the last stream that is served.
    Said,
}

/// A PING of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserPing {
    None,
    Sent,
    Answered,
}

/// A header block that is not complete.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) stream: u32,
    pub(super) end_stream: bool,
    pub(super) bytes: Vec<u8>,
    /// How many frames have continued it.
    pub(super) frames: usize,
}

/// The state of a connection.
#[derive(Debug)]
pub(super) struct State {
    pub(super) role: Role,
    pub(super) settings: Config,
    pub(super) streams: Streams,
    pub(super) guard: Guard,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    pub(super) out: Out,

    /// Whether the other side's first SETTINGS have arrived.
    pub(super) greeted: bool,
    /// Whether the other side has acknowledged ours.
    pub(super) acknowledged: bool,
    /// The window that the other side gives new streams.
    pub(super) peer_window: u32,
    /// How many streams the other side accepts.
    pub(super) max_streams: usize,
    /// The window of new streams.
    pub(super) own_window: i64,
    pub(super) window: Received,
    /// The other side's window of the connection.
    pub(super) send_window: i64,
    /// How much of it no stream has.
    pub(super) available: i64,

    /// New streams that nobody has accepted.
    pub(super) untaken: VecDeque<Key>,
    /// Requests that wait to be sent.
    pub(super) opening: VecDeque<Key>,
    /// Streams that have something to send now.
    pub(super) sending: VecDeque<Key>,
    /// Streams that wait for the connection's window.
    pub(super) waiting: VecDeque<Key>,
    /// Streams whose window should be opened.
    pub(super) updating: Vec<Key>,
    /// How many streams count as open.
    pub(super) active: usize,
    /// The highest identifier so far: of the client's streams, on both sides.
    pub(super) newest: u32,
    /// The highest stream that was handed to the caller.
    pub(super) served: u32,
    /// Streams that were reset here.
    pub(super) remembered: VecDeque<u32>,
    pub(super) refused: Vec<Refused>,

    pub(super) farewell: Farewell,
    /// The other side's GOAWAY: its last stream, and what it says.
    pub(super) left: Option<(u32, Reason, Bytes)>,
    /// Why the connection takes no more streams.
    pub(super) cause: Option<Cause>,
    /// How many handles can send requests.
    pub(super) senders: usize,
    pub(super) ping: UserPing,
    /// A header block that is not complete.
    pub(super) partial: Option<Partial>,
    task: Option<Waker>,
    /// Whether the task was woken since it last ran.
    notified: bool,
}

impl State {
    /// A new connection.
    pub(super) fn new(role: Role, settings: Config) -> Self {
        let own = settings.window.unwrap_or(DEFAULT_WINDOW);
        let target = settings.connection_window.unwrap_or(DEFAULT_WINDOW).max(DEFAULT_WINDOW);
        let mut window = Received::new(i64::from(DEFAULT_WINDOW));
        window.enlarge(target - DEFAULT_WINDOW);
        Self {
            role,
            streams: Streams::default(),
            guard: Guard::new(target),
            decoder: Decoder::new(4096),
            encoder: Encoder::new(),
            out: Out::default(),
            greeted: false,
            acknowledged: false,
            peer_window: DEFAULT_WINDOW,
            max_streams: settings.initial_max_send_streams,
            // Until the other side knows ours, it may use the default.
            own_window: i64::from(own.max(DEFAULT_WINDOW)),
            window,
            send_window: i64::from(DEFAULT_WINDOW),
            available: i64::from(DEFAULT_WINDOW),
            untaken: VecDeque::new(),
            opening: VecDeque::new(),
            sending: VecDeque::new(),
            waiting: VecDeque::new(),
            updating: Vec::new(),
            active: 0,
            newest: 0,
            served: 0,
            remembered: VecDeque::new(),
            refused: Vec::new(),
            farewell: Farewell::None,
            left: None,
            cause: None,
            senders: 0,
            ping: UserPing::None,
            partial: None,
            task: None,
            notified: false,
            settings,
        }
    }

    /// The connection's task runs.
    pub(super) fn run_by(&mut self, cx: &Context<'_>) {
        self.notified = false;
        if !self.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            self.task = Some(cx.waker().clone());
        }
    }

    /// The connection's task has something to do.
    pub(super) fn notify(&mut self) {
        if !self.notified {
            self.notified = true;
            if let Some(task) = &self.task {
                task.wake_by_ref();
            }
        }
    }

    /// Why nothing can be sent on this connection any more.
    pub(super) fn broken(&self) -> Option<Error> {
        self.cause.as_ref().map(Error::from)
    }

    /// Begins the farewell: no new streams are accepted once the other side knows.
    pub(super) fn announce_farewell(&mut self) {
        if self.farewell == Farewell::None && self.cause.is_none() {
            self.farewell = Farewell::Announced;
            put_goaway(self.out.buffer(), MAX_WINDOW, Reason::NO_ERROR, b"");
            put_ping(self.out.buffer(), 0, FAREWELL);
            self.notify();
        }
    }

    /// The other side has answered a PING.
    pub(super) fn answered(&mut self, payload: [u8; 8]) {
        if payload == FAREWELL && self.farewell == Farewell::Announced {
            self.farewell = Farewell::Said;
            put_goaway(self.out.buffer(), self.newest, Reason::NO_ERROR, b"");
        } else if self.ping == UserPing::Sent {
            self.ping = UserPing::Answered;
        }
    }

    /// Ends the connection because of this side, which tells the other why.
    pub(super) fn go_away(&mut self, reason: Reason, text: &'static str) {
        put_goaway(self.out.buffer(), self.served, reason, text.as_bytes());
        let text = Bytes::from_static(text.as_bytes());
        self.end_streams(&Cause::GoAway(reason, Initiator::Local, text));
    }

    /// Ends a connection that has no stream left.
    pub(super) fn leave(&mut self) {
        if self.farewell != Farewell::Said {
            put_goaway(self.out.buffer(), self.served, Reason::NO_ERROR, b"");
        }
        self.end_streams(&Cause::GoAway(Reason::NO_ERROR, Initiator::User, Bytes::new()));
    }

    /// Appends the window updates that are due.
    pub(super) fn put_updates(&mut self) {
        if self.cause.is_some() {
            return;
        }
        if let Some(size) = self.window.update() {
            put_window_update(self.out.control(), 0, size);
        }
        while let Some(key) = self.updating.pop() {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.updating = false;
                if stream.receives != Direction::Ended
                    && let Some(size) = stream.window.update()
                {
                    put_window_update(self.out.control(), stream.id, size);
                }
            }
        }
    }

    /// Whether the connection has no stream left and is to end without one.
    pub(super) fn is_over(&self) -> bool {
        if self.active > 0 || !self.untaken.is_empty() {
            return false;
        }
        let forsaken = self.role == Role::Client && self.senders == 0 && self.streams.is_empty();
        self.left.is_some() || self.farewell == Farewell::Said || forsaken
    }
}
