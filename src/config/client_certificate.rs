//! `match: { clientCertificate: … }`.

use std::sync::Arc;

use super::read::Object;
use super::report::Report;
use super::shape::{Section, Shape, or};
use crate::proxy::settings::{CertificateMatch, SanPattern};
use crate::source::Node;

pub(super) const CLIENT_CERTIFICATE: Section = Section {
    name: "`clientCertificate`",
    doc: "Which certificate the client must have presented, to a listener with a `clientCa`. Each list that is not empty must have one that fits; without any, every certificate does.",
    fields: &[
        or(
            "subjects",
            Shape::List(&Shape::Text),
            "[]",
            "Whole subjects, as `execution.platform.client.certificate.subject` shows them: `CN=ada,O=Acme`.",
        ),
        or(
            "sans",
            Shape::List(&Shape::Text),
            "[]",
            "Alternative names with their kind: `dns:`, `uri:`, `email:` or `ip:`. One `*` in it stands for one or more characters.",
        ),
        or(
            "fingerprints",
            Shape::List(&Shape::Text),
            "[]",
            "The SHA-256 of certificates, in hexadecimal digits, with or without colons.",
        ),
    ],
};

/// The certificates of a `match`; `None` if it has no such key.
pub(super) fn client_certificate(
    report: &Report,
    matched: &Object<'_>,
) -> Option<CertificateMatch> {
    let node = matched.get("clientCertificate")?;
    let object = Object::open(report, "clientCertificate", node, &CLIENT_CERTIFICATE)?;
    let subject = |node: &Node| report.parsed("bad-subject", "subjects", node, subject);
    let san = |node: &Node| report.parsed("bad-san", "sans", node, SanPattern::parse);
    let print = |node: &Node| report.parsed("bad-fingerprint", "fingerprints", node, fingerprint);
    Some(CertificateMatch {
        subjects: object.list("subjects").iter().filter_map(subject).collect(),
        sans: object.list("sans").iter().filter_map(san).collect(),
        fingerprints: object.list("fingerprints").iter().filter_map(print).collect(),
    })
}

fn subject(text: &str) -> Result<Arc<str>, String> {
    if text.contains('=') {
        return Ok(text.into());
    }
    Err(format!("`{text}` is not a subject; write it whole, such as `CN=ada,O=Acme`"))
}

fn fingerprint(text: &str) -> Result<[u8; 32], String> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|sign| *sign != ':')
        .map(|sign| sign.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let bytes = digits.filter(|digits| digits.len() == 64).and_then(|digits| {
        let (pairs, _rest) = digits.as_chunks::<2>();
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
        bytes.try_into().ok()
    });
    bytes.ok_or_else(|| {
        format!(
            "`{text}` is not a SHA-256 in 64 hexadecimal digits; `openssl x509 -noout -fingerprint -sha256 -in FILE` prints it"
        )
    })
}
