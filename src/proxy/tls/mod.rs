//! TLS on both sides of the proxy: 1.3 and 1.2 (RFC 8446, RFC 5246), by rustls over ring.
//!
//! What can be wrong with a file is found when the configuration is read ([`material`]), so that [`ServerTls`]
//! and [`ClientTls`] cannot fail for want of a key; what is left for a connection is its handshake. Both are made
//! anew at each load and compared by what they are made of: an upstream whose certificates are the same keeps its
//! connections, a listener takes new connections by the new ones, and whoever has a connection keeps it.
//!
//! The provider of the cryptography is passed wherever one is wanted: none is installed for the process, where a
//! dependency might install another. An upstream is always verified. There is no switch that turns it off: a
//! private authority is named by `ca`, another name by `serverName`, and with these nothing is left that the
//! switch would be for.

mod client;
mod material;
mod server;
#[cfg(test)]
pub(crate) mod testing;
mod validity;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use rustls::crypto::{CryptoProvider, ring};

pub use self::client::{ClientTls, Secure};
pub(crate) use self::client::{Failed, Secured, Trouble, is_late_refusal};
pub use self::material::{Certificates, Identity, Key, Problem, Roots, system_roots};
pub use self::server::ServerTls;
pub(crate) use self::server::{Accepted, Greeted, Reason, Refused};

/// The other side's protocol as a connection's first flight names it (RFC 7301): HTTP/2.
const H2: &[u8] = b"h2";
/// HTTP/1.1.
const HTTP_1_1: &[u8] = b"http/1.1";

/// What does the cryptography.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(ring::default_provider()));
    Arc::clone(&PROVIDER)
}

/// Tells one set of files from another. It proves nothing, and nobody is shown it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Mark(u64);

impl Mark {
    fn of(parts: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Nothing of it: it is made of a secret, too.
impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mark")
    }
}
