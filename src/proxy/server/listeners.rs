//! The listening sockets of the process: new ones, or such as another process has opened ([`Inherited`]), and which worker
//! accepts on which.
//!
//! Each worker has further descriptors of them. Those here are kept for a process that replaces this one.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};

use crate::proxy::client::listener;
use crate::system::inherited::{Inherited, LISTENER, Opener, Shared};

/// For each worker, what it accepts on: the addresses as configured, with a socket for each. There may be several sockets
/// for one address.
pub(super) type Shares = Vec<Vec<(SocketAddr, TcpListener)>>;

/// The listening sockets, by their addresses as configured.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    open: HashMap<SocketAddr, Shared>,
    /// The sockets of a service manager. It keeps them open whatever this process does, and nobody else can listen on
    /// their addresses: a listener that a reload removes and adds again gets them again.
    managed: Inherited,
}

impl Listeners {
    /// Opens what is `wanted`, inherited or new, for so many workers. The error names the address.
    pub(super) fn start(
        wanted: &[SocketAddr],
        workers: usize,
        inherited: Inherited,
    ) -> io::Result<(Self, Shares)> {
        let mut listeners = Self { open: HashMap::new(), managed: inherited };
        let opened = listeners.open_missing(wanted, workers)?;
        let shares = shares(&opened, workers)?;
        listeners.add(opened);
        if listeners.managed.opener() != Opener::ServiceManager {
            listeners.managed = Inherited::default();
        }
        Ok((listeners, shares))
    }

    /// Opens those of `wanted` that are not open, without any other change. The error names the address.
    pub(super) fn open_missing(
        &self,
        wanted: &[SocketAddr],
        workers: usize,
    ) -> io::Result<Vec<(SocketAddr, Shared)>> {
        let missing = wanted.iter().filter(|address| !self.open.contains_key(address));
        let opened = missing.map(|address| {
            let shared =
                self.managed.share(LISTENER, *address).and_then(|inherited| match inherited {
                    Some(shared) => {
                        listener::adopt(*address, &shared.sockets);
                        Ok(shared)
                    }
                    None => listener::bind(*address, workers),
                });
            shared.map(|shared| (*address, shared)).map_err(|error| at(*address, &error))
        });
        opened.collect()
    }

    /// Keeps what was opened.
    pub(super) fn add(&mut self, opened: Vec<(SocketAddr, Shared)>) {
        self.open.extend(opened);
    }

    /// Closes all but `wanted`. Returns what was closed.
    pub(super) fn close_others(&mut self, wanted: &[SocketAddr]) -> Vec<SocketAddr> {
        let (kept, closed) = std::mem::take(&mut self.open)
            .into_iter()
            .partition::<HashMap<_, _>, _>(|(address, _)| wanted.contains(address));
        self.open = kept;
        for (address, shared) in &closed {
            if self.managed.share(LISTENER, *address).is_ok_and(|kept| kept.is_some()) {
                tracing::warn!(
                    address = %shared.local,
                    "The service manager keeps this address open: connections to it wait until a listener has it again."
                );
            }
        }
        closed.into_keys().collect()
    }

    /// Whether a service manager keeps addresses open.
    pub(super) const fn are_managed(&self) -> bool {
        !self.managed.is_empty()
    }

    /// Closes everything.
    pub(super) fn close(&mut self) {
        *self = Self::default();
    }

    /// The addresses on which it listens, in order.
    pub(super) fn local_addrs(&self) -> Vec<SocketAddr> {
        let mut all: Vec<_> = self.open.values().map(|shared| shared.local).collect();
        all.sort_unstable();
        all
    }

    /// The address on which it listens for one that is configured.
    pub(super) fn local_addr(&self, configured: SocketAddr) -> Option<SocketAddr> {
        Some(self.open.get(&configured)?.local)
    }

    /// Further descriptors of all sockets, each with its address as configured.
    pub(super) fn copies(&self) -> io::Result<Vec<(SocketAddr, TcpListener)>> {
        let all = self.open.iter().flat_map(|(address, shared)| {
            shared.sockets.iter().map(|socket| Ok((*address, socket.try_clone()?)))
        });
        all.collect()
    }
}

/// Divides what was opened among the workers. Each worker accepts on at least one socket of each address, and on each
/// socket at least one worker accepts: the system puts connections into the queue of each, and they would stay there.
pub(super) fn shares(opened: &[(SocketAddr, Shared)], workers: usize) -> io::Result<Shares> {
    let mut shares: Shares = (0..workers).map(|_| Vec::new()).collect();
    for (address, Shared { sockets, .. }) in opened {
        let each = shares.len().max(sockets.len());
        let sockets = sockets.iter().cycle();
        for (place, socket) in (0..each).zip(sockets) {
            let worker = place.checked_rem(workers).and_then(|worker| shares.get_mut(worker));
            if let Some(worker) = worker {
                worker.push((*address, socket.try_clone()?));
            }
        }
    }
    Ok(shares)
}

fn at(address: SocketAddr, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::time::Duration;
    use tokio::time::Instant;

    fn any() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    /// The addresses of connections that `socket` has in its queue.
    fn waiting(socket: &TcpListener) -> impl Iterator<Item = SocketAddr> {
        std::iter::from_fn(|| socket.accept().ok()).map(|(_, client)| client)
    }

    #[test]
    fn every_worker_has_a_socket_and_every_socket_a_worker() {
        for (had, has) in [(1, 3), (3, 1), (2, 3), (3, 2), (4, 4)] {
            let opened = vec![(any(), listener::bind(any(), had).unwrap())];
            let address = opened[0].1.local;
            let shares = shares(&opened, has).unwrap();
            assert!(shares.iter().all(|share| !share.is_empty()), "{had} {has}");
            drop(opened);
            // The system spreads these over all the sockets that exist.
            let clients: Vec<_> =
                (0..40).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
            let wanted: HashSet<_> =
                clients.iter().map(|client| client.local_addr().unwrap()).collect();
            let (begun, mut found) = (Instant::now(), HashSet::new());
            while found.len() < wanted.len() && begun.elapsed() < Duration::from_secs(10) {
                found.extend(shares.iter().flatten().flat_map(|(_, socket)| waiting(socket)));
            }
            assert_eq!(found, wanted, "{had} {has}");
        }
    }

    #[test]
    fn what_a_service_manager_has_opened_comes_back_and_what_a_process_had_does_not() {
        for (opener, comes_back) in
            [(Inherited::default(), true), (Inherited::of_process(1), false)]
        {
            let mut inherited = opener;
            let theirs = TcpListener::bind(any()).unwrap();
            let address = theirs.local_addr().unwrap();
            inherited.add("web".into(), None, theirs.try_clone().unwrap()).unwrap();
            let (mut listeners, shares) = Listeners::start(&[address], 2, inherited).unwrap();
            assert_eq!(shares.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
            assert_eq!(listeners.local_addrs(), [address]);
            assert_eq!(listeners.copies().unwrap().len(), 1);
            assert_eq!(listeners.close_others(&[]), [address]);
            let again = listeners.open_missing(&[address], 2);
            assert_eq!(again.is_ok(), comes_back, "{again:?}");
        }
    }
}
