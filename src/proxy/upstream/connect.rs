//! Opens a connection to an endpoint: resolves its name, connects and, for HTTP/2, starts the task that drives it.
//!
//! All of this must finish within `connectTimeout`, including the name lookup.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::connect_error::{Cause, ConnectError};
use super::h1::Http1Connection;
use super::{Upstream, http2, race};
use crate::language::temporal::Span;
use crate::proxy::io::{Io, loopback};
use crate::proxy::settings;
use crate::proxy::stage::{ProxyEnd, ScriptedConnection, Stage};
use crate::proxy::tls::{ClientStream, EndpointTls, TlsError, TlsErrorKind};

/// A new connection.
#[derive(Debug)]
pub(super) struct NewHttp1 {
    pub(super) conn: Box<Http1Connection>,
    /// The address that it leads to, if it was opened here.
    pub(super) peer: Option<IpAddr>,
    /// In a rehearsal, the scripted connection.
    pub(super) line: Option<Arc<ScriptedConnection>>,
}

/// A new HTTP/2 connection.
#[derive(Debug)]
pub(super) struct NewHttp2 {
    pub(super) opened: http2::NewConnection,
    /// The address that it leads to.
    pub(super) peer: Option<IpAddr>,
    /// In a rehearsal, the scripted connection.
    pub(super) line: Option<Arc<ScriptedConnection>>,
}

/// Opens a connection to `endpoint` of `upstream`. On a stage, it leads to the script.
pub(super) async fn open(
    upstream: &Arc<Upstream>,
    endpoint: usize,
) -> Result<NewHttp1, ConnectError> {
    let Transport { io, peer, line } = transport(upstream, endpoint, deadline(upstream)).await?;
    Ok(NewHttp1 { conn: Http1Connection::new(io, upstream.settings.heads), peer, line })
}

/// The same for HTTP/2.
pub(super) async fn open_shared(
    upstream: &Arc<Upstream>,
    endpoint: usize,
) -> Result<NewHttp2, ConnectError> {
    let deadline = deadline(upstream);
    let Transport { io, peer, line } = transport(upstream, endpoint, deadline).await?;
    let settings::Upstream { heads, ping_interval, .. } = *upstream.settings;
    // In a rehearsal, the far end is always there, and PINGs would go on for ever.
    let ping = if line.is_some() { Duration::ZERO } else { ping_interval };
    let opened = http2::open(io, heads, ping, deadline).await?;
    Ok(NewHttp2 { opened, peer, line })
}

/// A byte stream to an endpoint.
struct Transport {
    io: Io,
    peer: Option<IpAddr>,
    line: Option<Arc<ScriptedConnection>>,
}

async fn transport(
    upstream: &Arc<Upstream>,
    endpoint: usize,
    deadline: Instant,
) -> Result<Transport, ConnectError> {
    if let Some(stage) = &upstream.stage {
        let (near, line) = staged(upstream, endpoint, stage, deadline).await?;
        return Ok(Transport { io: Io::Other(Box::new(near)), peer: None, line: Some(line) });
    }
    let (socket, peer) = socket(upstream, endpoint, deadline).await?;
    let io = match &upstream.endpoint(endpoint)?.tls {
        None => Io::Tcp(socket),
        Some(tls) => Io::Tls(secured(upstream, tls, socket, deadline).await?),
    };
    Ok(Transport { io, peer: Some(peer), line: None })
}

/// The time at which connecting fails if it begins now.
fn deadline(upstream: &Upstream) -> Instant {
    let now = Instant::now();
    now.checked_add(upstream.settings.connect_timeout).unwrap_or(now)
}

/// Opens a socket to `endpoint`, and returns the address that it leads to.
async fn socket(
    upstream: &Arc<Upstream>,
    endpoint: usize,
    deadline: Instant,
) -> Result<(TcpStream, IpAddr), ConnectError> {
    let limit = upstream.settings.connect_timeout;
    let at = upstream.endpoint(endpoint)?;
    let found = upstream.addresses(endpoint, at);
    let unresolved = || ConnectError::unresolved(&at.host, limit);
    let addresses = within(deadline, found, unresolved).await?;
    let connecting = async {
        let connected = race::first(&addresses, limit, tcp).await;
        connected.map_err(ConnectError::none_of)
    };
    let (stream, address) = within(deadline, connecting, || ConnectError::silent(limit)).await?;
    Ok((stream, address.ip()))
}

/// Does the TLS handshake over `io`, within the same timeout.
async fn secured<T>(
    upstream: &Upstream,
    tls: &EndpointTls,
    io: T,
    deadline: Instant,
) -> Result<ClientStream<T>, ConnectError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let greeting = async {
        let greeted = tls.connect(io).await;
        greeted.map_err(|TlsError { trouble, message }| ConnectError {
            cause: Cause::Tls(trouble),
            message,
        })
    };
    let late = || {
        let limit = Span::from_duration(upstream.settings.connect_timeout);
        let message = format!("did not finish the TLS handshake within {limit}");
        ConnectError { cause: Cause::Tls(TlsErrorKind::Timeout), message }
    };
    within(deadline, greeting, late).await
}

/// Opens a scripted connection that replaces `endpoint` on `stage`.
async fn staged(
    upstream: &Upstream,
    endpoint: usize,
    stage: &Arc<Stage>,
    deadline: Instant,
) -> Result<(ProxyEnd, Arc<ScriptedConnection>), ConnectError> {
    let at = upstream.endpoint(endpoint)?;
    let connecting = async {
        let connected = stage.connect(&upstream.settings, at).await;
        connected.map_err(|error| ConnectError::from_io(&error))
    };
    let limit = upstream.settings.connect_timeout;
    within(deadline, connecting, || ConnectError::silent(limit)).await
}

/// Awaits `connecting` until `deadline`; after that, the error that `late` makes.
async fn within<T>(
    deadline: Instant,
    connecting: impl Future<Output = Result<T, ConnectError>>,
    late: impl FnOnce() -> ConnectError,
) -> Result<T, ConnectError> {
    let mut connecting = pin!(connecting);
    // Connecting is a leaf: it may be dropped.
    if let Ok(connected) = tokio::time::timeout_at(deadline, connecting.as_mut()).await {
        return connected;
    }
    // After a stall of the process, nobody has looked at the sockets yet.
    yield_now().await;
    connecting.now_or_never().unwrap_or_else(|| Err(late()))
}

async fn tcp(address: SocketAddr) -> Result<TcpStream, ConnectError> {
    let stream = connected(address).await.map_err(|error| ConnectError::from_io(&error))?;
    // Nagle's algorithm only delays data, so failing to turn it off does no harm.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(error = %error, "TCP_NODELAY could not be set.");
    }
    Ok(stream)
}

async fn connected(address: SocketAddr) -> io::Result<TcpStream> {
    if !address.ip().is_loopback() {
        return TcpStream::connect(address).await;
    }
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    loopback::disable_pacing(&SockRef::from(&socket));
    socket.connect(address).await
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;
    use std::task::Poll;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixStream;

    use super::*;

    /// The greeting is in the socket when the process goes on, but the runtime looks at its timers first.
    #[tokio::test(start_paused = true)]
    async fn what_arrived_during_a_stall_is_no_timeout() {
        for greets in [true, false] {
            let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let mut near = UnixStream::from_std(near).unwrap();
            let limit = Duration::from_secs(1);
            let greeting = async { Ok(near.read_u8().await.unwrap()) };
            let waiting = within(Instant::now() + limit, greeting, || ConnectError::silent(limit));
            let mut waiting = pin!(waiting);
            assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
            tokio::time::advance(limit * 3).await;
            if greets {
                far.write_all(b"a").unwrap();
            }
            let waited = waiting.await.map_err(|error| error.cause);
            assert_eq!(waited, if greets { Ok(b'a') } else { Err(Cause::Timeout) });
        }
    }

    #[tokio::test]
    async fn a_port_without_a_listener_refuses() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let error = tcp(address).await;
        let error = error.err().unwrap();
        assert_eq!(error.cause, Cause::Refused);
        assert_eq!(error.to_string(), "refused the connection");
    }
}
