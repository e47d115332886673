//! A connection's stream, with its bytes counted and its frames watched.
//!
//! The library writes each DATA frame by itself. So what it writes in one turn of the connection's task is gathered here,
//! and leaves in one write at the end of the turn ([`Outlet`]).
//!
//! A failed write is reported late ([`FailedWrite`]).
//!
//! The library looks for more to read before it hands out each request that it has read. So once there was nothing to read,
//! nobody looks again in the same turn.
//!
//! Reads pause after each [`SLICE`]. Otherwise a fast client could make a connection's task read for ever, and never
//! work on what it has read.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Frames;
use super::guard::Guard;
use super::traffic::Traffic;
use crate::proxy::io::failed_write::FailedWrite;

/// How many bytes are read before the task must work on them.
const SLICE: usize = 64 * 1024;
/// How many bytes are gathered at most before they are written.
const GATHERED: usize = 64 * 1024;

thread_local! {
    /// A buffer for the next connection that gathers. So a worker has one, and a connection that says nothing has none.
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The stream of one connection.
#[derive(Debug)]
pub(crate) struct GuardedIo<T>(Arc<Mutex<Wire<T>>>);

/// Sends what was gathered of a connection's writes.
#[derive(Debug)]
pub(crate) struct Outlet<T>(Arc<Mutex<Wire<T>>>);

/// Whether the connection's task takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It does not: what is written leaves at once.
    Never,
    /// It does: what is written leaves at the end of the turn.
    Open,
    /// And a read has found nothing. The task is woken when there is something.
    Quiet,
}

#[derive(Debug)]
struct Wire<T> {
    io: T,
    read: Frames,
    written: Frames,
    guard: Guard,
    /// How many bytes were read since the last pause.
    slice: usize,
    /// Whether the other side has closed its direction, or reading failed.
    read_ended: bool,
    turn: Turn,
    /// What was gathered and not written yet: everything from `sent` on.
    gathered: Vec<u8>,
    sent: usize,
    /// Whether the library has flushed since everything was last flushed.
    asked: bool,
    /// A failed write that is not reported yet.
    failed: Option<FailedWrite>,
}

impl<T> GuardedIo<T> {
    /// A client's connection. Heads may have `max_head` bytes.
    pub(crate) fn of_client(io: T, max_head: usize) -> Self {
        Self::new(io, max_head, true)
    }

    /// A connection to a server. Heads may have `max_head` bytes.
    pub(crate) fn of_server(io: T, max_head: usize) -> Self {
        Self::new(io, max_head, false)
    }

    fn new(io: T, max_head: usize, serves: bool) -> Self {
        let (asked, answered) = (Frames::of_client(), Frames::of_server());
        let (read, written) = if serves { (asked, answered) } else { (answered, asked) };
        let wire = Wire {
            io,
            read,
            written,
            guard: Guard::new(max_head, serves),
            slice: 0,
            read_ended: false,
            turn: Turn::Never,
            gathered: Vec::new(),
            sent: 0,
            asked: false,
            failed: None,
        };
        Self(Arc::new(Mutex::new(wire)))
    }

    /// The counts of this connection.
    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(lock(&self.0).guard.traffic())
    }

    /// Where what is gathered leaves. Nothing is gathered before [`gather`](Outlet::gather).
    pub(crate) fn outlet(&self) -> Outlet<T> {
        Outlet(Arc::clone(&self.0))
    }
}

impl<T: AsyncWrite + Unpin> Outlet<T> {
    /// From now on, the task takes turns, and each ends with [`flush`](Self::flush).
    pub(crate) fn gather(&self) {
        lock(&self.0).turn = Turn::Open;
    }

    /// Ends a turn: writes what was gathered. If there is no room for it, the task is woken when there is. The library is told
    /// of a failure.
    pub(crate) fn flush(&self, cx: &mut Context<'_>) {
        let wire = &mut *lock(&self.0);
        if wire.turn == Turn::Quiet {
            wire.turn = Turn::Open;
        }
        if wire.failed.is_none() && (wire.asked || !wire.gathered.is_empty()) {
            // If this fails, the next write reports it.
            let _flushed = wire.poll_flush(cx).is_ready();
        }
    }
}

impl<T> Wire<T> {
    /// `bytes` were read.
    fn received(&mut self, bytes: &[u8]) {
        let Self { read, guard, .. } = self;
        guard.traffic().read(bytes.len());
        read.pass(bytes, |frame| guard.received(frame));
    }

    /// `bytes` were handed over to be written.
    fn sent(&mut self, bytes: &[u8]) {
        let Self { written, guard, .. } = self;
        written.pass(bytes, |frame| guard.sent(frame));
    }

    /// Handles the result of a write.
    fn wrote(
        &mut self,
        polled: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(size)) => {
                self.guard.traffic().wrote(size);
                Poll::Ready(Ok(size))
            }
            Poll::Ready(Err(error)) => {
                self.failed = Some(FailedWrite::new(error));
                self.gathered = Vec::new();
                self.sent = 0;
                // The task must read first.
                cx.waker().wake_by_ref();
                self.poll_failed(cx).map(Err)
            }
            Poll::Pending => {
                self.guard.traffic().flushed(false);
                Poll::Pending
            }
        }
    }

    /// Ready with the error of the failed write when it must be reported.
    fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(failed) = &mut self.failed else {
            return Poll::Pending;
        };
        if self.read_ended { Poll::Ready(failed.error()) } else { failed.poll(cx) }
    }

    /// Takes `parts` to be written later, if there is room.
    fn gather(&mut self, parts: &[IoSlice<'_>]) -> Option<usize> {
        let size = parts.iter().map(|part| part.len()).sum::<usize>();
        if self.gathered.len() + size > GATHERED {
            return None;
        }
        if self.gathered.capacity() == 0 {
            self.gathered = SPARE.try_with(RefCell::take).unwrap_or_default();
            self.gathered.reserve(GATHERED);
        }
        for part in parts {
            self.gathered.extend_from_slice(part);
            self.sent(part);
        }
        Some(size)
    }
}

impl<T: AsyncWrite + Unpin> Wire<T> {
    /// Ready when nothing gathered is left.
    fn poll_gathered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(left) = self.gathered.get(self.sent..).filter(|left| !left.is_empty()) {
            let polled = Pin::new(&mut self.io).poll_write(cx, left);
            match self.wrote(polled, cx)? {
                Poll::Pending => {
                    self.keep_left();
                    return Poll::Pending;
                }
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(size) => self.sent += size,
            }
        }
        self.keep_left();
        Poll::Ready(Ok(()))
    }

    /// Gives the buffer back, if most of it is free. What is left keeps the memory that it needs: there may be many
    /// connections whose other side reads nothing.
    fn keep_left(&mut self) {
        let left = self.gathered.get(self.sent..).unwrap_or_default();
        if left.len() < self.gathered.capacity() / 2 {
            let left = left.to_vec();
            let mut spare = std::mem::replace(&mut self.gathered, left);
            spare.clear();
            self.sent = 0;
            if spare.capacity() >= GATHERED {
                let _kept = SPARE.try_with(|kept| kept.replace(spare)).is_ok();
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_gathered(cx))?;
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.guard.traffic().flushed(polled.is_ready());
        self.asked = polled.is_pending();
        polled
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.failed.is_some() {
            return self.poll_failed(cx).map(Err);
        }
        if self.turn != Turn::Never
            && let Some(size) = self.gather(parts)
        {
            return Poll::Ready(Ok(size));
        }
        ready!(self.poll_gathered(cx))?;
        let polled = match parts {
            [part] => Pin::new(&mut self.io).poll_write(cx, part),
            _ => Pin::new(&mut self.io).poll_write_vectored(cx, parts),
        };
        let size = ready!(self.wrote(polled, cx))?;
        let mut left = size;
        for part in parts {
            let taken = part.get(..left.min(part.len())).unwrap_or_default();
            left -= taken.len();
            self.sent(taken);
        }
        Poll::Ready(Ok(size))
    }
}

impl<T: AsyncRead + Unpin> Wire<T> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let traffic = self.guard.traffic();
        if traffic.violation().is_some() || traffic.are_reads_held() {
            // The connection's task knows this: it closes a connection after a violation, and polls a held one again.
            return Poll::Pending;
        }
        if self.turn == Turn::Quiet {
            return Poll::Pending;
        }
        if self.slice >= SLICE {
            self.slice = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        let filled = buf.filled().get(before..).unwrap_or_default();
        if filled.is_empty() {
            self.slice = 0;
            self.read_ended |= polled.is_ready();
            if self.turn == Turn::Open && polled.is_pending() {
                self.turn = Turn::Quiet;
            }
        } else {
            self.slice += filled.len();
            self.received(filled);
            if self.guard.traffic().violation().is_some() {
                // The library gets nothing of what came with it.
                buf.set_filled(before);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for GuardedIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        lock(&self.0).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for GuardedIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        lock(&self.0).poll_write(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        lock(&self.0).poll_write(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        lock(&self.0).io.is_write_vectored()
    }

    /// Says that everything was flushed, if it is gathered.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wire = &mut *lock(&self.0);
        if wire.failed.is_some() {
            return wire.poll_failed(cx).map(Err);
        }
        wire.asked = true;
        if wire.turn == Turn::Never { wire.poll_flush(cx) } else { Poll::Ready(Ok(())) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wire = &mut *lock(&self.0);
        if wire.failed.is_none() {
            ready!(wire.poll_gathered(cx))?;
        }
        Pin::new(&mut wire.io).poll_shutdown(cx)
    }
}

fn lock<T>(wire: &Mutex<T>) -> MutexGuard<'_, T> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
