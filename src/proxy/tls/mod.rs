//! TLS 1.3 and 1.2 on both sides of the proxy (RFC 8446, RFC 5246), with rustls and ring.
//!
//! Mistakes in a file are found when the configuration is read ([`material`]), so [`ServerTls`] and
//! [`ClientTls`] never lack a key, and a connection only has its handshake to do. Both are made anew at each
//! load and compared by the files they are made from. So an upstream with unchanged certificates keeps its
//! connections, a listener uses the new ones for new connections, and existing connections continue.
//!
//! The cryptography provider is passed explicitly and not installed for the process, because a dependency might
//! install another one. Upstreams are always verified, and there is no switch to turn that off: with `ca` for a
//! private authority and `serverName` for another name, nothing is left that would need it.

mod client;
mod client_certificate;
mod material;
mod server;
#[cfg(test)]
pub(crate) mod testing;
mod tickets;
mod validity;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, ring};

pub(crate) use self::client::{ClientStream, TlsError, TlsErrorKind, is_late_refusal};
pub use self::client::{ClientTls, EndpointTls};
pub use self::client_certificate::ClientCertificate;
pub use self::material::{Certificates, FileError, Identity, Key, Roots, system_roots};
pub use self::server::ServerTls;
pub(crate) use self::server::{AcceptedConnection, HandshakeError, ServerStream, TlsFailure};

/// HTTP/2 in ALPN (RFC 7301).
const H2: &[u8] = b"h2";
/// HTTP/1.1 in ALPN.
const HTTP_1_1: &[u8] = b"http/1.1";

/// The provider of cryptography. Suites with AES-128-GCM and SHA-256 come first: a processor has instructions for both, and
/// for SHA-384 it has none, which takes a quarter of a handshake.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = ring::default_provider();
        provider.cipher_suites.sort_by_key(|suite| !FIRST.contains(&suite.suite()));
        Arc::new(provider)
    });
    Arc::clone(&PROVIDER)
}

/// The suites that are chosen where both sides have them.
const FIRST: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];

/// Tells one set of files from another. It is never shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Fingerprint(u64);

impl Fingerprint {
    fn of(parts: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Shows nothing, because it is also made from secrets.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mark")
    }
}
