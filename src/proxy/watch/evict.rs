//! Which connection is closed when there is no place for another: the one that has been idle for longest.
//!
//! Looking through all connections for each new one would let a client that opens many cost more than it does. So one
//! look finds many candidates, and a candidate that has done something meanwhile is passed over.

use std::sync::atomic::Ordering;

use super::{AFTER, ConnectionState, Connections, IDLE, NEW, OpenConnection, QUIET, lock};

/// How many candidates one look finds at most.
const BATCH: usize = 64;

/// A connection that was idle when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// For how many ticks it was idle.
    ticks: u32,
    key: u64,
}

impl Connections {
    /// Closes the connection that has been idle for longest. `false` if none has been idle for long enough: one that has
    /// just begun or just been answered is about to be used.
    pub(crate) fn evict(&self) -> bool {
        let open = lock(&self.open);
        let mut longest = lock(&self.longest);
        if longest.is_empty() {
            longest.extend(open.iter().filter_map(|(key, open)| candidate(*key, open)));
            keep_longest(&mut longest);
        }
        while let Some(Candidate { ticks, key }) = longest.pop() {
            let there = open.get(&key).and_then(|open| Some((open, candidate(key, open)?)));
            if let Some((open, now)) = there
                && now.ticks >= ticks
            {
                close(open);
                return true;
            }
        }
        false
    }
}

impl ConnectionState {
    /// For how many ticks it has been idle: between two requests, before the first one, or in a handshake.
    fn idle_ticks(&self) -> Option<u32> {
        [IDLE, NEW, QUIET].iter().find_map(|doing| self.ticks(*doing))
    }
}

fn candidate(key: u64, open: &OpenConnection) -> Option<Candidate> {
    let state = &open.state;
    let ticks = state.idle_ticks().filter(|ticks| *ticks >= AFTER)?;
    // The last bytes of an answer are still on their way.
    let takes = state.blocked_ticks().is_none();
    (takes && open.task.is_some()).then_some(Candidate { ticks, key })
}

/// Keeps the longest idle ones, the longest last.
fn keep_longest(all: &mut Vec<Candidate>) {
    if let Some(rest) = all.len().checked_sub(BATCH).filter(|rest| *rest > 0) {
        all.select_nth_unstable(rest);
        all.drain(..rest);
    }
    all.sort_unstable();
    all.shrink_to(BATCH);
}

/// Lets a connection say goodbye, if its protocol has one. One that was asked before, or has not begun, is dropped.
fn close(open: &OpenConnection) {
    let begun = open.state.ticks(NEW).is_none();
    if begun && !open.state.is_draining() {
        // It gets as long as others are left alone.
        open.state.set(open.state.doing.load(Ordering::Relaxed));
        open.state.drain();
    } else if let Some(task) = &open.task {
        task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::registration::Registration;
    use super::*;

    type Held = (Arc<ConnectionState>, Registration, tokio::task::JoinHandle<()>);

    /// A connection that never ends by itself.
    fn open(connections: &Connections) -> Held {
        let (state, registered) = connections.register(None);
        let task = tokio::spawn(std::future::pending());
        registered.closed_by(task.abort_handle());
        (state, registered, task)
    }

    fn pass(connections: &Connections, ticks: u32) {
        connections.tick.fetch_add(ticks, Ordering::Relaxed);
    }

    #[tokio::test]
    async fn the_longest_idle_goes_first() {
        let connections = Connections::default();
        let all: Vec<_> = (0..200)
            .map(|_| {
                pass(&connections, 1);
                let opened = open(&connections);
                opened.0.set(IDLE);
                opened
            })
            .collect();
        pass(&connections, AFTER);
        // Two are used meanwhile: one before the look, one after it.
        all[0].0.begin();
        for expected in [1, 2, 4] {
            assert!(connections.evict());
            assert!(all[expected].0.is_draining(), "{expected}");
            all[3].0.begin();
        }
        let closed = all.iter().filter(|(state, ..)| state.is_draining()).count();
        assert_eq!(closed, 3, "one for each call");
    }

    #[tokio::test]
    async fn what_is_in_use_stays_and_what_does_not_say_goodbye_is_dropped() {
        let connections = Connections::default();
        let [busy, blocked, fresh, silent, quiet] = [(); 5].map(|()| open(&connections));
        busy.0.begin();
        blocked.0.set(IDLE);
        blocked.0.set_blocked(true);
        quiet.0.multiplexed();
        pass(&connections, AFTER);
        fresh.0.set(IDLE);
        assert!(connections.evict() && connections.evict());
        tokio::task::yield_now().await;
        assert!(silent.2.is_finished(), "there is no goodbye before the first request");
        drop(silent);
        assert!(!connections.evict(), "the others are in use");
        assert!(quiet.0.is_draining() && !quiet.2.is_finished());
        assert!(!fresh.0.is_draining());
        pass(&connections, AFTER);
        fresh.0.begin();
        assert!(connections.evict(), "it does not go by itself");
        tokio::task::yield_now().await;
        assert!(quiet.2.is_finished() && !busy.2.is_finished() && !blocked.2.is_finished());
    }
}
