//! RFC 3339 timestamps.

use std::fmt;

use jiff::civil;

use super::span::digits;
use super::{DAY, HOUR, MINUTE, SECOND};

/// An instant: nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i128);

impl Timestamp {
    /// The instant `nanos` nanoseconds after the Unix epoch.
    pub const fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> i128 {
        self.0
    }

    /// Reads an RFC 3339 timestamp, with `T` and `Z` in either case and any numeric offset. A leap second is
    /// allowed only at `23:59:60` UTC, and counts as the second after it, as in POSIX. Digits beyond the
    /// nanosecond are cut off. `None` for any other text.
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
        // The last hours of 9999 are outside jiff's range of timestamps, but within that of its civil times.
        let days = date.duration_since(civil::date(1970, 1, 1)).as_hours() / 24;
        let of_day = time.duration_since(civil::Time::midnight()).as_nanos();
        let utc = i128::from(days) * DAY + of_day - offset;
        if leap && utc.rem_euclid(DAY) != DAY - SECOND {
            return None;
        }
        Some(Self(utc + if leap { SECOND } else { 0 } + fraction))
    }
}

/// RFC 3339 in UTC, `2024-01-15T09:30:00.123Z`, with as many fraction digits as needed. An instant outside
/// the years that RFC 3339 can write is shown as the nearest one within.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// 0000-01-01T00:00:00Z.
        const FIRST: i128 = -62_167_219_200 * SECOND;
        /// 9999-12-31T23:59:59.999999999Z.
        const LAST: i128 = 253_402_300_800 * SECOND - 1;
        let nanos = self.0.clamp(FIRST, LAST);
        // The last hours of 9999 are outside jiff's range of timestamps, but within that of its civil times.
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

/// The rest of a timestamp that is not read yet.
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
