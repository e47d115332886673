//! Opening a connection to an endpoint: resolve, connect, start the task that drives it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::AbortHandle;

use super::wire::{Counts, Wire};
use crate::language::temporal::Span;
use crate::proxy::body::request::RequestBody;
use crate::proxy::rehearsal::{Line, Stage};
use crate::proxy::settings::{Endpoint, Upstream};

/// How large a response head may be.
const HEAD_SIZE: usize = 64 * 1024;

/// Why no connection came to be. Nothing of the request was sent.
#[derive(Debug, thiserror::Error)]
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
    /// Anything else.
    Other,
}

impl Cause {
    /// `details.phase`: how far it got.
    pub(crate) const fn phase(self) -> &'static str {
        match self {
            Self::Dns => "dns",
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
            Self::Other => "destination_unavailable",
        }
    }
}

impl ConnectError {
    /// The upstream has no endpoint to connect to.
    pub(crate) fn no_endpoint() -> Self {
        Self { cause: Cause::Other, message: "has no endpoint".to_owned() }
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
    pub(super) sender: SendRequest<RequestBody>,
    pub(super) counts: Arc<Counts>,
    /// Closes it.
    pub(super) driver: AbortHandle,
    /// In a rehearsal, the way to the other end.
    pub(super) line: Option<Arc<Line>>,
}

/// A connection to `endpoint` of `upstream`, and the counts of its bytes. On a `stage` it leads to what
/// stands there.
pub(super) async fn open(
    endpoint: &Endpoint,
    upstream: &Arc<Upstream>,
    stage: Option<&Arc<Stage>>,
) -> Result<Opened, ConnectError> {
    let limit = upstream.connect_timeout;
    let Some(stage) = stage else {
        return over(within(limit, tcp(endpoint)).await?, None).await;
    };
    let staged = async {
        let connected = stage.connect(upstream, endpoint).await;
        connected.map_err(|error| ConnectError::from_io(&error))
    };
    let (near, line) = within(limit, staged).await?;
    over(near, Some(line)).await
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

/// An HTTP connection over `stream`.
async fn over<T>(stream: T, line: Option<Arc<Line>>) -> Result<Opened, ConnectError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (wire, counts) = Wire::new(stream);
    let handshake =
        http1::Builder::new().max_header_size(HEAD_SIZE).handshake(TokioIo::new(wire)).await;
    let (sender, driver) = handshake.map_err(|error| ConnectError {
        cause: Cause::Other,
        message: format!("gave no connection: {error}"),
    })?;
    let driver = tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(error = %error, "An upstream connection ended with an error.");
        }
    });
    Ok(Opened { sender, counts, driver: driver.abort_handle(), line })
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
        let error = tcp(&endpoint("127.0.0.1", port)).await.unwrap_err();
        assert_eq!(error.cause, Cause::Refused);
        assert_eq!(error.to_string(), "refused the connection");
    }
}
