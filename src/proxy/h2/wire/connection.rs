//! Reads and writes a connection.
//!
//! Frames are read in place from a buffer that the worker lends as long as there is something to read, and gathered in
//! another that it lends until everything is written. So an idle connection has neither. What a turn of the task sends
//! leaves in one write.
//!
//! Once there was nothing to read, nobody looks again in the same turn. Reads pause after each [`SLICE`]: otherwise a fast
//! peer could make a connection's task read for ever, and never work on what it has read.
//!
//! A failed write is reported late ([`FailedWrite`]).

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::error::{Cause, Error, Fault, Initiator, Reason};
use super::frame::{HEAD, Head, MAX_PAYLOAD, PREFACE};
use super::lifecycle::LOST;
use super::state::{Role, State};
use crate::proxy::h2::traffic::Traffic;
use crate::proxy::io::failed_write::FailedWrite;

/// How many bytes are read before the task must work on them.
const SLICE: usize = 64 * 1024;
/// The size of the buffer for reading. It has room for a frame.
const READ: usize = 32 * 1024;
const _: () = assert!(READ > HEAD + MAX_PAYLOAD);

thread_local! {
    /// A buffer for the next connection that reads.
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The state of a connection, shared by its task and all handles.
pub(super) type Shared = Arc<Mutex<State>>;

/// Locks the state. All of a connection is on one thread, so nobody waits.
pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Connection<T> {
    io: T,
    pub(super) shared: Shared,
    pub(super) traffic: Arc<Traffic>,
    /// The beginning of a frame whose rest has not been read.
    begun: Vec<u8>,
    /// How many bytes were read since the last pause.
    slice: usize,
    /// Whether the other side has closed its direction, or reading failed.
    read_ended: bool,
    /// Whether the task takes turns: what it sends leaves at their end.
    turns: bool,
    /// Whether what was written is not flushed.
    unflushed: bool,
    /// Whether a read has found nothing in this turn.
    quiet: bool,
    failed: Option<FailedWrite>,
    progress: Progress,
}

/// How far a connection has come.
#[derive(Debug)]
enum Progress {
    Open,
    /// Everything is written, and then the connection closes.
    Closing(Result<(), Cause>),
    Closed,
}

/// What a read has found.
enum Found {
    Nothing,
    End,
    Fault(Reason, &'static str),
    Failed(io::Error),
}

impl<T> Connection<T> {
    pub(super) const fn new(io: T, shared: Shared, traffic: Arc<Traffic>) -> Self {
        Self {
            io,
            shared,
            traffic,
            begun: Vec::new(),
            slice: 0,
            read_ended: false,
            turns: false,
            unflushed: false,
            quiet: false,
            failed: None,
            progress: Progress::Open,
        }
    }

    /// From now on, the task takes turns, and each ends with [`flush`](Self::flush).
    pub(super) const fn take_turns(&mut self) {
        self.turns = true;
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection<T> {
    /// A server's: writes its settings, and reads the client's preface.
    pub(super) fn poll_preface(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let shared = Arc::clone(&self.shared);
        let state = &mut *lock(&shared);
        self.flush_into(cx, state);
        while self.begun.len() < PREFACE.len() {
            let mut bytes = [0; PREFACE.len()];
            let room = PREFACE.len() - self.begun.len();
            let mut buf = ReadBuf::new(bytes.get_mut(..room).unwrap_or_default());
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            let read = buf.filled();
            self.traffic.read(read.len());
            self.begun.extend_from_slice(read);
            if read.is_empty() || !PREFACE.starts_with(&self.begun) {
                let text = bytes::Bytes::from_static(b"invalid preface");
                let cause = Cause::GoAway(Reason::PROTOCOL_ERROR, Initiator::Local, text);
                return Poll::Ready(Err(Error::from(&cause)));
            }
        }
        self.begun = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Reads what there is, and applies it. Ready when the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let shared = Arc::clone(&self.shared);
        let state = &mut *lock(&shared);
        state.run_by(cx);
        if matches!(self.progress, Progress::Open) {
            self.poll_open(cx, state);
        }
        if !matches!(self.progress, Progress::Open) {
            return self.poll_close(cx, state);
        }
        if !self.turns {
            self.flush_into(cx, state);
        }
        Poll::Pending
    }

    fn poll_open(&mut self, cx: &mut Context<'_>, state: &mut State) {
        match self.read(cx, state) {
            Found::Nothing => {}
            Found::End => return self.ended(state),
            Found::Fault(reason, text) => {
                state.go_away(reason, text);
                return self.close(Err(state.cause.clone()));
            }
            Found::Failed(error) => {
                state.end_streams(&Cause::from(&error));
                state.out.clear();
                return self.close(Err(state.cause.clone()));
            }
        }
        if let Some(failed) = &mut self.failed
            && let Poll::Ready(error) = failed.poll(cx)
        {
            state.end_streams(&Cause::from(&error));
            return self.close(Err(state.cause.clone()));
        }
        if state.is_over() {
            state.pump();
            let heard = state.left.clone();
            state.leave();
            self.close(left(heard));
        }
    }

    /// The other side has closed.
    fn ended(&mut self, state: &mut State) {
        state.end_streams(&Cause::Io(io::ErrorKind::BrokenPipe, LOST.into()));
        let ended = match (&self.failed, state.role) {
            (Some(failed), _) => Err(Some(Cause::from(&failed.error()))),
            (None, Role::Client) if !self.begun.is_empty() && state.left.is_none() => {
                let error = io::ErrorKind::UnexpectedEof;
                Err(Some(Cause::Io(error, "a frame breaks off".into())))
            }
            (None, _) => left(state.left.clone()),
        };
        self.close(ended);
    }

    fn close(&mut self, ended: Result<(), Option<Cause>>) {
        self.progress = Progress::Closing(match ended {
            Err(Some(cause)) => Err(cause),
            _ => Ok(()),
        });
    }

    /// Writes what is left, and closes. Ready when that is done.
    fn poll_close(&mut self, cx: &mut Context<'_>, state: &mut State) -> Poll<Result<(), Error>> {
        if let Progress::Closing(ended) = &self.progress {
            let ended = ended.clone();
            if self.failed.is_none() {
                self.flush_into(cx, state);
                if self.failed.is_none() && !state.out.unwritten().is_empty() {
                    return Poll::Pending;
                }
            }
            let closed = ready!(Pin::new(&mut self.io).poll_shutdown(cx));
            self.progress = Progress::Closed;
            return Poll::Ready(match ended {
                Err(cause) => Err(Error::from(&cause)),
                Ok(()) if state.role == Role::Client => closed.map_err(Error::from),
                Ok(()) => Ok(()),
            });
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and applies frames until there is nothing to read.
    fn read(&mut self, cx: &mut Context<'_>, state: &mut State) -> Found {
        if self.quiet {
            return Found::Nothing;
        }
        let mut buffer = SPARE.try_with(RefCell::take).unwrap_or_default();
        if buffer.len() < READ {
            buffer.resize(READ, 0);
        }
        let mut filled = self.begun.len();
        if let Some(place) = buffer.get_mut(..filled) {
            place.copy_from_slice(&self.begun);
        }
        let found = self.read_into(cx, state, &mut buffer, &mut filled);
        let begun = buffer.get(..filled).unwrap_or_default();
        self.begun.clear();
        self.begun.shrink_to(begun.len());
        self.begun.extend_from_slice(begun);
        let _kept = SPARE.try_with(|kept| kept.replace(buffer)).is_ok();
        found
    }

    /// The same. The first `filled` bytes of the buffer are a part of a frame, before and after.
    fn read_into(
        &mut self,
        cx: &mut Context<'_>,
        state: &mut State,
        buffer: &mut [u8],
        filled: &mut usize,
    ) -> Found {
        loop {
            if self.slice >= SLICE {
                self.slice = 0;
                cx.waker().wake_by_ref();
                return Found::Nothing;
            }
            // Who does not read our answers is not read either.
            if state.out.is_congested() {
                self.flush_into(cx, state);
                if state.out.is_congested() {
                    return Found::Nothing;
                }
            }
            let mut buf = ReadBuf::new(buffer.get_mut(*filled..).unwrap_or_default());
            let polled = Pin::new(&mut self.io).poll_read(cx, &mut buf);
            let read = buf.filled().len();
            match polled {
                Poll::Pending => {
                    self.slice = 0;
                    self.quiet = self.turns;
                    return Found::Nothing;
                }
                Poll::Ready(Err(error)) => {
                    self.read_ended = true;
                    return Found::Failed(error);
                }
                Poll::Ready(Ok(())) if read == 0 => {
                    self.read_ended = true;
                    return Found::End;
                }
                Poll::Ready(Ok(())) => {}
            }
            self.slice += read;
            *filled += read;
            self.traffic.read(read);
            match apply(state, buffer.get(..*filled).unwrap_or_default()) {
                Ok(applied) => {
                    buffer.copy_within(applied..*filled, 0);
                    *filled -= applied;
                }
                Err(Fault::Connection(reason, text)) => {
                    *filled = 0;
                    return Found::Fault(reason, text);
                }
                Err(Fault::Stream(_, reason)) => return Found::Fault(reason, ""),
            }
        }
    }

    /// Ends a turn: writes what was gathered. If there is no room for it, the task is woken when there is.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) {
        self.quiet = false;
        let shared = Arc::clone(&self.shared);
        let state = &mut *lock(&shared);
        if matches!(self.progress, Progress::Open) {
            self.flush_into(cx, state);
        }
    }

    fn flush_into(&mut self, cx: &mut Context<'_>, state: &mut State) {
        state.put_updates();
        state.pump();
        let mut wrote = false;
        loop {
            if self.failed.is_some() {
                return state.out.clear();
            }
            let left = state.out.unwritten();
            if left.is_empty() {
                break;
            }
            wrote = true;
            match Pin::new(&mut self.io).poll_write(cx, left) {
                Poll::Ready(Ok(0)) => self.write_failed(cx, io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(size)) => {
                    self.traffic.wrote(size);
                    state.out.wrote(size);
                    state.pump();
                }
                Poll::Ready(Err(error)) => self.write_failed(cx, error),
                Poll::Pending => {
                    state.out.keep_left();
                    return self.traffic.flushed(false);
                }
            }
        }
        if wrote || self.unflushed {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Ready(Ok(())) => {
                    self.unflushed = false;
                    self.traffic.flushed(true);
                }
                Poll::Ready(Err(error)) => self.write_failed(cx, error),
                Poll::Pending => {
                    self.unflushed = true;
                    self.traffic.flushed(false);
                }
            }
        }
    }

    /// The task must read first: the other side may have said something before.
    fn write_failed(&mut self, cx: &Context<'_>, error: io::Error) {
        self.failed = Some(FailedWrite::new(error));
        cx.waker().wake_by_ref();
    }
}

impl<T> Drop for Connection<T> {
    /// Nobody reads or writes any more.
    fn drop(&mut self) {
        lock(&self.shared).abandon();
    }
}

/// How a connection ends that the other side has left.
fn left(heard: Option<(u32, Reason, bytes::Bytes)>) -> Result<(), Option<Cause>> {
    match heard {
        Some((_, reason, text)) if reason != Reason::NO_ERROR => {
            Err(Some(Cause::GoAway(reason, Initiator::Remote, text)))
        }
        _ => Ok(()),
    }
}

/// Applies all whole frames. Returns how many bytes they have.
fn apply(state: &mut State, bytes: &[u8]) -> Result<usize, Fault> {
    let mut rest = bytes;
    while let Some(head) = rest.first_chunk().map(Head::parse) {
        if head.length > MAX_PAYLOAD {
            let text = "a frame is too large";
            return Err(Fault::Connection(Reason::FRAME_SIZE_ERROR, text));
        }
        let Some(payload) = rest.get(HEAD..HEAD + head.length) else {
            break;
        };
        state.frame(head, payload)?;
        rest = rest.get(HEAD + head.length..).unwrap_or_default();
    }
    Ok(bytes.len() - rest.len())
}
