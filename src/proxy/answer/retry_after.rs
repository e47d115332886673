//! How long a response asks to wait (RFC 9110 §10.2.3). It is read strictly: anything outside of the grammar is
//! ignored, and the backoff is used instead.

use std::time::{Duration, SystemTime};

use http::header::{self, HeaderMap};

use super::rate_limit;

/// The wait that an upstream asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAfter {
    /// The wait as it was asked for.
    pub(crate) asked: Duration,
    /// The longest wait that the upstream's `retryAfterMax` allows.
    pub(crate) max: Duration,
}

impl RetryAfter {
    /// The wait for policies and clients.
    pub(crate) fn wait(self) -> Duration {
        self.asked.min(self.max)
    }
}

/// The wait that a response with these fields asks for; `None` if it asks for none. `now` is used if the
/// response has no `Date`.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let now = date(headers).unwrap_or(now);
    match headers.get(header::RETRY_AFTER) {
        Some(value) => field(value.as_bytes(), now),
        None => rate_limit::reset(headers, now),
    }
}

/// When the response was made, by the server's clock.
fn date(headers: &HeaderMap) -> Option<SystemTime> {
    http_date(headers.get(header::DATE)?.as_bytes())
}

fn field(value: &[u8], now: SystemTime) -> Option<Duration> {
    let value = value.trim_ascii();
    if let Some(seconds) = digits(value) {
        return Some(Duration::from_secs(seconds));
    }
    let until = http_date(value)?;
    Some(until.duration_since(now).unwrap_or(Duration::ZERO))
}

/// `1*DIGIT`. A number that is too large saturates, as RFC 9111 §1.2.2 defines for delta-seconds.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        Some(sum.saturating_mul(10).saturating_add(u64::from(digit)))
    })
}

/// The names of the days in two of the forms of an HTTP-date.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// The names in RFC 850's form.
const LONG_DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Any of the three forms of an HTTP-date (RFC 9110 §5.6.7), with any weekday: the name of the day is
/// redundant, and servers get it wrong.
fn http_date(text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(date) = httpdate::parse_http_date(text) {
        return Some(date);
    }
    let (day, rest) = text.split_at_checked(text.find([',', ' '])?)?;
    let same_kind = [DAYS, LONG_DAYS].into_iter().find(|names| names.contains(&day))?;
    same_kind.iter().find_map(|day| httpdate::parse_http_date(&format!("{day}{rest}")).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const MAX: Duration = Duration::from_mins(5);

    fn now() -> SystemTime {
        httpdate::parse_http_date("Sun, 01 Mar 2026 12:00:00 GMT").unwrap()
    }

    fn of(fields: &[(&'static str, &[u8])]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let asked = retry_after(&headers, now());
        asked.map(|asked| RetryAfter { asked, max: MAX }.wait().as_secs())
    }

    #[test]
    fn every_form_of_the_field() {
        let table: [(&str, Option<u64>); 26] = [
            ("30", Some(30)),
            ("0", Some(0)),
            (" 30 ", Some(30)),
            ("0030", Some(30)),
            ("-5", None),
            ("+5", None),
            ("1.5", None),
            ("1e3", None),
            ("0x10", None),
            ("30s", None),
            ("", None),
            ("soon", None),
            ("120, 60", None),
            ("٣٠", None),
            ("Sun, 01 Mar 2026 12:00:30 GMT", Some(30)),
            ("Sunday, 01-Mar-26 12:00:30 GMT", Some(30)),
            ("Sun Mar  1 12:00:30 2026", Some(30)),
            ("Sun, 01 Mar 2026 11:59:00 GMT", Some(0)),
            ("Sun, 01 Mar 2026 13:00:30 +0100", None),
            ("2026-03-01T12:00:30Z", None),
            ("Sun, 31 Feb 2026 12:00:30 GMT", None),
            ("Mon, 01 Mar 2026 12:00:30 GMT", Some(30)),
            ("Xyz, 01 Mar 2026 12:00:30 GMT", None),
            ("3600", Some(300)),
            ("99999999999999999999999999", Some(300)),
            ("Sun, 01 Mar 2099 12:00:30 GMT", Some(300)),
        ];
        for (text, wanted) in table {
            assert_eq!(of(&[("retry-after", text.as_bytes())]), wanted, "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_say_nothing() {
        assert_eq!(of(&[("retry-after", b"\xff\xfe")]), None);
    }

    #[test]
    fn of_two_fields_the_first_counts() {
        assert_eq!(of(&[("retry-after", b"5"), ("retry-after", b"60")]), Some(5));
    }

    #[test]
    fn a_date_counts_from_the_response_s_own_clock() {
        let fields: [(&str, &[u8]); 2] = [
            ("date", b"Sun, 01 Mar 2026 11:00:00 GMT"),
            ("retry-after", b"Sun, 01 Mar 2026 11:00:07 GMT"),
        ];
        assert_eq!(of(&fields), Some(7));
    }

    #[test]
    fn the_rate_limit_s_reset_stands_in() {
        assert_eq!(of(&[("ratelimit-reset", b"9")]), Some(9));
        assert_eq!(of(&[("x-ratelimit-reset", b"9")]), Some(9));
        assert_eq!(of(&[("ratelimit-reset", b"9"), ("retry-after", b"3")]), Some(3));
        assert_eq!(of(&[("ratelimit-reset", b"9"), ("retry-after", b"soon")]), None);
    }
}
