//! Parses CEL's own duration text (`1h30m`) strictly. The CEL crate's parser stops at the first thing that it
//! does not know, and takes what it has read so far.

use cel::common::types::CelDuration;
use chrono::TimeDelta;

/// The units. Where one name begins with another, the longer comes first.
const UNITS: [(&str, i128); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses what Go's `time.ParseDuration` parses: an optional sign, then numbers with units, or `0`.
pub(super) fn parse(text: &str) -> Result<CelDuration, String> {
    let refuse = |problem: &str| {
        let shown: String = text.chars().take(60).collect();
        format!("\"{shown}\" {problem}")
    };
    let malformed = || refuse("is not a duration; one is \"1h30m\" or \"0.5s\"");
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let nanos = if unsigned == "0" { 0 } else { components(unsigned).ok_or_else(malformed)? };
    of_nanos(sign * nanos)
        .ok_or_else(|| refuse("is beyond the range of a duration, about 292 years"))
}

fn components(text: &str) -> Option<i128> {
    let mut rest = text;
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
        let (number, tail) = rest.split_at_checked(end)?;
        let (unit, size) = UNITS.into_iter().find(|(unit, _)| tail.starts_with(unit))?;
        nanos = nanos.saturating_add(scaled(number, size)?);
        rest = tail.strip_prefix(unit)?;
    }
    (!text.is_empty()).then_some(nanos.min(i128::from(i64::MAX) + 2))
}

/// `number` times `size`, truncated to whole nanoseconds.
fn scaled(number: &str, size: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let mut nanos = whole
        .bytes()
        .fold(0_i128, |sum, digit| sum.saturating_mul(10).saturating_add(i128::from(digit - b'0')));
    nanos = nanos.saturating_mul(size);
    let mut place = size * 1_000_000;
    let mut part = 0;
    for digit in fraction.bytes() {
        place /= 10;
        part += i128::from(digit - b'0') * place;
    }
    Some(nanos.saturating_add(part / 1_000_000))
}

/// The CEL duration of `nanos` nanoseconds, if a 64-bit count holds them, as in cel-go.
pub(super) fn of_nanos(nanos: i128) -> Option<CelDuration> {
    let nanos = i64::try_from(nanos).ok()?;
    Some(CelDuration::from(TimeDelta::nanoseconds(nanos)))
}

/// The nanoseconds of a CEL duration.
pub(super) fn nanos(duration: TimeDelta) -> i128 {
    i128::from(duration.num_seconds()) * 1_000_000_000 + i128::from(duration.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<i128> {
        parse(text).ok().map(|duration| nanos(*duration.inner()))
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("1h", 3_600_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("-1.5s", -1_500_000_000),
            ("+1ms", 1_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1us2ns", 1_002),
            ("1µs", 1_000),
            ("1.5ns", 1),
            ("1s1s", 2_000_000_000),
            ("0.000001h", 3_600_000),
        ] {
            assert_eq!(read(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in [
            "",
            "-",
            "1",
            "1h 1s",
            "1h1",
            "1x",
            "s",
            "1hx",
            "1..5s",
            ".s",
            "1h ",
            " 1h",
            "--1s",
            "1e3s",
            "99999999h",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
        insta::assert_snapshot!(parse("1h 1s").unwrap_err(), @r#""1h 1s" is not a duration; one is "1h30m" or "0.5s""#);
        insta::assert_snapshot!(parse("9999999h").unwrap_err(), @r#""9999999h" is beyond the range of a duration, about 292 years"#);
    }
}
