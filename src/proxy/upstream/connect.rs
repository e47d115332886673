//! Opening a connection to an endpoint: resolve, connect, start the task that drives it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep_until};

use super::h1::{Io, Link};
use super::wire::{Counts, Wire};
use crate::language::temporal::Span;
use crate::proxy::body::request::RequestBody;
use crate::proxy::multiplexed::{STREAMS, WINDOW, connection_window};
use crate::proxy::rehearsal::{Line, Near, Stage};
use crate::proxy::settings::{Endpoint, Upstream};

/// How large a response head may be, as HTTP/2 counts it.
const HEAD_LIST: u32 = 64 * 1024;

/// Why no connection came to be. Nothing of the request was sent.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ConnectError {
    /// What went wrong.
    pub(crate) cause: Cause,
    /// For people: what happened, without the endpoint's name.
    pub(crate) message: String,
}

/// What went wrong on the way to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The name has no address.
    Dns,
    /// Nobody listens there.
    Refused,
    /// There is no way there.
    Unreachable,
    /// It took longer than `connectTimeout`.
    Timeout,
    /// Somebody listens there, but greets in another protocol, or not at all.
    Greeting,
    /// Anything else.
    Other,
}

impl Cause {
    /// `details.phase`: how far it got.
    pub(crate) const fn phase(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Greeting => "handshake",
            Self::Refused | Self::Unreachable | Self::Timeout | Self::Other => "connect",
        }
    }

    /// RFC 9209 §2.3.
    pub(crate) const fn proxy_status(self) -> &'static str {
        match self {
            Self::Dns => "dns_error",
            Self::Refused => "connection_refused",
            Self::Unreachable => "destination_ip_unroutable",
            Self::Timeout => "connection_timeout",
            Self::Greeting => "http_protocol_error",
            Self::Other => "destination_unavailable",
        }
    }
}

impl ConnectError {
    /// The upstream has no endpoint to connect to.
    pub(crate) fn no_endpoint() -> Self {
        Self { cause: Cause::Other, message: "has no endpoint".to_owned() }
    }

    fn handshake(error: &hyper::Error) -> Self {
        Self { cause: Cause::Other, message: format!("gave no connection: {error}") }
    }

    fn from_io(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let (cause, message) = match error.kind() {
            Kind::ConnectionRefused => (Cause::Refused, "refused the connection".to_owned()),
            Kind::HostUnreachable | Kind::NetworkUnreachable => {
                (Cause::Unreachable, "cannot be reached".to_owned())
            }
            Kind::TimedOut => (Cause::Timeout, "did not answer the connect".to_owned()),
            _ => (Cause::Other, format!("gave no connection: {error}")),
        };
        Self { cause, message }
    }
}

/// A new connection.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) link: Box<Link>,
    /// In a rehearsal, the way to the other end.
    pub(super) line: Option<Arc<Line>>,
}

/// A new connection that is shared.
#[derive(Debug)]
pub(super) struct OpenedShared {
    pub(super) sender: http2::SendRequest<RequestBody>,
    pub(super) counts: Arc<Counts>,
    /// How many requests the other side takes at a time, as far as it has said.
    pub(super) limit: Arc<AtomicU32>,
    /// In a rehearsal, the way to the other end.
    pub(super) line: Option<Arc<Line>>,
}

/// A connection to `endpoint` of `upstream`. On a `stage` it leads to what stands there.
pub(super) async fn open(
    endpoint: &Endpoint,
    upstream: &Upstream,
    stage: Option<&Arc<Stage>>,
) -> Result<Opened, ConnectError> {
    match stage {
        None => {
            let io = Io::Tcp(socket(endpoint, upstream).await?);
            Ok(Opened { link: Link::new(io), line: None })
        }
        Some(stage) => {
            let (near, line) = staged(endpoint, upstream, stage).await?;
            let io = Io::Other(Box::new(near));
            Ok(Opened { link: Link::new(io), line: Some(line) })
        }
    }
}

/// The same with HTTP/2.
pub(super) async fn open_shared(
    endpoint: &Endpoint,
    upstream: &Upstream,
    stage: Option<&Arc<Stage>>,
) -> Result<OpenedShared, ConnectError> {
    let ping = upstream.ping_interval;
    let now = Instant::now();
    let deadline = now.checked_add(upstream.connect_timeout).unwrap_or(now);
    match stage {
        None => shared(socket(endpoint, upstream).await?, ping, deadline, None).await,
        Some(stage) => {
            let (near, line) = staged(endpoint, upstream, stage).await?;
            shared(near, ping, deadline, Some(line)).await
        }
    }
}

/// HTTP/2 over `io`. A connection that is silent for `ping` with requests on it is asked whether it is
/// still there, and closed when it does not answer for as long again: requests on it would be lost one by
/// one, and the next would be put on it, too.
async fn shared<T>(
    io: T,
    ping: Duration,
    deadline: Instant,
    line: Option<Arc<Line>>,
) -> Result<OpenedShared, ConnectError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (wire, counts) = Wire::new(io);
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
    // The other side begins by saying how much it takes (RFC 9113 §3.4). Whatever is sent before may be more,
    // and be refused; and one that does not say it speaks something else.
    let greeted = tokio::select! {
        biased;
        _ended = &mut driver => false,
        () = counts.heard() => true,
        () = sleep_until(deadline) => false,
    };
    if !greeted {
        let message = "did not greet in HTTP/2: is `protocol` right?".to_owned();
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
    Ok(OpenedShared { sender, counts, limit, line })
}

type Driver<T> = http2::Connection<TokioIo<Wire<T>>, RequestBody, TokioExecutor>;

/// How many requests the other side takes at a time.
fn streams<T>(driver: &Driver<T>) -> u32
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    u32::try_from(driver.current_max_send_streams()).unwrap_or(u32::MAX)
}

/// A socket to `endpoint`.
async fn socket(endpoint: &Endpoint, upstream: &Upstream) -> Result<TcpStream, ConnectError> {
    within(upstream.connect_timeout, tcp(endpoint)).await
}

/// A pipe to what stands on `stage` in place of `endpoint`.
async fn staged(
    endpoint: &Endpoint,
    upstream: &Upstream,
    stage: &Arc<Stage>,
) -> Result<(Near, Arc<Line>), ConnectError> {
    let connecting = async {
        let connected = stage.connect(upstream, endpoint).await;
        connected.map_err(|error| ConnectError::from_io(&error))
    };
    within(upstream.connect_timeout, connecting).await
}

async fn within<T>(
    limit: Duration,
    connecting: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    #[expect(clippy::disallowed_methods, reason = "a connect is a leaf: it may be dropped")]
    let connected = tokio::time::timeout(limit, connecting).await;
    connected.map_err(|_elapsed| ConnectError {
        cause: Cause::Timeout,
        message: format!("did not accept a connection within {}", Span::from_duration(limit)),
    })?
}

/// The first address of the name that takes a connection. Resolved anew for each connection, so a
/// change of the name's addresses is seen by the next.
async fn tcp(endpoint: &Endpoint) -> Result<TcpStream, ConnectError> {
    let host = endpoint.host.as_ref();
    let found = lookup_host((host, endpoint.port)).await;
    let addresses: Vec<SocketAddr> = found.map_err(|error| dns(&error.to_string()))?.collect();
    let mut last = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Nagle's algorithm only delays; where it cannot be turned off, it only delays.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(error = %error, "TCP_NODELAY could not be set.");
                }
                return Ok(stream);
            }
            Err(error) => last = Some(ConnectError::from_io(&error)),
        }
    }
    Err(last.unwrap_or_else(|| dns("the name has no address")))
}

fn dns(message: &str) -> ConnectError {
    ConnectError { cause: Cause::Dns, message: format!("cannot be resolved: {message}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str, port: u16) -> Endpoint {
        Endpoint { host: host.into(), port, authority: format!("{host}:{port}").into() }
    }

    #[tokio::test]
    async fn a_port_without_a_listener_refuses() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let error = tcp(&endpoint("127.0.0.1", port)).await;
        let error = error.err().unwrap();
        assert_eq!(error.cause, Cause::Refused);
        assert_eq!(error.to_string(), "refused the connection");
    }
}
