//! Which fields and parameters are not kept: those that may be credentials, by the words of their names.
//!
//! The words are matched, not whole names, because each product has its own: `X-Api-Key`, `X-Auth-Token`,
//! `__Secure-session`. A field too many that is hidden can be given again at a replay; one too few would lie on a disk.

use std::borrow::Cow;

/// Each of these anywhere in a name makes it one of a secret.
const PARTS: [&str; 14] = [
    "authorization",
    "authentication",
    "cookie",
    "token",
    "secret",
    "passw",
    "passphrase",
    "passcode",
    "credential",
    "apikey",
    "signature",
    "session",
    "bearer",
    "private",
];

/// Each of these as a word of a name.
const WORDS: [&str; 9] = ["auth", "jwt", "key", "otp", "pin", "pwd", "sid", "sig", "assertion"];

/// Names with such a word that are no secrets, and without which a replay would be another request.
const HARMLESS: [&str; 3] = ["idempotency-key", "sec-websocket-key", "surrogate-key"];

/// How a value that is hidden is shown within a target.
pub(super) const HIDDEN: &str = "***";

/// Whether the value of a field or a parameter of this name is hidden.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if HARMLESS.contains(&name.as_str()) {
        return false;
    }
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let mut words = name.split(|sign: char| !sign.is_ascii_alphanumeric());
    PARTS.iter().any(|part| plain.contains(part)) || words.any(|word| WORDS.contains(&word))
}

/// Whether a value is a credential whatever its field is called (RFC 9110 §11.4).
pub(super) fn is_credential(value: &str) -> bool {
    let scheme = value.split(' ').next().unwrap_or_default();
    value.contains(' ')
        && ["basic", "bearer", "digest", "negotiate"]
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known))
}

/// A target or a URL without the values of its secrets, and the names of those.
pub(super) fn masked(target: &str) -> (Cow<'_, str>, Vec<String>) {
    let mut names = Vec::new();
    let (path, rest) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let path = without_user(path, &mut names);
    let Some(query) = rest else {
        return (path, names);
    };
    let mut shown = String::with_capacity(target.len());
    for (place, pair) in query.split('&').enumerate() {
        if place > 0 {
            shown.push('&');
        }
        match pair.split_once('=') {
            Some((name, value)) if !value.is_empty() && is_secret(&unescaped(name)) => {
                shown.push_str(name);
                shown.push('=');
                shown.push_str(HIDDEN);
                names.push(unescaped(name));
            }
            _ => shown.push_str(pair),
        }
    }
    if names.is_empty() {
        (target.into(), names)
    } else {
        (format!("{path}?{shown}").into(), names)
    }
}

/// A URL without its user and password.
fn without_user<'a>(url: &'a str, names: &mut Vec<String>) -> Cow<'a, str> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.into();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => {
            names.push("user".to_owned());
            format!("{scheme}://{HIDDEN}@{host}{path}").into()
        }
        None => url.into(),
    }
}

/// A name with its percent-encoded ASCII characters decoded.
fn unescaped(name: &str) -> String {
    let mut parts = name.split('%');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let (Some(code), Some(rest)) = (code.filter(u8::is_ascii), part.get(2..)) {
            plain.push(char::from(code));
            plain.push_str(rest);
        } else {
            plain.push('%');
            plain.push_str(part);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_by_their_words() {
        for name in [
            "Authorization",
            "proxy-authorization",
            "Cookie",
            "set-cookie",
            "X-Api-Key",
            "x-goog-api-key",
            "apikey",
            "X-Auth-Token",
            "x-amz-security-token",
            "X-Hub-Signature-256",
            "access_token",
            "client_secret",
            "sig",
            "X-Amz-Credential",
            "auth[key]",
            "PHPSESSID_session",
            "password",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "Accept",
            "Idempotency-Key",
            "Sec-WebSocket-Key",
            "x-tenant",
            "keyword",
            "author",
            "page",
            "monkey",
            "signal",
            "Content-Type",
            "x-request-id",
        ] {
            assert!(!is_secret(name), "{name}");
        }
        assert!(is_credential("Bearer x") && is_credential("basic eA=="));
        assert!(!is_credential("bearer") && !is_credential("Basically fine"));
    }

    #[test]
    fn targets_lose_the_values_of_their_secrets_and_nothing_else() {
        for (target, wanted, names) in [
            ("/a?b=1", "/a?b=1", &[][..]),
            ("/a?token=x&b=1&b=2", "/a?token=***&b=1&b=2", &["token"]),
            ("/a?b=%2f&a%70i%5Fkey=x", "/a?b=%2f&a%70i%5Fkey=***", &["api_key"]),
            ("/a?token", "/a?token", &[]),
            ("/a?token=", "/a?token=", &[]),
            ("https://u:p@a.test/x?sig=1", "https://***@a.test/x?sig=***", &["user", "sig"]),
            ("https://a.test/x@y?b=1", "https://a.test/x@y?b=1", &[]),
        ] {
            let (shown, hidden) = masked(target);
            assert_eq!(
                (&*shown, &*hidden),
                (wanted, &*names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()),
                "{target}"
            );
        }
    }
}
