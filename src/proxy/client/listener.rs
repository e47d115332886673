//! Listening sockets. Each worker has its own for each address, so the kernel spreads the connections and no
//! thread hands one to another. Of sockets that another process has opened there may be fewer or more than workers
//! (`server::listeners`).

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::connection;
use crate::proxy::boxed::pinned;
use crate::proxy::io::acked::Addresses;
use crate::proxy::io::peer::{Negotiated, Peer};
use crate::proxy::io::{Io, loopback};
use crate::proxy::proxy_header::Ends;
use crate::proxy::proxy_header::receive::receive;
use crate::proxy::site::runtime::{ListenerProxies, ListenerTls};
use crate::proxy::site::{Worker, WorkerState};
use crate::proxy::tls::{AcceptedConnection, ServerStream};
use crate::system::descriptors;
use crate::system::inherited::Shared;
use crate::telemetry::limiter::LogLimiter;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 4096;
/// Whether a connection has the `TCP_NODELAY` of the socket that accepted it, which spares a call for each.
const INHERITED: bool = cfg!(target_os = "linux");
/// How long to wait after an accept failed because resources ran out.
const PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for a place before another idle connection is looked for.
const AGAIN: Duration = Duration::from_millis(100);

/// `count` sockets on `address`, one per worker. With port 0 the system chooses one, the same for all.
///
/// The address is first bound without sharing. Only our own sockets may share a port: a second process on it
/// would silently get half of the connections.
pub(crate) fn bind(address: SocketAddr, count: usize) -> io::Result<Shared> {
    let alone = socket(address, false)?;
    let local = StdListener::from(alone).local_addr()?;
    let sockets: io::Result<Vec<_>> = (0..count)
        .map(|_| {
            let socket = socket(local, true)?;
            socket.listen(BACKLOG)?;
            Ok(StdListener::from(socket))
        })
        .collect();
    Ok(Shared { local, sockets: sockets? })
}

/// Makes sockets on `address` that another process has opened like those of [`bind`].
pub(crate) fn adopt(address: SocketAddr, sockets: &[StdListener]) {
    for socket in sockets {
        prepare(address, &SockRef::from(socket));
    }
}

/// Sets what the accepted connections inherit.
fn prepare(address: SocketAddr, socket: &SockRef<'_>) {
    if address.ip().is_loopback() {
        loopback::disable_pacing(socket);
    }
    if INHERITED && let Err(error) = socket.set_tcp_nodelay(true) {
        tracing::debug!(%address, %error, "TCP_NODELAY could not be set.");
    }
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    prepare(address, &SockRef::from(&socket));
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Accepts on the address configured as `address` until `stop`. Connections that the kernel has accepted by
/// then are served too: closing their socket would reset them.
pub(crate) async fn accept(
    address: SocketAddr,
    listener: TcpListener,
    worker: Arc<Worker>,
    room: Arc<Semaphore>,
    stop: CancellationToken,
) {
    let full =
        LogLimiter::new("As many clients are connected as `limits.connections` allows.", None);
    // A connection to any address of this machine has to be asked for its own.
    let local = listener.local_addr().ok().filter(|local| !local.ip().is_unspecified());
    let mut served = BoundListener { address, local, worker, proxies: None, tls: None, full };
    let told = LogLimiter::new("A connection could not be accepted.", None);
    let woken = pin!(None);
    let mut next = Accepting { listener: &listener, stop: &stop, woken };
    while let Some(accepted) = std::future::poll_fn(|cx| next.poll(cx)).await {
        match accepted {
            Ok((stream, client)) => {
                let mut permit = Arc::clone(&room).try_acquire_owned().ok();
                if permit.is_none() {
                    permit = tokio::select! {
                        biased;
                        () = stop.cancelled() => None,
                        permit = served.place(&room) => permit,
                    };
                }
                served.spawn(stream, client, permit);
            }
            Err(error) => {
                if descriptors::are_exhausted(&error) {
                    served.worker.core.connections.evict();
                }
                if let Some(untold) = told.admits(Instant::now()) {
                    tracing::warn!(error = %error, untold, "A connection could not be accepted.");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    let mut idle = Context::from_waker(Waker::noop());
    while let Poll::Ready(Ok((stream, client))) = listener.poll_accept(&mut idle) {
        served.spawn(stream, client, None);
    }
}

/// The connections that arrive on a socket until `stop`. Polled in place: a new future for each would cost as much as the
/// accepting.
struct Accepting<'a, 'p> {
    listener: &'a TcpListener,
    stop: &'a CancellationToken,
    /// Wakes the task once `stop` says so; `None` until the first wait.
    woken: Pin<&'p mut Option<WaitForCancellationFuture<'a>>>,
}

impl Accepting<'_, '_> {
    /// The next connection; `None` after `stop`.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<(TcpStream, SocketAddr)>>> {
        let Self { listener, stop, woken } = self;
        if stop.is_cancelled() {
            return Poll::Ready(None);
        }
        if woken.is_none() {
            woken.set(Some(stop.cancelled()));
            // It stays registered, with the waker of the one task that polls this.
            if woken.as_mut().as_pin_mut().is_some_and(|stopped| stopped.poll(cx).is_ready()) {
                return Poll::Ready(None);
            }
        }
        listener.poll_accept(cx).map(Some)
    }
}

type ConnectionPermit = Option<tokio::sync::OwnedSemaphorePermit>;

/// One listening address of one worker.
struct BoundListener {
    address: SocketAddr,
    /// The local address of its connections, if it is one for all.
    local: Option<SocketAddr>,
    worker: Arc<Worker>,
    /// From whom connections begin with a PROXY header. Kept like `tls`.
    proxies: Option<Arc<ListenerProxies>>,
    /// The latest TLS settings of this address. They are kept when a reload removes the listener, for
    /// connections that the kernel has already accepted: these expect TLS.
    tls: Option<Arc<ListenerTls>>,
    /// Limits how often the log says that there is no place.
    full: LogLimiter,
}

impl BoundListener {
    /// A place for a connection, where there is none. The connection that has been idle for longest is asked to go.
    async fn place(&self, room: &Arc<Semaphore>) -> ConnectionPermit {
        if let Some(untold) = self.full.admits(Instant::now()) {
            let connections = self.worker.site().runtime.limits.connections;
            tracing::warn!(
                connections,
                untold,
                "As many clients are connected as `limits.connections` allows: the longest idle connections are closed for new ones."
            );
        }
        loop {
            self.worker.core.connections.evict();
            tokio::select! {
                permit = Arc::clone(room).acquire_owned() => return permit.ok(),
                // By then another one may have been idle for long enough, or the first has not gone.
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    /// Serves a connection on its own task.
    fn spawn(&mut self, stream: TcpStream, client: SocketAddr, permit: ConnectionPermit) {
        if !INHERITED && let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%client, error = %error, "TCP_NODELAY could not be set.");
        }
        let site = self.worker.site();
        let now = site.runtime.listeners.iter().find(|listening| listening.address == self.address);
        if let Some(listening) = now {
            self.proxies.clone_from(&listening.proxies);
            self.tls.clone_from(&listening.tls);
        }
        let limit = site.runtime.limits.head_timeout;
        let (worker, tls) = (Arc::clone(&self.worker), self.tls.clone());
        let proxies = self.proxies.clone().filter(|proxies| proxies.has(client));
        let mut local = self.local.or_else(|| stream.local_addr().ok());
        let connections = &self.worker.core.connections;
        let addresses = local.map(|local| Addresses { local, peer: client });
        let (state, registered) = connections.register(addresses);
        let number = registered.number();
        // In a box of its own: the runtime would copy it again and again.
        let task = tokio::spawn(pinned(move || async move {
            let core = Arc::clone(&worker.core);
            let (mut stream, mut client) = (stream, client);
            if let Some(proxies) = proxies {
                let introduced = introduced(&mut stream, client, &proxies, (limit, &core));
                let Some(ends) = Box::pin(introduced).await else { return };
                if let Some(Ends { source, destination }) = ends {
                    (client, local) = (source, Some(destination));
                }
                state.greeted();
            }
            match tls {
                None => {
                    let (io, peer) = (Io::Tcp(stream), Peer { local, ..Peer::clear(client) });
                    connection::serve_registered(io, peer, &worker, &state).await;
                }
                // Boxed, so that clear-text connections do not carry its size.
                Some(tls) => {
                    let greeted = Box::pin(greet(stream, client, &tls, (limit, &core))).await;
                    drop(tls);
                    if let Some((io, peer)) = greeted {
                        state.greeted();
                        let (io, peer) = (Io::Served(io), Peer { local, ..peer });
                        Box::pin(connection::serve_registered(io, peer, &worker, &state)).await;
                    }
                }
            }
            drop(registered);
            drop(permit);
        }));
        // It has not begun: this is its thread.
        connections.closed_by(number, task.abort_handle());
    }
}

/// The ends of the connection for which `proxy` has opened this one, if its PROXY header says them. `None` if no header came,
/// which has been reported.
async fn introduced(
    stream: &mut TcpStream,
    proxy: SocketAddr,
    proxies: &ListenerProxies,
    (limit, core): (Duration, &WorkerState),
) -> Option<Option<Ends>> {
    match receive(stream, limit).await {
        Ok(ends) => Some(ends),
        Err(refused) => {
            proxies.refused(proxy, &refused, &core.headers);
            None
        }
    }
}

/// Does the TLS handshake of a connection. `None` if it failed, which has been reported.
async fn greet(
    stream: TcpStream,
    client: SocketAddr,
    listened: &ListenerTls,
    (limit, core): (Duration, &WorkerState),
) -> Option<(ServerStream<TcpStream>, Peer)> {
    match listened.tls.accept(stream, limit).await {
        Ok(AcceptedConnection { io, http2, resumed, certificate }) => {
            listened.done.count(usize::from(resumed));
            let over = Negotiated::Tls { http2 };
            Some((io, Peer { over, certificate, ..Peer::clear(client) }))
        }
        Err(refused) => {
            listened.refused(client, &refused, &core.handshakes);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_share_the_port_that_the_system_chose_and_nobody_else_may() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let Shared { local: bound, sockets } = bind(any, 3).unwrap();
        assert_ne!(bound.port(), 0);
        for socket in &sockets {
            assert_eq!(socket.local_addr().unwrap(), bound);
        }
        let error = bind(bound, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    /// A connection inherits from its listening socket. Once it is accepted, it would be too late, or cost a call.
    #[test]
    #[cfg(target_os = "linux")]
    fn what_a_listener_on_the_loopback_accepts_is_neither_paced_nor_delayed() {
        let Shared { local: address, sockets: listeners } =
            bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        listeners[0].set_nonblocking(false).unwrap();
        let (accepted, _) = listeners[0].accept().unwrap();
        assert!(accepted.nodelay().unwrap());
        let accepted = SockRef::from(&accepted).tcp_congestion().unwrap();
        let listening = SockRef::from(&listeners[0]).tcp_congestion().unwrap();
        assert!(!loopback::paces(&accepted), "{}", accepted.escape_ascii());
        assert_eq!(accepted, listening);
    }
}
