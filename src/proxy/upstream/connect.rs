//! Opens a connection to an endpoint: resolves its name, connects and, for HTTP/2, starts the task that drives it.
//!
//! All of this must finish within `connectTimeout`, including the name lookup.

use std::error::Error as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until};

use super::connect_error::{Cause, ConnectError};
use super::counted::{ByteCounts, CountedIo};
use super::h1::Http1Connection;
use super::{Upstream, race};
use crate::language::temporal::Span;
use crate::proxy::body::request::RequestBody;
use crate::proxy::h2::{STREAMS, WINDOW, connection_window};
use crate::proxy::io::{Io, loopback};
use crate::proxy::stage::{ProxyEnd, ScriptedConnection, Stage};
use crate::proxy::tls::{ClientStream, EndpointTls, TlsError, TlsErrorKind};

/// The largest response head, by HTTP/2's way of counting.
const HEAD_LIST: u32 = 64 * 1024;

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
    pub(super) sender: http2::SendRequest<RequestBody>,
    pub(super) counts: Arc<ByteCounts>,
    /// The most concurrent requests that the other side accepts, as far as it has said.
    pub(super) limit: Arc<AtomicU32>,
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
    let deadline = deadline(upstream);
    match &upstream.stage {
        None => {
            let (socket, peer) = socket(upstream, endpoint, deadline).await?;
            let io = match &upstream.endpoint(endpoint)?.tls {
                None => Io::Tcp(socket),
                Some(tls) => Io::Tls(secured(upstream, tls, socket, deadline).await?),
            };
            Ok(NewHttp1 { conn: Http1Connection::new(io), peer: Some(peer), line: None })
        }
        Some(stage) => {
            let (near, line) = staged(upstream, endpoint, stage, deadline).await?;
            let io = Io::Other(Box::new(near));
            Ok(NewHttp1 { conn: Http1Connection::new(io), peer: None, line: Some(line) })
        }
    }
}

/// The same for HTTP/2.
pub(super) async fn open_shared(
    upstream: &Arc<Upstream>,
    endpoint: usize,
) -> Result<NewHttp2, ConnectError> {
    let ping = upstream.settings.ping_interval;
    let deadline = deadline(upstream);
    match &upstream.stage {
        None => {
            let (socket, peer) = socket(upstream, endpoint, deadline).await?;
            let opened = match &upstream.endpoint(endpoint)?.tls {
                None => shared(socket, ping, deadline, None).await?,
                Some(tls) => {
                    let socket = secured(upstream, tls, socket, deadline).await?;
                    shared(socket, ping, deadline, None).await?
                }
            };
            Ok(NewHttp2 { peer: Some(peer), ..opened })
        }
        Some(stage) => {
            let (near, line) = staged(upstream, endpoint, stage, deadline).await?;
            // No pings: the far end is always there, and they would go on for ever.
            shared(near, Duration::ZERO, deadline, Some(line)).await
        }
    }
}

/// The time at which connecting fails if it begins now.
fn deadline(upstream: &Upstream) -> Instant {
    let now = Instant::now();
    now.checked_add(upstream.settings.connect_timeout).unwrap_or(now)
}

/// Speaks HTTP/2 over `io`. If nothing arrives for `ping` while requests are running, a PING is sent, and the
/// connection closes if the answer takes as long again. Otherwise its requests would be lost one by one, and
/// more would be put on it.
async fn shared<T>(
    io: T,
    ping: Duration,
    deadline: Instant,
    line: Option<Arc<ScriptedConnection>>,
) -> Result<NewHttp2, ConnectError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (wire, counts) = CountedIo::new(io);
    let mut protocol = http2::Builder::new(TokioExecutor::new());
    protocol
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(connection_window(STREAMS))
        .max_send_buf_size(WINDOW as usize)
        .max_header_list_size(HEAD_LIST);
    if !ping.is_zero() {
        protocol.keep_alive_interval(ping).keep_alive_timeout(ping);
    }
    let handshake = protocol.handshake(TokioIo::new(wire)).await;
    let (sender, mut driver) = handshake.map_err(|error| ConnectError::handshake(&error))?;
    // The other side first sends its settings (RFC 9113 §3.4). Requests that are sent earlier might exceed them
    // and be refused; and if no settings arrive, the other side speaks another protocol.
    let greeted = tokio::select! {
        biased;
        ended = &mut driver => Err(ended.err()),
        () = counts.heard() => Ok(()),
        () = sleep_until(deadline) => Err(None),
    };
    if let Err(error) = greeted {
        // The library only keeps the text of the error below, for example of a TLS handshake that was refused late.
        let why = error.and_then(|error| error.source().map(|why| format!(" ({why})")));
        let why = why.unwrap_or_default();
        let message = format!("did not greet in HTTP/2{why}: is `protocol` right?");
        return Err(ConnectError { cause: Cause::Greeting, message });
    }
    let limit = Arc::new(AtomicU32::new(streams(&driver)));
    let known = Arc::clone(&limit);
    tokio::spawn(async move {
        let watched = std::future::poll_fn(|cx| {
            let polled = Pin::new(&mut driver).poll(cx);
            known.store(streams(&driver), Ordering::Relaxed);
            polled
        });
        if let Err(error) = watched.await {
            tracing::debug!(error = %error, "An upstream connection ended with an error.");
        }
    });
    Ok(NewHttp2 { sender, counts, limit, peer: None, line })
}

type Driver<T> = http2::Connection<TokioIo<CountedIo<T>>, RequestBody, TokioExecutor>;

/// The most concurrent requests that the other side accepts.
fn streams<T>(driver: &Driver<T>) -> u32
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    u32::try_from(driver.current_max_send_streams()).unwrap_or(u32::MAX)
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
    // Connecting is a leaf: it may be dropped.
    let connected = tokio::time::timeout_at(deadline, connecting).await;
    connected.map_err(|_elapsed| late())?
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
    use super::*;

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
