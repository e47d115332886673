//! A certificate authority for tests. `tests/it` includes this file too.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};

/// Issues certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

/// A certificate and its key.
pub(crate) struct Issued {
    pub(crate) certificate: Certificate,
    key: KeyPair,
}

/// The time this many days after the beginning of 1970.
pub(crate) const fn days(count: u64) -> u64 {
    count * 24 * 60 * 60
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        // Two authorities with the same name would be confused, and signatures of one taken for forgeries of
        // the other.
        let name = format!("an authority: {:?}", key.public_key_raw());
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// The authority's own certificate.
    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Issues a certificate for these names that is valid for as long as any test runs.
    pub(crate) fn issue(&self, names: &[&str]) -> Issued {
        self.issue_for(names, days(0), days(40_000))
    }

    /// Issues a certificate for these names that is valid between two times, in seconds since the beginning of 1970.
    pub(crate) fn issue_for(&self, names: &[&str], from: u64, until: u64) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        let begin = rcgen::date_time_ymd(1970, 1, 1);
        params.not_before = begin + std::time::Duration::from_secs(from);
        params.not_after = begin + std::time::Duration::from_secs(until);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued { certificate, key }
    }
}

impl Issued {
    /// The certificate, as PEM.
    pub(crate) fn chain(&self) -> String {
        self.certificate.pem()
    }

    /// The key, as PEM.
    pub(crate) fn key(&self) -> String {
        self.key.serialize_pem()
    }
}
