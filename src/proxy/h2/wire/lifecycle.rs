//! How streams end, and what they give back.

use std::collections::VecDeque;
use std::io;

use super::error::{Cause, Fault, Initiator, Reason};
use super::frame::put_reset;
use super::state::{Role, State};
use super::stream::{Direction, Key, Stream};

/// How many streams that were reset here are remembered. The other side may not know yet, so its frames are ignored.
const REMEMBERED: usize = 256;

/// What a stream says whose connection is gone.
pub(super) const LOST: &str = "stream closed because of a broken pipe";

impl State {
    /// The connection has ended: all streams have.
    pub(super) fn end_streams(&mut self, cause: &Cause) {
        self.cause = Some(cause.clone());
        for key in std::mem::take(&mut self.untaken) {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.untaken = false;
            }
        }
        for key in self.streams.keys() {
            self.end(key, cause.clone());
        }
    }

    /// The connection's task is gone.
    pub(super) fn abandon(&mut self) {
        if self.cause.is_none() {
            self.end_streams(&Cause::Io(io::ErrorKind::BrokenPipe, LOST.into()));
        }
        self.out.clear();
    }

    /// A stream has ended early.
    pub(super) fn end(&mut self, key: Key, cause: Cause) {
        if let Some(stream) = self.streams.get_mut(key)
            && !stream.is_closed()
        {
            stream.cause = Some(cause);
            self.close(key);
        }
    }

    /// A stream must be reset because the other side has broken the protocol on it.
    pub(super) fn reset_wrong(&mut self, id: u32, reason: Reason) -> Result<(), Fault> {
        self.guard.local_reset()?;
        let Some(key) = self.streams.find(id) else {
            put_reset(self.out.control(), id, reason);
            self.remember(id);
            return Ok(());
        };
        if self.streams.get_mut(key).is_some_and(|stream| std::mem::take(&mut stream.untaken)) {
            self.untaken.retain(|other| *other != key);
            self.refused.push(Some(reason));
        }
        self.reset(key, reason, Initiator::Local);
        Ok(())
    }

    /// Resets a stream, unless everything was sent and received. What waits to be sent is dropped.
    pub(super) fn reset(&mut self, key: Key, reason: Reason, by: Initiator) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        if stream.is_closed() {
            return;
        }
        stream.cause = Some(Cause::Reset(reason, by));
        if stream.id != 0 {
            let id = stream.id;
            put_reset(self.out.control(), id, reason);
            self.remember(id);
        }
        self.close(key);
        self.notify();
    }

    /// The other side has reset a stream.
    pub(super) fn was_reset(&mut self, key: Key, reason: Reason) -> Result<(), Fault> {
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        if stream.untaken {
            self.guard.untaken_reset()?;
        }
        stream.cause = Some(Cause::Reset(reason, Initiator::Remote));
        self.close(key);
        Ok(())
    }

    pub(super) fn remember(&mut self, id: u32) {
        if self.remembered.len() >= REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back(id);
    }

    /// Closes a stream if it has ended.
    pub(super) fn settle(&mut self, key: Key) {
        if self.streams.get(key).is_some_and(Stream::is_closed) {
            self.close(key);
        }
    }

    /// A stream has ended: it gives back all that it has of the connection.
    fn close(&mut self, key: Key) {
        if let Some(stream) = self.streams.get(key).filter(|stream| stream.counted) {
            let id = stream.id;
            self.streams.unname(id);
        }
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        if std::mem::take(&mut stream.counted) {
            self.active = self.active.saturating_sub(1);
        } else {
            self.opening.retain(|other| *other != key);
        }
        if std::mem::take(&mut stream.sending) {
            self.sending.retain(|other| *other != key);
        }
        if std::mem::take(&mut stream.waiting) {
            self.waiting.retain(|other| *other != key);
        }
        if std::mem::take(&mut stream.updating) {
            self.updating.retain(|other| *other != key);
        }
        let assigned = std::mem::take(&mut stream.assigned);
        stream.wanted = 0;
        stream.queue = VecDeque::new();
        stream.queued = 0;
        stream.wake_reader();
        stream.wake_writer();
        if stream.handles == 0 && !stream.untaken {
            self.remove(key);
        }
        if assigned > 0 {
            self.unassign(assigned);
        }
        // A request may wait for its place, or the connection for its end.
        if !self.opening.is_empty() || self.active == 0 {
            self.notify();
        }
    }

    /// Removes a closed stream that nobody has a handle to.
    fn remove(&mut self, key: Key) {
        if let Some(stream) = self.streams.remove(key) {
            self.credit(&stream);
            self.release(stream.window.in_flight());
        }
    }

    /// What a stream has received is not kept any more.
    fn credit(&mut self, stream: &Stream) {
        for (at, piece) in stream.data.iter().enumerate() {
            if !(stream.ends_with_data && at + 1 == stream.data.len()) {
                self.guard.taken(piece.len());
            }
        }
    }

    /// So much of the connection's window was worked on.
    pub(super) fn release(&mut self, size: u32) {
        if size > 0 && self.window.release(size) {
            self.notify();
        }
    }

    /// A handle to a stream was dropped. Without any, the stream is over.
    pub(super) fn drop_handle(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        stream.handles = stream.handles.saturating_sub(1);
        if stream.handles > 0 {
            return;
        }
        if stream.is_closed() {
            self.remove(key);
            if self.streams.is_empty() {
                self.notify();
            }
            return;
        }
        let answered = stream.sends == Direction::Ended;
        let received = stream.receives == Direction::Ended;
        // RFC 9113 §8.1: who has its answer need not send the rest of its request.
        let enough = self.role == Role::Server && answered && !received;
        let reason = if enough { Reason::NO_ERROR } else { Reason::CANCEL };
        if stream.queue.is_empty() || stream.id == 0 {
            self.reset(key, reason, Initiator::User);
        } else if !(answered && received) {
            stream.reset_after = Some(reason);
        }
        self.drop_received(key);
    }

    /// Nobody reads what a stream receives any more.
    pub(super) fn drop_received(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        stream.reads = false;
        let in_flight = stream.window.in_flight();
        stream.window.release(in_flight);
        let data = std::mem::take(&mut stream.data);
        let ends = stream.ends_with_data;
        for (at, piece) in data.iter().enumerate() {
            if !(ends && at + 1 == data.len()) {
                self.guard.taken(piece.len());
            }
        }
        self.release(in_flight);
    }
}
