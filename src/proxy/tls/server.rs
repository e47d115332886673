//! TLS from clients: the proxy's certificate, which clients are accepted, and the handshake.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::WebPkiClientVerifier;
use rustls::{Error, InvalidMessage, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{ClientCertificate, FileError, Fingerprint, H2, HTTP_1_1, Identity, Roots, provider};
use crate::language::temporal::{Span, Timestamp};

/// The TLS settings of a listener. Equal if made from the same files.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    until: Timestamp,
    mark: Fingerprint,
}

/// A connection whose handshake is complete.
#[derive(Debug)]
pub(crate) struct AcceptedConnection<T> {
    pub(crate) io: ServerStream<T>,
    /// Whether both sides chose HTTP/2 (ALPN, RFC 7301). Otherwise it is HTTP/1.1, whatever its first bytes:
    /// HTTP/2 over TLS must be negotiated (RFC 9113 §3.2).
    pub(crate) http2: bool,
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
        Ok(Self { config: Arc::new(config), until: identity.until(), mark })
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
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = TlsAcceptor::from(Arc::clone(&self.config)).accept(io);
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
        let certificate = ClientCertificate::of(connection);
        Ok(AcceptedConnection { io: Box::new(io), http2, certificate })
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
mod tests {
    use super::*;
    use crate::proxy::tls::testing::{Authority, Issued};
    use crate::proxy::tls::{Certificates, Key};
    use rustls::ClientConfig;
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio_rustls::TlsConnector;

    const LIMIT: Duration = Duration::from_secs(5);

    fn identity(issued: &Issued) -> Identity {
        let certificates = Certificates::read(&issued.chain(), Timestamp::from_nanos(0)).unwrap();
        Identity::pair(certificates, &Key::read(&issued.key()).unwrap()).unwrap()
    }

    /// A client's configuration: which authority it trusts, its certificate, and the protocols that it offers.
    fn client(trusts: &Authority, shows: Option<&Issued>, offers: &[&[u8]]) -> ClientConfig {
        let roots = Roots::read(&trusts.pem()).unwrap().store;
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match shows {
            Some(issued) => builder.with_client_cert_resolver(identity(issued).resolver()),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = offers.iter().map(|offer| offer.to_vec()).collect();
        config
    }

    /// The result of a handshake on the server's side.
    async fn meet(
        server: &ServerTls,
        client: ClientConfig,
    ) -> Result<AcceptedConnection<DuplexStream>, HandshakeError> {
        let (near, far) = duplex(64 * 1024);
        let name = ServerName::try_from("a.test").unwrap();
        let connecting = TlsConnector::from(Arc::new(client)).connect(name, near);
        let (_client, accepted) = tokio::join!(connecting, server.accept(far, LIMIT));
        accepted
    }

    fn told(met: Result<AcceptedConnection<DuplexStream>, HandshakeError>) -> String {
        let refused = met.err().unwrap();
        format!("{}: {refused}", refused.reason.as_str())
    }

    #[tokio::test]
    async fn the_two_sides_choose_the_protocol() {
        let authority = Authority::new();
        let server = ServerTls::new(&identity(&authority.issue(&["a.test"])), None).unwrap();
        let offers: [(&[&[u8]], bool); 4] =
            [(&[HTTP_1_1, H2], true), (&[H2], true), (&[HTTP_1_1], false), (&[], false)];
        for (offers, http2) in offers {
            let met = meet(&server, client(&authority, None, offers)).await;
            assert_eq!(met.unwrap().http2, http2, "{offers:?}");
        }
        let met = meet(&server, client(&authority, None, &[b"spdy/3"])).await;
        insta::assert_snapshot!(told(met), @"incompatible: peer doesn't support any known protocol");
    }

    #[tokio::test]
    async fn a_client_must_show_a_certificate_where_one_is_wanted() {
        let [authority, other] = [Authority::new(), Authority::new()];
        let clients = Roots::read(&authority.pem()).unwrap();
        let server = identity(&authority.issue(&["a.test"]));
        let server = ServerTls::new(&server, Some(&clients)).unwrap();
        let known = authority.issue(&["client.test"]);
        meet(&server, client(&authority, Some(&known), &[])).await.unwrap();
        let met = meet(&server, client(&authority, None, &[])).await;
        insta::assert_snapshot!(told(met), @"noCertificate: the client shows no certificate, and `clientCa` wants one");
        let unknown = other.issue(&["client.test"]);
        let met = meet(&server, client(&authority, Some(&unknown), &[])).await;
        insta::assert_snapshot!(told(met), @"badCertificate: invalid peer certificate: UnknownIssuer");
        let met = meet(&server, client(&other, Some(&known), &[])).await;
        insta::assert_snapshot!(told(met), @"alert: received fatal alert: UnknownCA");
    }

    #[tokio::test]
    async fn what_is_no_tls_is_told_an_alert_and_the_end() {
        let authority = Authority::new();
        let server = ServerTls::new(&identity(&authority.issue(&["a.test"])), None).unwrap();
        let (mut near, far) = duplex(1024);
        near.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await.unwrap();
        let met = server.accept(far, LIMIT).await;
        insta::assert_snapshot!(told(met), @"notTls: what came is no TLS: plain HTTP, perhaps");
        let mut alert = Vec::new();
        near.read_to_end(&mut alert).await.unwrap();
        // A record of type `alert`.
        assert_eq!(alert.first(), Some(&21));
        let (near, far) = duplex(1024);
        drop(near);
        insta::assert_snapshot!(told(server.accept(far, LIMIT).await), @"closed: tls handshake eof");
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_has_a_bound() {
        let authority = Authority::new();
        let server = ServerTls::new(&identity(&authority.issue(&["a.test"])), None).unwrap();
        let (mut near, far) = duplex(1024);
        near.write_all(&[22, 3, 1]).await.unwrap();
        let begun = tokio::time::Instant::now();
        insta::assert_snapshot!(told(server.accept(far, LIMIT).await), @"timeout: it was not done within PT5S (limits.headTimeout)");
        assert_eq!(begun.elapsed(), LIMIT);
    }

    #[test]
    fn servers_are_told_apart_by_their_files() {
        let authority = Authority::new();
        let [one, other] = [authority.issue(&["a.test"]), authority.issue(&["a.test"])];
        let clients = Roots::read(&authority.pem()).unwrap();
        let server = |issued, clients| ServerTls::new(&identity(issued), clients).unwrap();
        assert_eq!(server(&one, None), server(&one, None));
        assert_ne!(server(&one, None), server(&other, None));
        assert_ne!(server(&one, None), server(&one, Some(&clients)));
    }

    #[test]
    fn every_reason_has_a_label_of_its_own() {
        for (place, reason) in TlsFailure::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, place, "{reason:?}");
        }
        let labels: std::collections::BTreeSet<_> =
            TlsFailure::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(labels.len(), TlsFailure::ALL.len());
    }
}
