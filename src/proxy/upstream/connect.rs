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

use super::h1::Link;
use super::wire::{Counts, Wire};
use super::{Upstream, race};
use crate::language::temporal::Span;
use crate::proxy::body::request::RequestBody;
use crate::proxy::h2::{STREAMS, WINDOW, connection_window};
use crate::proxy::io::{Io, nearby};
use crate::proxy::stage::{Line, Near, Stage};
use crate::proxy::tls::{Failed, Secure, Secured, Trouble};

/// For how many of a name's addresses a message tells what happened.
const TOLD: usize = 4;

/// The largest response head, by HTTP/2's way of counting.
const HEAD_LIST: u32 = 64 * 1024;

/// Why no connection was made. Nothing of the request was sent.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ConnectError {
    /// What went wrong.
    pub(crate) cause: Cause,
    /// For people: what happened, without the endpoint's name.
    pub(crate) message: String,
}

/// What went wrong while connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The name has no address.
    Dns,
    /// The name was not resolved within `connectTimeout`.
    DnsTimeout,
    /// Nobody listens there.
    Refused,
    /// There is no route to the address.
    Unreachable,
    /// It took longer than `connectTimeout`.
    Timeout,
    /// The other side does not speak HTTP/2, or says nothing at all.
    Greeting,
    /// The TLS handshake failed, or the certificate is not accepted.
    Tls(Trouble),
    /// Anything else.
    Other,
}

impl Cause {
    /// `details.phase`: how far connecting got.
    pub(crate) const fn phase(self) -> &'static str {
        match self {
            Self::Dns | Self::DnsTimeout => "dns",
            Self::Greeting => "handshake",
            Self::Tls(_) => "tls",
            Self::Refused | Self::Unreachable | Self::Timeout | Self::Other => "connect",
        }
    }

    /// RFC 9209 §2.3.
    pub(crate) const fn proxy_status(self) -> &'static str {
        match self {
            Self::Dns => "dns_error",
            Self::DnsTimeout => "dns_timeout",
            Self::Refused => "connection_refused",
            Self::Unreachable => "destination_ip_unroutable",
            Self::Timeout => "connection_timeout",
            Self::Greeting => "http_protocol_error",
            Self::Tls(trouble) => trouble.proxy_status(),
            Self::Other => "destination_unavailable",
        }
    }
}

impl ConnectError {
    /// The upstream has no endpoint to connect to.
    pub(crate) fn no_endpoint() -> Self {
        Self { cause: Cause::Other, message: "has no endpoint".to_owned() }
    }

    /// The name has no address, or the lookup failed.
    pub(super) fn dns(host: &str, message: &str) -> Self {
        Self { cause: Cause::Dns, message: format!("cannot be resolved ({host}): {message}") }
    }

    /// The name was not resolved within `limit`.
    fn unresolved(host: &str, limit: Duration) -> Self {
        let limit = Span::from_duration(limit);
        let message = format!("cannot be resolved ({host}): no answer within {limit}");
        Self { cause: Cause::DnsTimeout, message }
    }

    /// No connection was accepted within `limit`.
    fn silent(limit: Duration) -> Self {
        let limit = Span::from_duration(limit);
        let message = format!("did not accept a connection within {limit}");
        Self { cause: Cause::Timeout, message }
    }

    /// None of a name's addresses accepted a connection.
    fn none_of(failed: Vec<(SocketAddr, Self)>) -> Self {
        let all = failed.len();
        if all <= 1 {
            let only = failed.into_iter().next();
            return only.map_or_else(Self::no_endpoint, |(_, error)| error);
        }
        // An address that cannot be reached from here says less than one that refuses.
        let telling = failed.iter().find(|(_, error)| error.cause != Cause::Unreachable);
        let cause =
            telling.or_else(|| failed.first()).map_or(Cause::Other, |(_, error)| error.cause);
        let told = failed.iter().take(TOLD).map(|(at, error)| format!("{} {error}", at.ip()));
        let told = told.collect::<Vec<_>>().join(", ");
        let more = if all > TOLD { ", and so on" } else { "" };
        Self { cause, message: format!("has {all} addresses and no connection: {told}{more}") }
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
    /// The address that it leads to, if it was opened here.
    pub(super) peer: Option<IpAddr>,
    /// In a rehearsal, the scripted connection.
    pub(super) line: Option<Arc<Line>>,
}

/// A new HTTP/2 connection.
#[derive(Debug)]
pub(super) struct OpenedShared {
    pub(super) sender: http2::SendRequest<RequestBody>,
    pub(super) counts: Arc<Counts>,
    /// The most concurrent requests that the other side accepts, as far as it has said.
    pub(super) limit: Arc<AtomicU32>,
    /// The address that it leads to.
    pub(super) peer: Option<IpAddr>,
    /// In a rehearsal, the scripted connection.
    pub(super) line: Option<Arc<Line>>,
}

/// Opens a connection to `endpoint` of `upstream`. On a stage, it leads to the script.
pub(super) async fn open(
    upstream: &Arc<Upstream>,
    endpoint: usize,
) -> Result<Opened, ConnectError> {
    let deadline = deadline(upstream);
    match &upstream.stage {
        None => {
            let (socket, peer) = socket(upstream, endpoint, deadline).await?;
            let io = match &upstream.endpoint(endpoint)?.tls {
                None => Io::Tcp(socket),
                Some(tls) => Io::Tls(secured(upstream, tls, socket, deadline).await?),
            };
            Ok(Opened { link: Link::new(io), peer: Some(peer), line: None })
        }
        Some(stage) => {
            let (near, line) = staged(upstream, endpoint, stage, deadline).await?;
            let io = Io::Other(Box::new(near));
            Ok(Opened { link: Link::new(io), peer: None, line: Some(line) })
        }
    }
}

/// The same for HTTP/2.
pub(super) async fn open_shared(
    upstream: &Arc<Upstream>,
    endpoint: usize,
) -> Result<OpenedShared, ConnectError> {
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
            Ok(OpenedShared { peer: Some(peer), ..opened })
        }
        Some(stage) => {
            let (near, line) = staged(upstream, endpoint, stage, deadline).await?;
            shared(near, ping, deadline, Some(line)).await
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
    Ok(OpenedShared { sender, counts, limit, peer: None, line })
}

type Driver<T> = http2::Connection<TokioIo<Wire<T>>, RequestBody, TokioExecutor>;

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
    tls: &Secure,
    io: T,
    deadline: Instant,
) -> Result<Secured<T>, ConnectError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let greeting = async {
        let greeted = tls.connect(io).await;
        greeted.map_err(|Failed { trouble, message }| ConnectError {
            cause: Cause::Tls(trouble),
            message,
        })
    };
    let late = || {
        let limit = Span::from_duration(upstream.settings.connect_timeout);
        let message = format!("did not finish the TLS handshake within {limit}");
        ConnectError { cause: Cause::Tls(Trouble::Timeout), message }
    };
    within(deadline, greeting, late).await
}

/// Opens a scripted connection that replaces `endpoint` on `stage`.
async fn staged(
    upstream: &Upstream,
    endpoint: usize,
    stage: &Arc<Stage>,
    deadline: Instant,
) -> Result<(Near, Arc<Line>), ConnectError> {
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
    nearby::unpaced(&SockRef::from(&socket));
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

    #[test]
    fn a_name_whose_addresses_all_failed_says_what_each_did() {
        let failed = |kinds: &[(&str, io::ErrorKind)]| {
            let error = |kind: io::ErrorKind| ConnectError::from_io(&kind.into());
            let failed = kinds.iter().map(|(at, kind)| (at.parse().unwrap(), error(*kind)));
            ConnectError::none_of(failed.collect())
        };
        let (v6, v4) = ("[::1]:80", "127.0.0.1:80");
        let (nowhere, refused) =
            (io::ErrorKind::NetworkUnreachable, io::ErrorKind::ConnectionRefused);
        let only = failed(&[(v4, refused)]);
        assert_eq!((only.cause, &*only.message), (Cause::Refused, "refused the connection"));
        let both = failed(&[(v6, nowhere), (v4, refused)]);
        assert_eq!(both.cause, Cause::Refused);
        assert_eq!(
            both.message,
            "has 2 addresses and no connection: ::1 cannot be reached, 127.0.0.1 refused the connection"
        );
        assert_eq!(failed(&[(v6, nowhere), (v6, nowhere)]).cause, Cause::Unreachable);
        let many = failed(&[(v6, nowhere); 5]);
        assert!(many.message.ends_with("::1 cannot be reached, and so on"), "{many}");
    }
}
