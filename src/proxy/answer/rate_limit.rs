//! When a service's rate limit allows requests again, according to its header fields.
//!
//! Three generations are in use: `X-RateLimit-Reset`, `RateLimit-Reset`, and `RateLimit`, first with the member
//! `reset=30` and later with the parameter `t=30` of each policy (draft-ietf-httpapi-ratelimit-headers). A
//! policy with requests left is not the one that refused.

use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, HeaderName};

use super::retry_after::digits;

static RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// Seconds until the window ends, the most common form.
static RATE_LIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
/// The older name of this field.
static X_RATE_LIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// A reset above this many seconds is a Unix time, not a delay: nobody waits for thirty years.
const EPOCH_SECONDS: u64 = 1_000_000_000;

/// The wait that the first of these fields asks for; `None` if there is none or it cannot be read.
pub(crate) fn reset(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let mut policies = headers.get_all(&RATE_LIMIT).iter().peekable();
    if policies.peek().is_some() {
        let waits = policies.filter_map(|value| value.to_str().ok()).filter_map(field);
        return waits.max();
    }
    let value = headers.get(&RATE_LIMIT_RESET).or_else(|| headers.get(&X_RATE_LIMIT_RESET))?;
    let seconds = digits(value.as_bytes().trim_ascii())?;
    if seconds < EPOCH_SECONDS {
        return Some(Duration::from_secs(seconds));
    }
    let until = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    let wait = until.map(|until| until.duration_since(now).unwrap_or(Duration::ZERO));
    Some(wait.unwrap_or(Duration::MAX))
}

/// The wait that a `RateLimit` field asks for: the longest of its policies with nothing left.
fn field(text: &str) -> Option<Duration> {
    let member = |name| split(text, ',').find_map(|member| parameter(member, name));
    // The earlier form describes one policy with the members of the field.
    if let Some(reset) = member("reset") {
        let left = member("remaining").unwrap_or(0);
        return (left == 0).then(|| Duration::from_secs(reset));
    }
    let exhausted = |policy: &str| {
        let of = |name| split(policy, ';').skip(1).find_map(|part| parameter(part, name));
        (of("r")? == 0).then(|| of("t")).flatten()
    };
    split(text, ',').filter_map(exhausted).max().map(Duration::from_secs)
}

/// The number in `name=number`.
fn parameter(text: &str, name: &str) -> Option<u64> {
    let (key, value) = text.split_once('=')?;
    (key.trim() == name).then(|| digits(value.trim().as_bytes())).flatten()
}

/// The parts between separators outside of strings.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |char| {
        let separates = char == separator && !quoted;
        quoted ^= char == '"' && !escaped;
        escaped = char == '\\' && quoted && !escaped;
        separates
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_policy_with_nothing_left_says_when_it_has_again() {
        let table = [
            (r#""default";r=0;t=30"#, Some(30)),
            (r#""default";r=50;t=30"#, None),
            (r#""a";r=9;t=60, "b";r=0;t=5, "c"; r=0 ; t=7"#, Some(7)),
            (r#""a,b;r=0;t=9";r=0;t=4"#, Some(4)),
            (r#""a\"";r=0;t=4"#, Some(4)),
            (r#""a";r=0"#, None),
            (r#""a";t=30"#, None),
            (r#""a";r=0;t=-1"#, None),
            ("limit=100, remaining=0, reset=5", Some(5)),
            ("limit=100, remaining=3, reset=5", None),
            ("limit=100, reset=5", Some(5)),
            ("reset=soon", None),
            ("", None),
        ];
        for (text, wanted) in table {
            let wanted = wanted.map(Duration::from_secs);
            assert_eq!(field(text), wanted, "{text}");
        }
    }

    #[test]
    fn the_newest_field_that_is_there_counts() {
        let of = |fields: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, HeaderValue::from_static(value));
            }
            let now = httpdate::parse_http_date("Sun, 01 Mar 2026 12:00:00 GMT").unwrap();
            reset(&headers, now).map(|wait| wait.as_secs())
        };
        let policy = ("ratelimit", r#""a";r=0;t=3"#);
        assert_eq!(of(&[policy, ("ratelimit-reset", "9")]), Some(3));
        assert_eq!(of(&[policy, ("ratelimit", r#""b";r=0;t=8"#)]), Some(8));
        assert_eq!(of(&[("ratelimit", r#""a";r=1;t=3"#), ("ratelimit-reset", "9")]), None);
        assert_eq!(of(&[("x-ratelimit-reset", "1"), ("ratelimit-reset", "9")]), Some(9));
        assert_eq!(of(&[("x-ratelimit-reset", "1772366420")]), Some(20));
        assert_eq!(of(&[("x-ratelimit-reset", "1772366380")]), Some(0));
    }
}
