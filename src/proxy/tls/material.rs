//! Certificates and keys in files (PEM, RFC 7468): reads and checks them.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, SignatureAlgorithm};

use super::validity::Validity;
use super::{Fingerprint, provider};
use crate::language::temporal::Timestamp;

/// The length of a public RSA key of 2048 bits, in DER.
const RSA_2048: usize = 294;

/// Why a file cannot be used: the end of a sentence that begins with its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It contains no certificate.
    #[error(
        "holds no certificate; wanted: PEM, with a part that begins `-----BEGIN CERTIFICATE-----`"
    )]
    NoCertificate,
    /// It contains no private key.
    #[error(
        "holds no private key; wanted: PEM, with a part that begins `-----BEGIN PRIVATE KEY-----` (or `EC PRIVATE KEY`, or `RSA PRIVATE KEY`)"
    )]
    NoKey,
    /// Its key is encrypted.
    #[error(
        "holds a private key that is encrypted, and nobody is there to give its passphrase; `openssl pkey -in FILE` writes it out in clear"
    )]
    EncryptedKey,
    /// It is not valid PEM.
    #[error("is not well-formed PEM: {0}")]
    Malformed(String),
    /// A part is not a valid certificate.
    #[error("holds no X.509 certificate in its part {0}")]
    NotX509(usize),
    /// The type of the key is not supported.
    #[error(
        "holds a private key that cannot be used; wanted: ECDSA on P-256 or P-384, Ed25519, or RSA of 2048 bits or more"
    )]
    KeyKind,
    /// The key belongs to another certificate.
    #[error("is not the key of the certificate: their public keys differ")]
    Mismatch,
    /// A certificate has expired.
    #[error("holds a certificate that expired at {0}; no peer would take it: renew it")]
    Expired(Timestamp),
    /// The library rejects the combination.
    #[error("cannot be used: {0}")]
    Refused(String),
}

/// A certificate chain, the owner's own certificate first.
#[derive(Clone, Debug)]
pub struct Certificates {
    chain: Vec<CertificateDer<'static>>,
    /// The time in which all of them are valid.
    validity: Validity,
}

/// A private key.
pub struct Key(PrivateKeyDer<'static>);

/// An identity: a certificate chain, and the key of its first certificate.
#[derive(Clone)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
    validity: Validity,
    pub(super) mark: Fingerprint,
}

/// Certificate authorities that are trusted.
#[derive(Clone, Debug)]
pub struct Roots {
    pub(super) store: Arc<RootCertStore>,
    pub(super) mark: Fingerprint,
}

impl Certificates {
    /// Reads a file. The certificates must not have expired at `now`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(pem: &str, now: Timestamp) -> Result<Self, FileError> {
        let chain = certificates(pem)?;
        let mut spans = Vec::new();
        for (position, certificate) in chain.iter().enumerate() {
            let parsed = ParsedCertificate::try_from(certificate).ok();
            let validity = parsed.and_then(|_| Validity::of(certificate));
            spans.push(validity.ok_or(FileError::NotX509(position + 1))?);
        }
        let from = spans.iter().map(|span| span.from).max();
        let until = spans.iter().map(|span| span.until).min();
        let (Some(from), Some(until)) = (from, until) else {
            return Err(FileError::NoCertificate);
        };
        if until < now {
            return Err(FileError::Expired(until));
        }
        Ok(Self { chain, validity: Validity { from, until } })
    }

    /// The time from which all of them are valid.
    pub const fn valid_from(&self) -> Timestamp {
        self.validity.from
    }
}

impl Key {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(pem: &str) -> Result<Self, FileError> {
        PrivateKeyDer::from_pem_slice(pem.as_bytes()).map(Self).map_err(|error| match error {
            pem::Error::NoItemsFound if pem.contains("ENCRYPTED PRIVATE KEY") => {
                FileError::EncryptedKey
            }
            pem::Error::NoItemsFound => FileError::NoKey,
            // Older tools mark an encrypted key by header lines before it, which are not base64.
            _ if pem.contains("Proc-Type: 4,ENCRYPTED") => FileError::EncryptedKey,
            error => malformed(&error),
        })
    }
}

/// Shows nothing of the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Identity {
    /// `key` must belong to the first of `certificates`.
    ///
    /// # Errors
    /// When the key belongs to another certificate, or its type is not supported.
    pub fn pair(certificates: Certificates, key: &Key) -> Result<Self, FileError> {
        let Certificates { chain, validity } = certificates;
        let provider = provider();
        let signing = provider.key_provider.load_private_key(key.0.clone_key());
        let signing = signing.map_err(|_| FileError::KeyKind)?;
        let mark = Fingerprint::of((&chain, key.0.secret_der()));
        let certified = CertifiedKey::new(chain, signing);
        // The provider can compute the public half of every key type that it loads.
        certified.keys_match().map_err(|_| FileError::Mismatch)?;
        Ok(Self { certified: Arc::new(certified), validity, mark })
    }

    /// The time until which it is valid.
    pub(super) const fn until(&self) -> Timestamp {
        self.validity.until
    }

    /// Whether one signature takes over a millisecond: RSA of more than 2048 bits.
    pub(super) fn signs_slowly(&self) -> bool {
        let key = &self.certified.key;
        let bytes = key.public_key().map_or(0, |key| key.len());
        key.algorithm() == SignatureAlgorithm::RSA && bytes > RSA_2048
    }

    /// Presents it to every peer.
    pub(super) fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(Arc::clone(&self.certified)))
    }
}

/// Shows nothing of the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("validity", &self.validity).finish_non_exhaustive()
    }
}

impl Roots {
    /// Reads a file with certificates of authorities.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(pem: &str) -> Result<Self, FileError> {
        let all = certificates(pem)?;
        let mut store = RootCertStore::empty();
        for (position, certificate) in all.iter().enumerate() {
            let added = store.add(certificate.clone());
            added.map_err(|_| FileError::NotX509(position + 1))?;
        }
        Ok(Self { store: Arc::new(store), mark: Fingerprint::of(&all) })
    }
}

/// The authorities that the system trusts: those in `SSL_CERT_FILE` and `SSL_CERT_DIR`, otherwise those in the
/// usual places. Single unusable certificates are skipped, as is customary.
///
/// # Errors
/// When there are none. The error is a text for people.
pub fn system_roots() -> Result<Roots, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    let mark = Fingerprint::of(&found.certs);
    let (added, _passed_over) = store.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(Roots { store: Arc::new(store), mark });
    }
    let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
    let why = if errors.is_empty() { String::new() } else { format!(" ({})", errors.join("; ")) };
    Err(format!("the system trusts no certificate authority{why}"))
}

pub(super) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(|error| malformed(&error))?;
    if all.is_empty() { Err(FileError::NoCertificate) } else { Ok(all) }
}

/// What is wrong with a PEM file, without any of its contents.
fn malformed(error: &pem::Error) -> FileError {
    let what = match error {
        pem::Error::MissingSectionEnd { .. } => "a part of it has no `-----END …-----`",
        pem::Error::IllegalSectionStart { .. } => {
            "a `-----BEGIN …` line of it does not end in dashes"
        }
        pem::Error::Base64Decode(_) => "a part of it is not base64",
        _ => "it cannot be read",
    };
    FileError::Malformed(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::tls::testing::{Authority, days};

    fn now() -> Timestamp {
        Timestamp::parse("2026-01-01T00:00:00Z").unwrap()
    }

    fn told<T>(read: Result<T, FileError>) -> String {
        read.err().unwrap().to_string()
    }

    #[test]
    fn a_pair_is_one() {
        let authority = Authority::new();
        let [one, other] = [authority.issue(&["a.test"]), authority.issue(&["a.test"])];
        let certificates = || Certificates::read(&one.chain(), now()).unwrap();
        let pair = |key: &str| Identity::pair(certificates(), &Key::read(key).unwrap());
        let same = (pair(&one.key()).unwrap().mark, pair(&one.key()).unwrap().mark);
        assert_eq!(same.0, same.1);
        insta::assert_snapshot!(told(pair(&other.key())), @"is not the key of the certificate: their public keys differ");
        let shown = format!("{:?} {:?}", Key::read(&one.key()), pair(&one.key()));
        assert!(shown.starts_with("Ok(Key) Ok(Identity { validity: "), "{shown}");
    }

    #[test]
    fn files_are_told_what_they_lack() {
        let authority = Authority::new();
        let issued = authority.issue(&["a.test"]);
        let certificates = |pem: &str| told(Certificates::read(pem, now()));
        let key = |pem: &str| told(Key::read(pem));
        insta::assert_snapshot!(certificates(&issued.key()), @"holds no certificate; wanted: PEM, with a part that begins `-----BEGIN CERTIFICATE-----`");
        insta::assert_snapshot!(key(&issued.chain()), @"holds no private key; wanted: PEM, with a part that begins `-----BEGIN PRIVATE KEY-----` (or `EC PRIVATE KEY`, or `RSA PRIVATE KEY`)");
        for encrypted in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: x\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
        ] {
            insta::allow_duplicates! {
                insta::assert_snapshot!(key(encrypted), @"holds a private key that is encrypted, and nobody is there to give its passphrase; `openssl pkey -in FILE` writes it out in clear");
            }
        }
        let (cut, _) = issued
            .certificate
            .pem()
            .split_at_checked(80)
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        insta::assert_snapshot!(certificates(&cut), @"is not well-formed PEM: a part of it has no `-----END …-----`");
        let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        insta::assert_snapshot!(certificates(&format!("{}{nonsense}", issued.chain())), @"holds no X.509 certificate in its part 2");
        insta::assert_snapshot!(told(Roots::read(nonsense)), @"holds no X.509 certificate in its part 1");
        let wild = "-----BEGIN CERTIFICATE-----\n***\n-----END CERTIFICATE-----\n";
        insta::assert_snapshot!(told(Roots::read(wild)), @"is not well-formed PEM: a part of it is not base64");
        let kind = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let certificates = Certificates::read(&issued.chain(), now()).unwrap();
        insta::assert_snapshot!(told(Identity::pair(certificates, &Key::read(kind).unwrap())), @"holds a private key that cannot be used; wanted: ECDSA on P-256 or P-384, Ed25519, or RSA of 2048 bits or more");
    }

    #[test]
    fn what_has_expired_is_refused_and_what_is_not_valid_yet_says_so() {
        let authority = Authority::new();
        let old = authority.issue_for(&["a.test"], days(0), days(365));
        insta::assert_snapshot!(told(Certificates::read(&old.chain(), now())), @"holds a certificate that expired at 1971-01-01T00:00:00Z; no peer would take it: renew it");
        let early = authority.issue_for(&["a.test"], days(30_000), days(40_000));
        let early = Certificates::read(&early.chain(), now()).unwrap();
        assert!(early.valid_from() > now());
    }
}
