//! ISO 8601 durations and RFC 3339 timestamps (MWL, "Temporal format profile").
//!
//! The data model has no temporal type: a field reads meaning into a string, and this is the one place
//! that reads it. Both types are a signed count of nanoseconds. That is what a timer and a record need,
//! it orders and hashes by value (`PT60S` is `PT1M`), and 128 bits cover every text that a person would
//! write; beyond them a duration saturates, it never overflows. A calendar's months and years have no
//! fixed length, and an interval to wait for has no calendar to hang from: a year counts as 365 days, a
//! month as 30.

use std::fmt;
use std::time::Duration;

use jiff::civil;
use jiff::tz::Offset;

const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;

/// A span of time as the temporal profile writes it: may be zero or negative. Nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i128);

/// An instant: nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i128);

/// One designator: its letter, and the nanoseconds of one of it.
type Unit = (u8, i128);

/// The designators before `T`, in the order in which they must stand.
const DATE_UNITS: [Unit; 3] = [(b'Y', 365 * DAY), (b'M', 30 * DAY), (b'D', DAY)];

/// The designators after `T`.
const TIME_UNITS: [Unit; 3] = [(b'H', HOUR), (b'M', MINUTE), (b'S', SECOND)];

/// Weeks stand alone (ISO 8601-1, 5.5.2; RFC 3339, appendix A).
const WEEK_UNITS: [Unit; 1] = [(b'W', 7 * DAY)];

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of so many nanoseconds.
    pub const fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }

    /// The nanoseconds of this span.
    pub const fn as_nanos(self) -> i128 {
        self.0
    }

    /// Reads an ISO 8601 duration: `P1DT2H`, `P2W`, a fraction (`.` or `,`) on the last component, a
    /// leading minus (ISO 8601-2). `None` for any other text. Digits beyond the nanosecond are cut off.
    ///
    /// ```
    /// use mwl_proxy::language::temporal::Span;
    ///
    /// assert_eq!(Span::parse("PT1M30S"), Span::parse("PT90S"));
    /// assert_eq!(Span::parse("PT"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (sign, text) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text),
        };
        let text = text.strip_prefix('P')?;
        let (date, time) = match text.split_once('T') {
            Some((date, time)) => (date, Some(time)),
            None => (text, None),
        };
        let nanos = match time {
            // `P1DT` and `PT` promise a time and give none.
            Some("") => return None,
            Some(time) => {
                let date = components(date, &DATE_UNITS)?;
                // A fraction belongs to the last component, which now stands after `T`.
                if date.fraction {
                    return None;
                }
                let time = components(time, &TIME_UNITS)?;
                date.nanos.saturating_add(time.nanos)
            }
            None if date.is_empty() => return None,
            None if date.ends_with('W') => components(date, &WEEK_UNITS)?.nanos,
            None => components(date, &DATE_UNITS)?.nanos,
        };
        Some(Self(nanos.saturating_mul(sign)))
    }

    /// The time to wait: zero for a negative span, and at most [`Duration::MAX`].
    pub fn to_duration(self) -> Duration {
        let nanos = u128::try_from(self.0).unwrap_or(0);
        let whole = nanos / SECOND.unsigned_abs();
        let rest = u32::try_from(nanos % SECOND.unsigned_abs()).unwrap_or(0);
        u64::try_from(whole).map_or(Duration::MAX, |seconds| Duration::new(seconds, rest))
    }

    /// The span that a duration is.
    pub fn from_duration(duration: Duration) -> Self {
        Self(i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX))
    }
}

/// What a run of components adds up to.
struct Components {
    nanos: i128,
    fraction: bool,
}

/// Reads `text` as components of `units`, in their order, each at most once; nothing may remain.
fn components(text: &str, units: &[Unit]) -> Option<Components> {
    let mut rest = text.as_bytes();
    let mut sum = Components { nanos: 0, fraction: false };
    for &(designator, unit) in units {
        let (number, after) = number(rest);
        if after.first() != Some(&designator) {
            continue;
        }
        // No digits before the designator, or something after a fraction.
        if number.is_empty() || sum.fraction {
            return None;
        }
        sum.nanos = sum.nanos.saturating_add(scaled(number, unit)?);
        sum.fraction = number.iter().any(|byte| matches!(byte, b'.' | b','));
        rest = after.get(1..)?;
    }
    rest.is_empty().then_some(sum)
}

/// The leading number of `bytes`, and what follows it.
fn number(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes
        .iter()
        .position(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b','))
        .unwrap_or(bytes.len());
    bytes.split_at(end)
}

/// `number` times `unit`, in nanoseconds. `None` where `number` has no digit on both sides of its sign,
/// or a second sign.
fn scaled(number: &[u8], unit: i128) -> Option<i128> {
    let mut parts = number.split(|byte| matches!(byte, b'.' | b','));
    let whole = digits(parts.next()?)?.saturating_mul(unit);
    let Some(fraction) = parts.next() else {
        return Some(whole);
    };
    if parts.next().is_some() {
        return None;
    }
    digits(fraction)?;
    let (mut nanos, mut place) = (0, unit);
    for digit in fraction {
        // `place` loses nothing until it is below a nanosecond: the units divide by ten at least nine times.
        let value = i128::from(digit - b'0');
        nanos += value * place / 10;
        place /= 10;
    }
    Some(whole.saturating_add(nanos))
}

/// The number that these digits write, saturating; `None` where there is none.
fn digits(digits: &[u8]) -> Option<i128> {
    (!digits.is_empty()).then(|| {
        digits.iter().fold(0_i128, |number, digit| {
            number.saturating_mul(10).saturating_add(i128::from(digit - b'0'))
        })
    })
}

/// The canonical form of MWL's `durationToIso8601`: hours the largest unit, zero components left out, the
/// fraction on the seconds. `PT1H30M`, `PT0.5S`, `-PT30S`, `PT0S`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        let [hour, minute, second] = [HOUR, MINUTE, SECOND].map(i128::unsigned_abs);
        if nanos == 0 {
            return f.write_str("PT0S");
        }
        f.write_str(if self.0 < 0 { "-PT" } else { "PT" })?;
        if nanos / hour > 0 {
            write!(f, "{}H", nanos / hour)?;
        }
        if nanos % hour / minute > 0 {
            write!(f, "{}M", nanos % hour / minute)?;
        }
        let seconds = nanos % minute;
        if seconds == 0 {
            return Ok(());
        }
        write!(f, "{}", seconds / second)?;
        if !seconds.is_multiple_of(second) {
            let fraction = format!("{:09}", seconds % second);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str("S")
    }
}

impl Timestamp {
    /// The instant so many nanoseconds after the Unix epoch.
    pub const fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> i128 {
        self.0
    }

    /// Reads an RFC 3339 timestamp, with `T` and `Z` in either case and any numeric offset. A leap second
    /// (`23:59:60` in UTC, and nowhere else) is the second after it: this clock counts as POSIX does.
    /// Digits beyond the nanosecond are cut off. `None` for any other text.
    ///
    /// ```
    /// use mwl_proxy::language::temporal::Timestamp;
    ///
    /// let noon = Timestamp::parse("2024-01-15T12:00:00+02:00").unwrap();
    /// assert_eq!(noon.to_string(), "2024-01-15T10:00:00Z");
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let mut reader = Reader(text.as_bytes());
        let date = civil::Date::new(
            i16::try_from(reader.digits(4)?).ok()?,
            reader.after(b"-", 2)?,
            reader.after(b"-", 2)?,
        )
        .ok()?;
        let (hour, minute, second) =
            (reader.after(b"Tt", 2)?, reader.after(b":", 2)?, reader.after(b":", 2)?);
        let fraction = reader.fraction()?;
        let offset = reader.offset()?;
        reader.0.is_empty().then_some(())?;
        let leap = second == 60;
        let time = civil::Time::new(hour, minute, if leap { 59 } else { second }, 0).ok()?;
        let local = Offset::UTC.to_timestamp(date.to_datetime(time)).ok()?;
        let utc = local.as_nanosecond() - offset;
        if leap && utc.rem_euclid(DAY) != DAY - SECOND {
            return None;
        }
        Some(Self(utc + if leap { SECOND } else { 0 } + fraction))
    }
}

/// RFC 3339 in UTC, `2024-01-15T09:30:00.123Z`, with as many fraction digits as it needs. What lies beyond
/// the years that RFC 3339 can write is shown as the nearest that it can.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// 0000-01-01T00:00:00Z.
        const FIRST: i128 = -62_167_219_200 * SECOND;
        /// 9999-12-31T23:59:59.999999999Z.
        const LAST: i128 = 253_402_300_800 * SECOND - 1;
        let nanos = self.0.clamp(FIRST, LAST);
        // The last hours of 9999 are beyond jiff's range of timestamps, but not of its civil times.
        let days = i64::try_from(nanos.div_euclid(DAY)).map_err(|_| fmt::Error)?;
        let date = civil::date(1970, 1, 1)
            .checked_add(jiff::SignedDuration::from_hours(days * 24))
            .map_err(|_| fmt::Error)?;
        let of_day = nanos.rem_euclid(DAY);
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            date.year(),
            date.month(),
            date.day(),
            of_day / HOUR,
            of_day % HOUR / MINUTE,
            of_day % MINUTE / SECOND,
        )?;
        if of_day % SECOND > 0 {
            let fraction = format!("{:09}", of_day % SECOND);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// The unread rest of a timestamp.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// Exactly `count` digits.
    fn digits(&mut self, count: usize) -> Option<u32> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        let number = digits.iter().try_fold(0, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0'))
        })?;
        self.0 = rest;
        Some(number)
    }

    /// One of `marks`, then exactly `count` digits.
    fn after(&mut self, marks: &[u8], count: usize) -> Option<i8> {
        self.mark(marks)?;
        i8::try_from(self.digits(count)?).ok()
    }

    /// One of `marks`.
    fn mark(&mut self, marks: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        marks.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    /// An optional fraction of a second, in nanoseconds.
    fn fraction(&mut self) -> Option<i128> {
        if self.mark(b".").is_none() {
            return Some(0);
        }
        let end = self.0.iter().position(|byte| !byte.is_ascii_digit());
        let (fraction, rest) = self.0.split_at_checked(end.unwrap_or(self.0.len()))?;
        self.0 = rest;
        digits(fraction)?;
        let nine = fraction.iter().chain(std::iter::repeat(&b'0')).take(9);
        Some(nine.fold(0, |nanos, digit| nanos * 10 + i128::from(digit - b'0')))
    }

    /// `Z` or an offset from UTC, in nanoseconds.
    fn offset(&mut self) -> Option<i128> {
        let sign = match self.mark(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Some(0),
        };
        let hours = self.digits(2).filter(|hours| *hours < 24)?;
        let minutes = self.after(b":", 2).filter(|minutes| *minutes < 60)?;
        Some(sign * (i128::from(hours) * HOUR + i128::from(minutes) * MINUTE))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nanos(text: &str) -> Option<i128> {
        Span::parse(text).map(Span::as_nanos)
    }

    #[test]
    fn every_form_of_a_duration_is_read() {
        for (text, expected) in [
            ("PT30S", 30 * SECOND),
            ("PT1H", HOUR),
            ("P1D", DAY),
            ("PT0S", 0),
            ("P0D", 0),
            ("P2W", 14 * DAY),
            ("P0.5W", 84 * HOUR),
            ("P1Y", 365 * DAY),
            ("P1M", 30 * DAY),
            ("P1Y2M3DT4H5M6S", (365 + 60 + 3) * DAY + 4 * HOUR + 5 * MINUTE + 6 * SECOND),
            ("PT0.5S", SECOND / 2),
            ("PT0,5S", SECOND / 2),
            ("PT1.5H", 90 * MINUTE),
            ("P1DT0.5M", DAY + 30 * SECOND),
            ("PT0.1234567891S", 123_456_789),
            ("PT36H", 36 * HOUR),
            ("-PT30S", -30 * SECOND),
            ("-P1W", -7 * DAY),
            ("PT00001S", SECOND),
        ] {
            assert_eq!(nanos(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "P",
            "PT",
            "-P",
            "-PT",
            "1S",
            "P1S",
            "PT1D",
            "P1",
            "PT1",
            "P1DT",
            "PT1S ",
            " PT1S",
            "PT1Sx",
            "PT1S1M",
            "P1D1Y",
            "PT1M1H",
            "P1W1D",
            "P1Y2W",
            "P1WT1H",
            "PT.5S",
            "PT5.S",
            "PT1.5H30M",
            "P1.5DT1H",
            "PT1.2.3S",
            "+PT1S",
            "--PT1S",
            "P-1D",
            "pt1s",
            "PTS",
            "PT1S1S",
            "PT١S",
            "P1DT1",
            "TP1D",
            "PTT1S",
        ] {
            assert_eq!(nanos(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_duration_beyond_128_bits_saturates() {
        let long = format!("P{}Y", "9".repeat(60));
        assert_eq!(nanos(&long), Some(i128::MAX));
        assert_eq!(Span::parse(&long).unwrap().to_duration(), Duration::MAX);
        assert_eq!(nanos(&format!("-P{}YT1S", "9".repeat(60))), Some(-i128::MAX));
        assert_eq!(nanos(&format!("PT0.{}S", "9".repeat(500))), Some(999_999_999));
    }

    #[test]
    fn the_canonical_form_is_that_of_duration_to_iso8601() {
        for (nanos, text) in [
            (90 * MINUTE, "PT1H30M"),
            (26 * HOUR, "PT26H"),
            (SECOND / 2, "PT0.5S"),
            (0, "PT0S"),
            (-30 * SECOND, "-PT30S"),
            (HOUR + 1, "PT1H0.000000001S"),
            (MINUTE, "PT1M"),
            (-(HOUR + 1_500_000_000), "-PT1H1.5S"),
        ] {
            assert_eq!(Span::from_nanos(nanos).to_string(), text);
        }
    }

    #[test]
    fn a_negative_span_is_no_time_to_wait() {
        assert_eq!(Span::from_nanos(-1).to_duration(), Duration::ZERO);
        assert_eq!(Span::from_nanos(1_500_000_000).to_duration(), Duration::from_millis(1500));
        assert_eq!(Span::from_duration(Duration::from_millis(2)).as_nanos(), 2_000_000);
    }

    #[test]
    fn timestamps_are_read_with_offsets_and_fractions() {
        for (text, shown) in [
            ("2024-01-15T09:30:00Z", "2024-01-15T09:30:00Z"),
            ("2024-01-15t09:30:00z", "2024-01-15T09:30:00Z"),
            ("2024-01-15T09:30:00.120Z", "2024-01-15T09:30:00.12Z"),
            ("2024-01-15T09:30:00.1234567899Z", "2024-01-15T09:30:00.123456789Z"),
            ("2024-01-15T12:30:00+02:00", "2024-01-15T10:30:00Z"),
            ("2024-01-15T12:30:00-00:00", "2024-01-15T12:30:00Z"),
            ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.5Z"),
            ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
            ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
            ("2017-01-01T01:59:60.5+02:00", "2017-01-01T00:00:00.5Z"),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ] {
            let timestamp = Timestamp::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(timestamp.to_string(), shown, "{text}");
        }
        assert_eq!(Timestamp::parse("1970-01-01T00:00:01Z").unwrap().as_nanos(), SECOND);
    }

    #[test]
    fn what_is_no_timestamp_is_refused() {
        for text in [
            "",
            "2024-01-15",
            "2024-01-15T09:30:00",
            "2024-01-15 09:30:00Z",
            "2024-01-15T09:30Z",
            "2024-13-15T09:30:00Z",
            "2023-02-29T09:30:00Z",
            "2024-01-15T24:00:00Z",
            "2024-01-15T09:60:00Z",
            "2024-01-15T09:30:61Z",
            "2024-01-15T09:30:60Z",
            "2024-01-15T09:30:00.Z",
            "2024-01-15T09:30:00+24:00",
            "2024-01-15T09:30:00+02:60",
            "2024-01-15T09:30:00+0200",
            "2024-01-15T09:30:00Z ",
            "24-01-15T09:30:00Z",
            "+2024-01-15T09:30:00Z",
            "2024-1-15T09:30:00Z",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_instant_beyond_the_calendar_is_shown_as_its_end() {
        assert_eq!(Timestamp::from_nanos(i128::MAX).to_string(), "9999-12-31T23:59:59.999999999Z");
        assert_eq!(Timestamp::from_nanos(i128::MIN).to_string(), "0000-01-01T00:00:00Z");
    }

    proptest! {
        #[test]
        fn a_span_survives_its_text(nanos in -i128::MAX..i128::MAX) {
            let span = Span::from_nanos(nanos);
            prop_assert_eq!(Span::parse(&span.to_string()), Some(span));
        }

        #[test]
        fn a_timestamp_survives_its_text(
            nanos in -62_167_219_200 * SECOND..253_402_207_200 * SECOND,
        ) {
            let timestamp = Timestamp::from_nanos(nanos);
            prop_assert_eq!(Timestamp::parse(&timestamp.to_string()), Some(timestamp));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "-?P?[0-9.,YMWDTHSZ:+-]{0,40}|\\PC{0,40}") {
            let _ = (Span::parse(&text), Timestamp::parse(&text));
        }

        #[test]
        fn offsets_shift_the_instant(hours in 0_i128..24, minutes in 0_i128..60) {
            let text = format!("2024-01-15T00:00:00-{hours:02}:{minutes:02}");
            let base = Timestamp::parse("2024-01-15T00:00:00Z").unwrap().as_nanos();
            let shifted = Timestamp::parse(&text).unwrap().as_nanos();
            prop_assert_eq!(shifted - base, hours * HOUR + minutes * MINUTE);
        }
    }
}
