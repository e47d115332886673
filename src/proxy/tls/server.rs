//! TLS from clients: the proxy's certificate, which clients are accepted, and the handshake.

use std::io;
use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls::server::{Acceptor, WebPkiClientVerifier};
use rustls::{Error, HandshakeKind, InvalidMessage, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use super::{
    ClientCertificate, FileError, Fingerprint, H2, HTTP_1_1, Identity, Roots, provider, tickets,
};
use crate::language::temporal::{Span, Timestamp};

/// The TLS settings of a listener. Equal if made from the same files.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// Who may sign at once on threads of their own, if signing takes long.
    apart: Option<Arc<Semaphore>>,
    until: Timestamp,
    mark: Fingerprint,
}

/// How many tickets a client gets after a full handshake. Each serves for one connection, which brings a new one.
const TICKETS: usize = 2;

/// The threads that sign with slow keys. All listeners share them: half as many as there are processors, so that signing
/// never takes all.
static SIGNERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    Arc::new(Semaphore::new((processors / 2).clamp(1, Semaphore::MAX_PERMITS)))
});

/// A connection whose handshake is complete.
#[derive(Debug)]
pub(crate) struct AcceptedConnection<T> {
    pub(crate) io: ServerStream<T>,
    /// Whether both sides chose HTTP/2 (ALPN, RFC 7301). Otherwise it is HTTP/1.1, whatever its first bytes:
    /// HTTP/2 over TLS must be negotiated (RFC 9113 §3.2).
    pub(crate) http2: bool,
    /// Whether the client resumed a session.
    pub(crate) resumed: bool,
    /// Who the client is, if it was asked for a certificate.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
}

/// A TLS connection from a client.
pub(crate) type ServerStream<T> = Box<TlsStream<T>>;

/// A failed handshake.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct HandshakeError {
    pub(crate) reason: TlsFailure,
    message: String,
}

/// Why handshakes fail: the label of `mwl_tls_handshake_failures_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsFailure {
    /// It took longer than `limits.headTimeout`.
    Timeout,
    /// The client left.
    Closed,
    /// The client sent something else than TLS, for example plain HTTP.
    NotTls,
    /// The client has no certificate, but `clientCa` requires one.
    NoCertificate,
    /// The client's certificate is not accepted.
    BadCertificate,
    /// There is no common version, cipher or protocol.
    Incompatible,
    /// The client refuses, for example because it does not trust the proxy's certificate.
    Alert,
    /// The client violates the protocol.
    Protocol,
}

impl TlsFailure {
    /// All of them, in the order of the documentation.
    pub(crate) const ALL: [Self; 8] = [
        Self::Timeout,
        Self::Closed,
        Self::NotTls,
        Self::NoCertificate,
        Self::BadCertificate,
        Self::Incompatible,
        Self::Alert,
        Self::Protocol,
    ];

    /// The label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::NotTls => "notTls",
            Self::NoCertificate => "noCertificate",
            Self::BadCertificate => "badCertificate",
            Self::Incompatible => "incompatible",
            Self::Alert => "alert",
            Self::Protocol => "protocol",
        }
    }

    const fn of(error: &Error) -> Self {
        match error {
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::NotTls,
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::InvalidCertificate(_) => Self::BadCertificate,
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => Self::Incompatible,
            Error::AlertReceived(_) => Self::Alert,
            _ => Self::Protocol,
        }
    }
}

impl ServerTls {
    /// Presents `identity`. With `clients`, only accepts clients whose certificate one of these authorities has
    /// issued.
    ///
    /// # Errors
    /// When the library rejects the arguments.
    pub fn new(identity: &Identity, clients: Option<&Roots>) -> Result<Self, FileError> {
        let refused = |error: &dyn std::fmt::Display| FileError::Refused(error.to_string());
        let builder = ServerConfig::builder_with_provider(provider());
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| refused(&error))?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let roots = Arc::clone(&roots.store);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                builder.with_client_cert_verifier(verifier.build().map_err(|e| refused(&e))?)
            }
        };
        let mut config = builder.with_cert_resolver(identity.resolver());
        config.alpn_protocols = vec![H2.to_vec(), HTTP_1_1.to_vec()];
        let mark = Fingerprint::of((identity.mark, clients.map(|roots| roots.mark)));
        config.ticketer = tickets::shared(mark).map_err(|error| refused(&error))?;
        config.send_tls13_tickets = TICKETS;
        config.ignore_client_order = true;
        let apart = identity.signs_slowly().then(|| Arc::clone(&SIGNERS));
        Ok(Self { config: Arc::new(config), apart, until: identity.until(), mark })
    }

    /// The time until which its whole certificate chain is valid.
    pub const fn valid_until(&self) -> Timestamp {
        self.until
    }

    /// Does the handshake of a connection, within `limit`.
    pub(crate) async fn accept<T>(
        &self,
        io: T,
        limit: Duration,
    ) -> Result<AcceptedConnection<T>, HandshakeError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = async {
            match &self.apart {
                None => TlsAcceptor::from(Arc::clone(&self.config)).accept(io).await,
                Some(signers) => self.accept_apart(io, signers).await,
            }
        };
        #[expect(clippy::disallowed_methods, reason = "a handshake is a leaf: it may be dropped")]
        let handshake = tokio::time::timeout(limit, handshake).await;
        let Ok(done) = handshake else {
            let limit = Span::from_duration(limit);
            let message = format!("it was not done within {limit} (limits.headTimeout)");
            return Err(HandshakeError { reason: TlsFailure::Timeout, message });
        };
        let io = done.map_err(|error| HandshakeError::of(&error))?;
        let connection = io.get_ref().1;
        let http2 = connection.alpn_protocol() == Some(H2);
        let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let certificate = ClientCertificate::of(connection);
        Ok(AcceptedConnection { io: Box::new(io), http2, resumed, certificate })
    }

    /// The same, but the answer to the client's first message, with its signature, is made on another thread. The requests of
    /// this worker do not wait for it.
    async fn accept_apart<T>(&self, io: T, signers: &Arc<Semaphore>) -> io::Result<TlsStream<T>>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let begun = LazyConfigAcceptor::new(Acceptor::default(), io).await?;
        let turn = Arc::clone(signers).acquire_owned().await.map_err(io::Error::other)?;
        let config = Arc::clone(&self.config);
        let signing = spawn_blocking(move || {
            // Held by the work itself, which goes on when nobody waits for it any more.
            let _turn = turn;
            begun.into_stream(config)
        });
        signing.await.map_err(io::Error::other)?.await
    }
}

impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        self.mark == other.mark
    }
}

impl Eq for ServerTls {}

/// Shows no keys.
impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("until", &self.until).finish_non_exhaustive()
    }
}

impl HandshakeError {
    fn of(error: &io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match tls {
            Some(error) => {
                let reason = TlsFailure::of(error);
                let message = match reason {
                    TlsFailure::NotTls => "what came is no TLS: plain HTTP, perhaps".to_owned(),
                    TlsFailure::NoCertificate => {
                        "the client shows no certificate, and `clientCa` wants one".to_owned()
                    }
                    _ => error.to_string(),
                };
                Self { reason, message }
            }
            None => Self { reason: TlsFailure::Closed, message: error.to_string() },
        }
    }
}

#[cfg(test)]
mod tests;
