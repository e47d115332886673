//! Windows for what is sent (RFC 9113 §5.2, §6.9).
//!
//! A stream's share of the connection's window is assigned to it before it sends. So nobody who was told that there is
//! capacity finds it gone.

use super::error::{Fault, Reason};
use super::settings::{MAX_WINDOW, Settings};
use super::state::State;
use super::stream::Key;

impl State {
    /// The writer wants to hand over so much more.
    pub(super) fn reserve(&mut self, key: Key, size: usize) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        let wanted = stream.queued + size;
        if wanted > stream.wanted {
            if stream.takes_data() {
                stream.wanted = wanted;
                self.assign(key);
            }
            return;
        }
        stream.wanted = wanted;
        let spare = stream.assigned.saturating_sub(wanted);
        if spare > 0 {
            stream.assigned -= spare;
            self.unassign(spare);
        }
    }

    /// Assigns a stream as much of the connection's window as it wants and its own window allows.
    pub(super) fn assign(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(key).filter(|stream| stream.id != 0) else {
            return;
        };
        let most = usize::try_from(stream.send_window).unwrap_or(0);
        let more = stream.wanted.min(most).saturating_sub(stream.assigned);
        if more == 0 {
            return;
        }
        let given = more.min(usize::try_from(self.available).unwrap_or(0));
        if given < more && !std::mem::replace(&mut stream.waiting, true) {
            self.waiting.push_back(key);
        }
        if given == 0 {
            return;
        }
        let before = stream.capacity(self.settings.max_send_buffer_size);
        stream.assigned += given;
        self.available -= i64::try_from(given).unwrap_or(i64::MAX);
        self.wake_if_roomier(key, before);
        self.schedule(key);
    }

    /// A stream gives back so much of the connection's window.
    pub(super) fn unassign(&mut self, size: usize) {
        self.available += i64::try_from(size).unwrap_or(0);
        self.assign_waiting();
    }

    /// Assigns what there is of the connection's window to those that wait for it, in their order.
    fn assign_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            if self.available <= 0 {
                return;
            }
            let Some(key) = self.waiting.pop_front() else {
                return;
            };
            if let Some(stream) = self.streams.get_mut(key) {
                stream.waiting = false;
            }
            self.assign(key);
        }
    }

    /// The other side has opened a window: a stream's, or, without an identifier, the connection's.
    pub(super) fn window_opened(&mut self, id: u32, size: u32) -> Result<(), Fault> {
        if id == 0 {
            self.send_window += i64::from(size);
            if self.send_window > i64::from(MAX_WINDOW) {
                return Err(too_large());
            }
            self.available += i64::from(size);
            self.assign_waiting();
            return Ok(());
        }
        let Some(key) = self.streams.find(id) else {
            return Ok(());
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        stream.send_window += i64::from(size);
        if stream.send_window > i64::from(MAX_WINDOW) {
            return Err(Fault::Stream(id, Reason::FLOW_CONTROL_ERROR));
        }
        self.assign(key);
        Ok(())
    }

    /// The other side has changed its settings (RFC 9113 §6.9.2).
    pub(super) fn apply(&mut self, settings: Settings) -> Result<(), Fault> {
        if let Some(size) = settings.header_table_size {
            self.encoder.set_max_table_size(size as usize);
        }
        match settings.max_concurrent_streams {
            Some(streams) => self.max_streams = streams as usize,
            None if !self.greeted => self.max_streams = usize::MAX,
            None => {}
        }
        if let Some(size) = settings.initial_window_size {
            let by = i64::from(size) - i64::from(self.peer_window);
            self.peer_window = size;
            if by != 0 {
                self.change_windows(by)?;
            }
        }
        Ok(())
    }

    fn change_windows(&mut self, by: i64) -> Result<(), Fault> {
        for key in self.streams.keys() {
            let Some(stream) = self.streams.get_mut(key) else {
                continue;
            };
            stream.send_window += by;
            if stream.send_window > i64::from(MAX_WINDOW) {
                return Err(too_large());
            }
            let most = usize::try_from(stream.send_window).unwrap_or(0);
            let over = stream.assigned.saturating_sub(most);
            stream.assigned -= over;
            if over > 0 {
                self.unassign(over);
            }
            self.assign(key);
        }
        Ok(())
    }
}

const fn too_large() -> Fault {
    Fault::Connection(Reason::FLOW_CONTROL_ERROR, "a window is too large")
}
