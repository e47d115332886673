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
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::condition::Reported;
use super::connect_error::{Cause, ConnectError};
use super::endpoints::WorkerEndpoint;
use super::h1::Http1Connection;
use super::resolve::in_turn;
use super::{Upstream, condition, http2, race};
use crate::language::temporal::Span;
use crate::proxy::io::{Io, loopback};
use crate::proxy::proxy_header::{self, Ends};
use crate::proxy::settings;
use crate::proxy::stage::{ProxyEnd, ScriptedConnection, Stage};
use crate::proxy::tls::{ClientStream, EndpointTls, TlsError, TlsErrorKind};

/// A new connection.
#[derive(Debug)]
pub(super) struct NewHttp1 {
    pub(super) conn: Box<Http1Connection>,
    /// The endpoint that it leads to: of a name, whichever address gave a connection.
    pub(super) endpoint: Arc<WorkerEndpoint>,
    /// The address that it leads to, if it was opened here.
    pub(super) peer: Option<IpAddr>,
    /// In a rehearsal, the scripted connection.
    pub(super) line: Option<Arc<ScriptedConnection>>,
}

/// A new HTTP/2 connection.
#[derive(Debug)]
pub(super) struct NewHttp2 {
    pub(super) opened: http2::NewConnection,
    /// The endpoint that it leads to.
    pub(super) endpoint: Arc<WorkerEndpoint>,
    /// The address that it leads to.
    pub(super) peer: Option<IpAddr>,
    /// In a rehearsal, the scripted connection.
    pub(super) line: Option<Arc<ScriptedConnection>>,
}

/// Where a connection leads, and for whom it is.
type To<'a> = (&'a Arc<WorkerEndpoint>, Option<&'a Ends>);

/// Opens a connection to an endpoint of `upstream`. On a stage, it leads to the script.
pub(super) async fn open(
    upstream: &Upstream,
    to: To<'_>,
    deadline: Instant,
) -> Result<NewHttp1, ConnectError> {
    let Transport { io, endpoint, peer, line } = transport(upstream, to, deadline).await?;
    let conn = Http1Connection::new(io, upstream.settings.heads);
    Ok(NewHttp1 { conn, endpoint, peer, line })
}

/// The same for HTTP/2.
pub(super) async fn open_shared(upstream: &Upstream, to: To<'_>) -> Result<NewHttp2, ConnectError> {
    let deadline = deadline(upstream);
    let Transport { io, endpoint, peer, line } = transport(upstream, to, deadline).await?;
    let settings::Upstream { heads, ping_interval, .. } = *upstream.settings;
    // In a rehearsal, the far end is always there, and PINGs would go on for ever.
    let ping = if line.is_some() { Duration::ZERO } else { ping_interval };
    let opened = http2::open(io, heads, ping, deadline).await;
    let opened = opened.inspect_err(|error| failed(&endpoint, error))?;
    Ok(NewHttp2 { opened, endpoint, peer, line })
}

/// A byte stream to an endpoint.
struct Transport {
    io: Io,
    endpoint: Arc<WorkerEndpoint>,
    peer: Option<IpAddr>,
    line: Option<Arc<ScriptedConnection>>,
}

async fn transport(
    upstream: &Upstream,
    (endpoint, ends): To<'_>,
    deadline: Instant,
) -> Result<Transport, ConnectError> {
    if let Some(stage) = &upstream.stage {
        let (near, line) = staged(upstream, endpoint, stage, deadline).await?;
        let (io, endpoint) = (Io::Other(Box::new(near)), Arc::clone(endpoint));
        return Ok(Transport { io, endpoint, peer: None, line: Some(line) });
    }
    if let Some(path) = &endpoint.at.socket {
        let limit = upstream.settings.connect_timeout;
        let connecting = async {
            let stream = async {
                let mut stream = UnixStream::connect(path).await?;
                introduce(&mut stream, &upstream.settings, ends).await?;
                Ok(stream)
            };
            stream.await.map_err(|error: io::Error| ConnectError::from_io(&error))
        };
        let stream = within(deadline, connecting, || ConnectError::silent(limit)).await;
        let stream = stream.inspect_err(|error| failed(endpoint, error))?;
        let (io, endpoint) = (Io::Other(Box::new(stream)), Arc::clone(endpoint));
        return Ok(Transport { io, endpoint, peer: None, line: None });
    }
    let (mut socket, endpoint, peer) = socket(upstream, endpoint, deadline).await?;
    if upstream.settings.proxy_protocol.is_some() {
        let introducing = async {
            let introduced = introduce(&mut socket, &upstream.settings, ends).await;
            introduced.map_err(|error| ConnectError::from_io(&error))
        };
        let late = || ConnectError::silent(upstream.settings.connect_timeout);
        let introduced = within(deadline, introducing, late).await;
        introduced.inspect_err(|error| failed(&endpoint, error))?;
    }
    let io = match &endpoint.at.tls {
        None => Io::Tcp(socket),
        Some(tls) => {
            let secured = secured(upstream, tls, socket, deadline).await;
            Io::Tls(secured.inspect_err(|error| failed(&endpoint, error))?)
        }
    };
    Ok(Transport { io, endpoint, peer: Some(peer), line: None })
}

/// Writes the PROXY header with which a new connection begins, if the upstream expects one. Without `ends` it says that the
/// connection is the proxy's own.
pub(super) async fn introduce<T: AsyncWrite + Unpin>(
    io: &mut T,
    upstream: &settings::Upstream,
    ends: Option<&Ends>,
) -> io::Result<()> {
    match upstream.proxy_protocol {
        Some(version) => io.write_all(&proxy_header::write(version, ends.copied())).await,
        None => Ok(()),
    }
}

/// Tells that no connection to `endpoint` was made.
fn failed(endpoint: &WorkerEndpoint, error: &ConnectError) {
    if !error.cause.is_own() {
        let reported = Reported::Failure(condition::Cause::ConnectionFailed);
        endpoint.report(reported, Instant::now());
    }
}

/// The time at which connecting fails if it begins now.
pub(super) fn deadline(upstream: &Upstream) -> Instant {
    let now = Instant::now();
    now.checked_add(upstream.settings.connect_timeout).unwrap_or(now)
}

/// Opens a socket to `endpoint`. If it is an address of a name and gives no connection, one to another address of that
/// name: nothing was sent yet. Returns the endpoint and the address to which the socket leads.
async fn socket(
    upstream: &Upstream,
    endpoint: &Arc<WorkerEndpoint>,
    deadline: Instant,
) -> Result<(TcpStream, Arc<WorkerEndpoint>, IpAddr), ConnectError> {
    let limit = upstream.settings.connect_timeout;
    let others = upstream.common.names.addresses(endpoint.place);
    let others = others.iter().flat_map(|all| all.iter().copied());
    let addresses: Vec<_> = endpoint.address.into_iter().chain(others).collect();
    let addresses = in_turn(&addresses);
    let connect = |address| async move {
        let stream = tcp(address).await;
        stream.inspect_err(|error| failed(&upstream.at(endpoint, address), error))
    };
    let connecting = async {
        let connected = race::first(&addresses, limit, connect).await;
        connected.map_err(ConnectError::none_of)
    };
    let silent = || {
        let silent = ConnectError::silent(limit);
        failed(endpoint, &silent);
        silent
    };
    let (stream, address) = within(deadline, connecting, silent).await?;
    Ok((stream, upstream.at(endpoint, address), address.ip()))
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
    endpoint: &WorkerEndpoint,
    stage: &Arc<Stage>,
    deadline: Instant,
) -> Result<(ProxyEnd, Arc<ScriptedConnection>), ConnectError> {
    let connecting = async {
        let connected = stage.connect(&upstream.settings, &endpoint.at).await;
        connected.map_err(|error| ConnectError::from_io(&error))
    };
    let limit = upstream.settings.connect_timeout;
    within(deadline, connecting, || ConnectError::silent(limit)).await
}

/// Awaits `connecting` until `deadline`; after that, the error that `late` makes.
pub(super) async fn within<T>(
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

pub(super) async fn tcp(address: SocketAddr) -> Result<TcpStream, ConnectError> {
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
