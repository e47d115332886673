//! TLS to upstreams: which authorities are trusted, which certificate is presented, and the handshake.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, InvalidMessage};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{FileError, Fingerprint, H2, HTTP_1_1, Identity, Roots, provider};

/// The TLS settings of an upstream. Equal if made from the same files.
pub struct ClientTls {
    config: Arc<ClientConfig>,
    http2: bool,
    mark: Fingerprint,
}

/// The TLS settings of one of its endpoints.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointTls {
    client: Arc<ClientTls>,
    /// The name that the endpoint's certificate must have.
    name: ServerName<'static>,
}

/// A TLS connection to an endpoint.
pub(crate) type ClientStream<T> = Box<TlsStream<T>>;

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsError {
    pub(crate) trouble: TlsErrorKind,
    /// What the endpoint did, without its name.
    pub(crate) message: String,
}

/// The kinds of failures, as in RFC 9209.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsErrorKind {
    /// The endpoint's certificate is not accepted.
    Certificate,
    /// The endpoint refuses.
    Alert,
    /// The endpoint does not speak TLS, or speaks it wrongly, or left during the handshake.
    Protocol,
    /// It took too long.
    Timeout,
}

impl TlsErrorKind {
    /// RFC 9209 §2.3.
    pub(crate) const fn proxy_status(self) -> &'static str {
        match self {
            Self::Certificate => "tls_certificate_error",
            Self::Alert => "tls_alert_received",
            Self::Protocol => "tls_protocol_error",
            Self::Timeout => "connection_timeout",
        }
    }
}

/// Whether `error` is a refusal of a handshake that this side had already completed. With TLS 1.3 a client
/// finishes, and may send data, before the server has checked its certificate (RFC 8446 §2). These alerts only
/// occur in handshakes, so the server has not looked at any data.
pub(crate) fn is_late_refusal(error: &(dyn StdError + 'static)) -> bool {
    use AlertDescription as Alert;
    let mut at = Some(error);
    while let Some(error) = at {
        let io = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(Error::AlertReceived(alert)) = io.and_then(|io| io.downcast_ref()) {
            return matches!(
                alert,
                Alert::HandshakeFailure
                    | Alert::BadCertificate
                    | Alert::UnsupportedCertificate
                    | Alert::CertificateRevoked
                    | Alert::CertificateExpired
                    | Alert::CertificateUnknown
                    | Alert::CertificateRequired
                    | Alert::UnknownCA
                    | Alert::AccessDenied
                    | Alert::DecryptError
                    | Alert::InsufficientSecurity
            );
        }
        at = error.source();
    }
    false
}

impl ClientTls {
    /// Trusts the authorities in `roots`, presents `identity` if asked for a certificate, and uses HTTP/2 or
    /// else HTTP/1.1.
    ///
    /// # Errors
    /// When the library rejects the arguments.
    pub fn new(roots: &Roots, identity: Option<&Identity>, http2: bool) -> Result<Self, FileError> {
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| FileError::Refused(error.to_string()))?;
        let builder = builder.with_root_certificates(Arc::clone(&roots.store));
        let mut config = match identity {
            Some(identity) => builder.with_client_cert_resolver(identity.resolver()),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![if http2 { H2 } else { HTTP_1_1 }.to_vec()];
        let mark = Fingerprint::of((roots.mark, identity.map(|identity| identity.mark)));
        Ok(Self { config: Arc::new(config), http2, mark })
    }

    /// The same without an offer of HTTP (ALPN): what is spoken is another protocol.
    #[must_use]
    pub fn without_protocols(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols.clear();
        Self { config: Arc::new(config), http2: false, mark: self.mark }
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        (self.mark, self.http2) == (other.mark, other.http2)
    }
}

impl Eq for ClientTls {}

/// Shows no keys.
impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("http2", &self.http2).finish_non_exhaustive()
    }
}

impl EndpointTls {
    /// For an endpoint whose certificate must have `name`: a host name or an address. `None` if it is neither.
    pub fn new(client: &Arc<ClientTls>, name: &str) -> Option<Self> {
        let name = ServerName::try_from(name.to_owned()).ok()?;
        Some(Self { client: Arc::clone(client), name })
    }

    /// Does the handshake over `io`. The caller sets a timeout.
    pub(crate) async fn connect<T>(&self, io: T) -> Result<ClientStream<T>, TlsError>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(&self.client.config));
        let connected = connector.connect(self.name.clone(), io).await;
        let io = connected.map_err(|error| self.failed(&error))?;
        if self.client.http2 && io.get_ref().1.alpn_protocol() != Some(H2) {
            let message = "did not agree to HTTP/2 (ALPN `h2`): is `protocol` right?".to_owned();
            return Err(TlsError { trouble: TlsErrorKind::Protocol, message });
        }
        Ok(Box::new(io))
    }

    fn failed(&self, error: &io::Error) -> TlsError {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        let Some(tls) = tls else {
            let message = format!("was gone in the middle of the TLS handshake: {error}");
            return TlsError { trouble: TlsErrorKind::Protocol, message };
        };
        let (trouble, message) = match tls {
            Error::InvalidCertificate(error) => (TlsErrorKind::Certificate, self.unbelieved(error)),
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
                let offered = if self.client.http2 { "h2" } else { "http/1.1" };
                let message = format!("does not take `{offered}` (ALPN): is `protocol` right?");
                (TlsErrorKind::Alert, message)
            }
            Error::AlertReceived(alert) => {
                (TlsErrorKind::Alert, format!("refused the TLS handshake with the alert {alert:?}"))
            }
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => (TlsErrorKind::Protocol, "does not speak TLS: is it `http://`?".to_owned()),
            error => (TlsErrorKind::Protocol, format!("failed in the TLS handshake: {error}")),
        };
        TlsError { trouble, message }
    }

    /// What is wrong with the endpoint's certificate.
    fn unbelieved(&self, error: &CertificateError) -> String {
        let name = self.name.to_str();
        match error {
            CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
                let presented: Vec<&str> = presented.iter().map(|name| plain(name)).collect();
                let presented = presented.join(", ");
                format!(
                    "showed a certificate for {presented}, not for `{name}`: is `tls.serverName` right?"
                )
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("showed a certificate that is not for `{name}`: is `tls.serverName` right?")
            }
            CertificateError::UnknownIssuer => {
                "showed a certificate of an authority that is not trusted: is `tls.ca` right?"
                    .to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "showed a certificate that has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "showed a certificate that is not valid yet".to_owned()
            }
            error => format!("showed a certificate that is not believed: {error}"),
        }
    }
}

/// The name inside of the library's debug form: `DnsName("a.test")`.
fn plain(written: &str) -> &str {
    let inner = written.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.map_or(written, |inner| inner.trim_matches('"'))
}

/// Shows only the name.
impl fmt::Debug for EndpointTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secure").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::temporal::Timestamp;
    use crate::proxy::tls::testing::{Authority, Issued, days};
    use crate::proxy::tls::{Certificates, Key};
    use rustls::ServerConfig;
    use rustls::server::WebPkiClientVerifier;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
    use tokio_rustls::TlsAcceptor;

    fn identity(issued: &Issued) -> Identity {
        let certificates = Certificates::read(&issued.chain(), Timestamp::from_nanos(0)).unwrap();
        Identity::pair(certificates, &Key::read(&issued.key()).unwrap()).unwrap()
    }

    fn secure(trusts: &Authority, shows: Option<&Issued>, http2: bool) -> EndpointTls {
        let shows = shows.map(identity);
        let roots = Roots::read(&trusts.pem()).unwrap();
        let client = ClientTls::new(&roots, shows.as_ref(), http2).unwrap();
        EndpointTls::new(&Arc::new(client), "a.test").unwrap()
    }

    /// A server's configuration: its certificate, and the protocols that it accepts.
    fn server(shows: &Issued, takes: &[&[u8]]) -> ServerConfig {
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config =
            builder.with_no_client_auth().with_cert_resolver(identity(shows).resolver());
        config.alpn_protocols = takes.iter().map(|take| take.to_vec()).collect();
        config
    }

    /// The result of a handshake on the client's side.
    async fn meet(
        client: &EndpointTls,
        server: ServerConfig,
    ) -> Result<ClientStream<DuplexStream>, TlsError> {
        let (near, far) = duplex(64 * 1024);
        let accepting = TlsAcceptor::from(Arc::new(server)).accept(far);
        let (connected, _server) = tokio::join!(client.connect(near), accepting);
        connected
    }

    fn told(met: Result<ClientStream<DuplexStream>, TlsError>) -> String {
        let TlsError { trouble, message } = met.err().unwrap();
        format!("{}: {message}", trouble.proxy_status())
    }

    #[tokio::test]
    async fn only_who_is_meant_and_vouched_for_is_believed() {
        let [authority, other] = [Authority::new(), Authority::new()];
        let client = secure(&authority, None, false);
        let met = meet(&client, server(&authority.issue(&["b.test", "a.test"]), &[])).await;
        assert!(met.is_ok());
        let met = meet(&client, server(&authority.issue(&["b.test"]), &[])).await;
        insta::assert_snapshot!(told(met), @r#"tls_certificate_error: showed a certificate for b.test, not for `a.test`: is `tls.serverName` right?"#);
        let met = meet(&client, server(&other.issue(&["a.test"]), &[])).await;
        insta::assert_snapshot!(told(met), @"tls_certificate_error: showed a certificate of an authority that is not trusted: is `tls.ca` right?");
        let old = authority.issue_for(&["a.test"], days(0), days(365));
        // This test's server does not check its own certificate's age.
        insta::assert_snapshot!(told(meet(&client, server(&old, &[])).await), @"tls_certificate_error: showed a certificate that has expired");
        let early = authority.issue_for(&["a.test"], days(39_000), days(40_000));
        insta::assert_snapshot!(told(meet(&client, server(&early, &[])).await), @"tls_certificate_error: showed a certificate that is not valid yet");
    }

    #[tokio::test]
    async fn the_protocol_is_agreed_on() {
        let authority = Authority::new();
        let issued = authority.issue(&["a.test"]);
        let (http1, http2) = (secure(&authority, None, false), secure(&authority, None, true));
        for (client, takes) in [
            (&http1, &[HTTP_1_1][..]),
            (&http1, &[H2, HTTP_1_1]),
            // A server without ALPN speaks the older protocol.
            (&http1, &[]),
            (&http2, &[HTTP_1_1, H2]),
        ] {
            assert!(meet(client, server(&issued, takes)).await.is_ok());
        }
        insta::assert_snapshot!(told(meet(&http1, server(&issued, &[H2])).await), @"tls_alert_received: does not take `http/1.1` (ALPN): is `protocol` right?");
        insta::assert_snapshot!(told(meet(&http2, server(&issued, &[HTTP_1_1])).await), @"tls_alert_received: does not take `h2` (ALPN): is `protocol` right?");
        insta::assert_snapshot!(told(meet(&http2, server(&issued, &[])).await), @"tls_protocol_error: did not agree to HTTP/2 (ALPN `h2`): is `protocol` right?");
    }

    #[tokio::test]
    async fn a_certificate_is_shown_where_it_is_asked_for() {
        let authority = Authority::new();
        let issued = authority.issue(&["a.test"]);
        let asking = || {
            let roots = Roots::read(&authority.pem()).unwrap().store;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            let builder = ServerConfig::builder_with_provider(provider());
            // With this version the client learns of the refusal within the handshake.
            let builder = builder.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
            let builder = builder.with_client_cert_verifier(verifier.build().unwrap());
            builder.with_cert_resolver(identity(&issued).resolver())
        };
        let known = authority.issue(&["client.test"]);
        assert!(meet(&secure(&authority, Some(&known), false), asking()).await.is_ok());
        let met = meet(&secure(&authority, None, false), asking()).await;
        insta::assert_snapshot!(told(met), @"tls_alert_received: refused the TLS handshake with the alert CertificateRequired");
        let unknown = Authority::new().issue(&["client.test"]);
        let met = meet(&secure(&authority, Some(&unknown), false), asking()).await;
        insta::assert_snapshot!(told(met), @"tls_alert_received: refused the TLS handshake with the alert UnknownCA");
    }

    #[tokio::test]
    async fn who_does_not_speak_tls_is_told_from_who_leaves() {
        let client = secure(&Authority::new(), None, false);
        let (near, mut far) = duplex(1024);
        far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        insta::assert_snapshot!(told(client.connect(near).await), @"tls_protocol_error: does not speak TLS: is it `http://`?");
        let (near, far) = duplex(1024);
        drop(far);
        insta::assert_snapshot!(told(client.connect(near).await), @"tls_protocol_error: was gone in the middle of the TLS handshake: broken pipe");
    }

    #[test]
    fn names_are_names_or_addresses() {
        let authority = Authority::new();
        let client = secure(&authority, None, false).client;
        for name in ["a.test", "127.0.0.1", "::1"] {
            assert!(EndpointTls::new(&client, name).is_some(), "{name}");
        }
        for name in ["", "a b", "a..b", "[::1]", "a.test:443"] {
            assert!(EndpointTls::new(&client, name).is_none(), "{name}");
        }
    }
}
