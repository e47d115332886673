//! Whom a client's certificate names: its subject, its alternative names and its fingerprint.
//!
//! The handshake has verified the certificate. It is read when somebody first asks, once for each connection. One that cannot
//! be read has no names, so that no pattern takes it.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::server::ServerConnection;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::material::{FileError, certificates};
use crate::language::value::Value;

/// A client's certificate.
#[derive(Debug)]
pub struct ClientCertificate {
    der: Box<[u8]>,
    names: OnceLock<Names>,
    fingerprint: OnceLock<[u8; 32]>,
    value: OnceLock<Value>,
}

/// Whom it names.
#[derive(Debug, Default)]
struct Names {
    subject: Box<str>,
    sans: Box<[Box<str>]>,
}

impl ClientCertificate {
    /// The certificate with this DER.
    pub fn new(der: &[u8]) -> Self {
        Self {
            der: der.into(),
            names: OnceLock::new(),
            fingerprint: OnceLock::new(),
            value: OnceLock::new(),
        }
    }

    /// The first certificate in a file.
    ///
    /// # Errors
    /// When there is none, or one that is malformed.
    pub fn read(pem: &str) -> Result<Self, FileError> {
        let chain = certificates(pem)?;
        let own = chain.first().ok_or(FileError::NoCertificate)?;
        Names::read(own).map_err(|_| FileError::NotX509(1))?;
        Ok(Self::new(own))
    }

    /// The one that the client has presented, if the listener asked for one.
    pub(super) fn of(connection: &ServerConnection) -> Option<Arc<Self>> {
        let own = connection.peer_certificates()?.first()?;
        Some(Arc::new(Self::new(own)))
    }

    /// The subject, as text in which no value can be taken for a further name (RFC 4514): `CN=a,O=b`.
    pub fn subject(&self) -> &str {
        &self.names().subject
    }

    /// The alternative names, each with its kind: `dns:` in lower case, `uri:`, `email:` and `ip:`.
    pub fn sans(&self) -> impl Iterator<Item = &str> {
        self.names().sans.iter().map(|san| &**san)
    }

    /// The SHA-256 of the certificate.
    pub fn fingerprint(&self) -> [u8; 32] {
        *self.fingerprint.get_or_init(|| {
            let suite = TLS13_AES_128_GCM_SHA256.tls13();
            let hash = suite.map(|suite| suite.common.hash_provider.hash(&self.der));
            let hash = hash.and_then(|hash| hash.as_ref().try_into().ok());
            // The suite is one of TLS 1.3, and its hash is SHA-256.
            hash.unwrap_or_default()
        })
    }

    /// What expressions read.
    pub(crate) fn to_value(&self) -> Value {
        let value = || {
            let sans = self.sans().map(Value::string).collect();
            Value::object([
                ("subject", Value::string(self.subject())),
                ("sans", Value::array(sans)),
                ("fingerprint", Value::string(hex(self.fingerprint()))),
            ])
        };
        self.value.get_or_init(value).clone()
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| Names::read(&self.der).unwrap_or_else(|error| {
            tracing::warn!(%error, "A client's certificate cannot be read: it counts as one without names.");
            Names::default()
        }))
    }
}

impl Names {
    fn read(der: &[u8]) -> Result<Self, x509_cert::der::Error> {
        let certificate = Certificate::from_der(der)?;
        let own = certificate.tbs_certificate();
        let named = own.get_extension::<SubjectAltName>()?;
        let named = named.map(|(_, SubjectAltName(names))| names).unwrap_or_default();
        Ok(Self {
            subject: own.subject().to_string().into(),
            sans: named.iter().filter_map(san).map(Into::into).collect(),
        })
    }
}

/// An alternative name of the kinds that clients are known by.
fn san(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(format!("dns:{}", name.as_str().to_ascii_lowercase())),
        GeneralName::UniformResourceIdentifier(uri) => Some(format!("uri:{}", uri.as_str())),
        GeneralName::Rfc822Name(name) => Some(format!("email:{}", name.as_str())),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
            address.ok().map(|address| format!("ip:{address}"))
        }
        _ => None,
    }
}

/// In lower case.
fn hex(bytes: [u8; 32]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
    use sha2::{Digest as _, Sha256};

    use super::*;

    /// The DER of a certificate for these names.
    fn issued(subject: &[(DnType, &str)], sans: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.subject_alt_names = sans;
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_says_whom_it_names() {
        let subject = [(DnType::OrganizationName, "Acme"), (DnType::CommonName, "ada")];
        let sans = vec![
            SanType::DnsName("A.Test".try_into().unwrap()),
            SanType::URI("spiffe://acme/ns/x".try_into().unwrap()),
            SanType::Rfc822Name("ada@a.test".try_into().unwrap()),
            SanType::IpAddress("192.0.2.1".parse().unwrap()),
            SanType::IpAddress("2001:db8::1".parse().unwrap()),
        ];
        let der = issued(&subject, sans);
        let certificate = ClientCertificate::new(&der);
        assert_eq!(certificate.subject(), "CN=ada,O=Acme");
        let sans: Vec<_> = certificate.sans().collect();
        let wanted = ["dns:a.test", "uri:spiffe://acme/ns/x", "email:ada@a.test", "ip:192.0.2.1"];
        assert_eq!(sans[..4], wanted);
        assert_eq!(sans[4..], ["ip:2001:db8::1"]);
        assert_eq!(certificate.fingerprint(), <[u8; 32]>::from(Sha256::digest(&der)));
        let value = certificate.to_value();
        assert_eq!(value.get("subject"), Some(Value::from("CN=ada,O=Acme")));
        let written = value.get("fingerprint").unwrap();
        assert_eq!(written.as_str().unwrap().len(), 64);
    }

    /// Who chooses one value must not be able to write another name.
    #[test]
    fn a_value_cannot_be_taken_for_a_further_name() {
        let subject = [(DnType::CommonName, "ada,O=Acme+OU=x\0")];
        let certificate = ClientCertificate::new(&issued(&subject, Vec::new()));
        assert_eq!(certificate.subject(), r"CN=ada\,O=Acme\+OU=x\00");
        assert_eq!(certificate.sans().count(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_have_no_names(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let certificate = ClientCertificate::new(&bytes);
            prop_assert_eq!(certificate.subject(), "");
            prop_assert_eq!(certificate.sans().count(), 0);
        }

        #[test]
        fn a_certificate_that_something_has_changed_is_read_or_has_no_names(
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut der = issued(&[(DnType::CommonName, "ada")], Vec::new());
            let place = place.index(der.len());
            der[place] = byte;
            let _read = ClientCertificate::new(&der).to_value();
        }
    }
}
