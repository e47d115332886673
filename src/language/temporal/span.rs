//! ISO 8601 durations.

use std::fmt;
use std::time::Duration;

use super::{DAY, HOUR, MINUTE, SECOND};

/// A span of time in nanoseconds, as the temporal profile writes it. It may be zero or negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i128);

/// A designator: its letter, and its length in nanoseconds.
type Unit = (u8, i128);

/// The designators before `T`, in the order in which they must be written.
const DATE_UNITS: [Unit; 3] = [(b'Y', 365 * DAY), (b'M', 30 * DAY), (b'D', DAY)];

/// The designators after `T`.
const TIME_UNITS: [Unit; 3] = [(b'H', HOUR), (b'M', MINUTE), (b'S', SECOND)];

/// Weeks cannot be combined with others (ISO 8601-1, 5.5.2; RFC 3339, appendix A).
const WEEK_UNITS: [Unit; 1] = [(b'W', 7 * DAY)];

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `nanos` nanoseconds.
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
            // After `T` there must be a time: `P1DT` and `PT` have none.
            Some("") => return None,
            Some(time) => {
                let date = components(date, &DATE_UNITS)?;
                // Only the last component may have a fraction, and that is after `T` here.
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

    /// The span of a duration.
    pub fn from_duration(duration: Duration) -> Self {
        Self(i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX))
    }
}

/// The sum of some components.
struct Components {
    nanos: i128,
    fraction: bool,
}

/// Reads all of `text` as components of `units`: in their order, each at most once.
fn components(text: &str, units: &[Unit]) -> Option<Components> {
    let mut rest = text.as_bytes();
    let mut sum = Components { nanos: 0, fraction: false };
    for &(designator, unit) in units {
        let (number, after) = number(rest);
        if after.first() != Some(&designator) {
            continue;
        }
        // There is no number, or a fraction was not on the last component.
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

/// `number` times `unit`, in nanoseconds. `None` unless `number` has at most one decimal sign, with digits on
/// both sides of it.
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
        // `place` is exact until it is below a nanosecond: each unit can be divided by ten nine times.
        let value = i128::from(digit - b'0');
        nanos += value * place / 10;
        place /= 10;
    }
    Some(whole.saturating_add(nanos))
}

/// The number that these digits write, saturating; `None` if there are no digits.
pub(super) fn digits(digits: &[u8]) -> Option<i128> {
    (!digits.is_empty()).then(|| {
        digits.iter().fold(0_i128, |number, digit| {
            number.saturating_mul(10).saturating_add(i128::from(digit - b'0'))
        })
    })
}

/// The canonical form of MWL's `durationToIso8601`: hours are the largest unit, zero components are left out,
/// and only seconds have a fraction. `PT1H30M`, `PT0.5S`, `-PT30S`, `PT0S`.
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
