//! `match: { clientCertificate: … }`: which clients a route takes.

use std::sync::Arc;

use crate::proxy::tls::ClientCertificate;

/// Which certificates a client may have. Each list that is not empty must have one that fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateMatch {
    /// Whole subjects.
    pub subjects: Vec<Arc<str>>,
    /// Alternative names.
    pub sans: Vec<SanPattern>,
    /// SHA-256 of certificates.
    pub fingerprints: Vec<[u8; 32]>,
}

/// An alternative name with its kind, in which one `*` may stand for one or more characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SanPattern {
    before: Arc<str>,
    /// What follows the `*`, if there is one.
    after: Option<Arc<str>>,
}

/// The kinds of alternative names.
const KINDS: [&str; 4] = ["dns:", "uri:", "email:", "ip:"];

impl CertificateMatch {
    /// Whether it takes the client with this certificate.
    pub fn takes(&self, certificate: &ClientCertificate) -> bool {
        let Self { subjects, sans, fingerprints } = self;
        let any = |sans: &[SanPattern]| {
            certificate.sans().any(|san| sans.iter().any(|pattern| pattern.takes(san)))
        };
        (subjects.is_empty() || subjects.iter().any(|one| **one == *certificate.subject()))
            && (sans.is_empty() || any(sans))
            && (fingerprints.is_empty() || fingerprints.contains(&certificate.fingerprint()))
    }

    /// Whether it takes every client that `inner` takes.
    pub fn covers(&self, inner: &Self) -> bool {
        fn each<T>(outer: &[T], inner: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
            let covered = |one: &T| outer.iter().any(|wider| covers(wider, one));
            outer.is_empty() || !inner.is_empty() && inner.iter().all(covered)
        }
        let Self { subjects, sans, fingerprints } = self;
        each(subjects, &inner.subjects, PartialEq::eq)
            && each(sans, &inner.sans, SanPattern::covers)
            && each(fingerprints, &inner.fingerprints, PartialEq::eq)
    }
}

impl SanPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it has no kind, or more than one `*`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(kind) = KINDS.iter().find(|kind| text.starts_with(**kind)) else {
            let kinds = KINDS.join("`, `");
            return Err(format!("`{text}` has no kind; it begins with `{kinds}`"));
        };
        let text = match *kind {
            "dns:" => text.to_ascii_lowercase(),
            _ => text.to_owned(),
        };
        let (before, after) = match text.split_once('*') {
            None => (text.as_str(), None),
            Some((_, after)) if after.contains('*') => {
                return Err(format!("`{text}` has more than one `*`"));
            }
            Some((before, after)) => (before, Some(after.into())),
        };
        if before.len() == kind.len() && after.is_none() {
            return Err(format!("`{text}` names nobody; write `{kind}*` for any"));
        }
        Ok(Self { before: before.into(), after })
    }

    /// Whether an alternative name fits.
    pub fn takes(&self, san: &str) -> bool {
        match &self.after {
            None => *self.before == *san,
            Some(after) => {
                let rest = san.strip_prefix(&*self.before);
                rest.is_some_and(|rest| rest.len() > after.len() && rest.ends_with(&**after))
            }
        }
    }

    fn covers(&self, inner: &Self) -> bool {
        match (&self.after, &inner.after) {
            (_, None) => self.takes(&inner.before),
            (None, Some(_)) => false,
            (Some(after), Some(narrower)) => {
                inner.before.starts_with(&*self.before) && narrower.ends_with(&**after)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> SanPattern {
        SanPattern::parse(text).unwrap()
    }

    #[test]
    fn a_star_stands_for_something() {
        for (written, san, wanted) in [
            ("dns:a.test", "dns:a.test", true),
            ("dns:A.test", "dns:a.test", true),
            ("dns:a.test", "uri:a.test", false),
            ("dns:*.a.test", "dns:b.c.a.test", true),
            ("dns:*.a.test", "dns:.a.test", false),
            ("dns:*.a.test", "email:x@b.a.test", false),
            ("uri:spiffe://acme/*", "uri:spiffe://acme/ns/x", true),
            ("uri:spiffe://acme/*", "uri:spiffe://acme/", false),
            ("uri:spiffe://acme/*/web", "uri:spiffe://acme/x/web", true),
            ("uri:spiffe://acme/*/web", "uri:spiffe://acme/web", false),
            ("uri:spiffe://Acme/x", "uri:spiffe://acme/x", false),
            ("ip:*", "ip:10.0.0.1", true),
        ] {
            assert_eq!(pattern(written).takes(san), wanted, "{written} {san}");
        }
    }

    #[test]
    fn a_pattern_says_its_kind_and_one_star() {
        let said = |text| SanPattern::parse(text).unwrap_err();
        let said = [said("a.test"), said("DNS:a.test"), said("dns:*.*"), said("uri:")];
        insta::assert_snapshot!(said.join("\n"), @r"
        `a.test` has no kind; it begins with `dns:`, `uri:`, `email:`, `ip:`
        `DNS:a.test` has no kind; it begins with `dns:`, `uri:`, `email:`, `ip:`
        `dns:*.*` has more than one `*`
        `uri:` names nobody; write `uri:*` for any
        ");
    }

    #[test]
    fn a_wider_match_covers_a_narrower_one() {
        let sans = |written: &[&str]| CertificateMatch {
            sans: written.iter().map(|text| pattern(text)).collect(),
            ..CertificateMatch::default()
        };
        let any = CertificateMatch::default;
        let of = |subject: &str| CertificateMatch { subjects: vec![subject.into()], ..any() };
        for (outer, inner, wanted) in [
            (any(), of("CN=a"), true),
            (of("CN=a"), any(), false),
            (of("CN=a"), of("CN=a"), true),
            (of("CN=a"), of("CN=b"), false),
            (sans(&["dns:*.test"]), sans(&["dns:a.test"]), true),
            (sans(&["dns:*.test"]), sans(&["dns:a.*.test"]), true),
            (sans(&["dns:a.*.test"]), sans(&["dns:*.test"]), false),
            (sans(&["dns:a.test"]), sans(&["dns:a.test", "dns:b.test"]), false),
            (sans(&["dns:a.test"]), of("CN=a"), false),
        ] {
            assert_eq!(outer.covers(&inner), wanted, "{outer:?} {inner:?}");
        }
    }
}
