//! Whether a client takes its answer, as its system acknowledges it.
//!
//! A socket without room says nothing about the client: it may have room again only after a megabyte. So the system is
//! asked how much was acknowledged. Between two acknowledgements a client may still be reading what its own system has
//! buffered ([`reading_time`]).

use std::time::Duration;

use super::{ConnectionState, ticks};
use crate::proxy::io::acked::Addresses;
use crate::proxy::io::buffered::reading_time;

/// How much a client has taken.
#[derive(Debug, Default)]
pub(super) struct TakenBytes {
    /// `None` if the connection is no TCP connection.
    addresses: Option<Addresses>,
    /// How many bytes were acknowledged when that was last asked.
    acknowledged: Option<u64>,
    /// For how many ticks it may still be reading what its system has buffered.
    allowance: u32,
}

impl TakenBytes {
    /// Of the connection with these addresses.
    pub(super) fn of(addresses: Option<Addresses>) -> Self {
        Self { addresses, ..Self::default() }
    }

    /// Whether the client has taken nothing for longer than `limit`. `tick` is the length of a tick.
    pub(super) fn is_silent(
        &mut self,
        state: &ConnectionState,
        limit: Duration,
        tick: Duration,
    ) -> bool {
        let Some(blocked) = state.blocked_ticks() else {
            return false;
        };
        let most = ticks(limit, tick);
        // A quarter of the timeout is exact enough.
        let looks = blocked > most || (blocked > 0 && blocked % (most / 4).max(1) == 0);
        let first = self.acknowledged.is_none();
        if looks && let Some(more) = self.more() {
            let left = self.allowance.saturating_sub(blocked);
            self.allowance = left.max(ticks(reading_time(more, limit), tick));
            if !first {
                state.set_blocked(true);
                return false;
            }
        }
        blocked > most.saturating_add(self.allowance)
    }

    /// How many bytes were acknowledged since the last call; `None` if none were, or nobody knows.
    fn more(&mut self) -> Option<u64> {
        let now = self.addresses.as_ref()?.acknowledged()?;
        let before = self.acknowledged.replace(now).unwrap_or_default();
        now.checked_sub(before).filter(|more| *more > 0)
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::proxy::watch::Connections;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::Ordering;

    const LIMIT: Duration = Duration::from_secs(4);
    const TICK: Duration = Duration::from_secs(1);

    /// How many ticks pass until the client is silent.
    fn lasts(taken: &mut TakenBytes, state: &ConnectionState, connections: &Connections) -> u32 {
        let silent = |_: &u32| {
            connections.tick.fetch_add(1, Ordering::Relaxed);
            taken.is_silent(state, LIMIT, TICK)
        };
        (1..100).find(silent).unwrap()
    }

    #[test]
    fn a_client_is_silent_when_its_system_acknowledges_nothing_more() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, peer) = listener.accept().unwrap();
        let addresses = Addresses { local: server.local_addr().unwrap(), peer };
        server.set_nonblocking(true).unwrap();
        while server.write(&[0; 4096]).is_ok() {}

        let connections = Connections::default();
        let (state, _registered) = connections.register(None);
        let mut taken = TakenBytes::of(Some(addresses));
        state.set_blocked(true);
        // Some of the answer is in the client's system: it may be reading that.
        let waited = lasts(&mut taken, &state, &connections);
        assert!((6..=13).contains(&waited), "{waited}");

        let before = addresses.acknowledged();
        while addresses.acknowledged() == before {
            client.read_exact(&mut [0; 4096]).unwrap();
        }
        let waited = lasts(&mut taken, &state, &connections);
        assert!((5..=14).contains(&waited), "{waited}");
    }

    #[test]
    fn a_pipe_has_the_timeout_alone() {
        let connections = Connections::default();
        let (state, _registered) = connections.register(None);
        state.set_blocked(true);
        assert_eq!(lasts(&mut TakenBytes::default(), &state, &connections), 5);
        state.set_blocked(false);
        assert!(!TakenBytes::default().is_silent(&state, LIMIT, TICK));
    }
}
