//! Mistakes in arguments, and durations as people write them.

use std::time::Duration;

use crate::language::temporal::Span;

/// A mistake in an argument: its byte offset, and what was found and expected.
#[derive(Debug)]
pub(super) struct ArgumentError {
    pub(super) offset: usize,
    pub(super) message: String,
}

impl ArgumentError {
    pub(super) fn at(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: message.into() }
    }
}

/// A duration greater than zero: `PT0.5S`, or as people write it, `500ms`.
pub(super) fn duration(text: &str) -> Result<Duration, ArgumentError> {
    let iso = || Span::parse(text).filter(|span| *span > Span::ZERO).map(Span::to_duration);
    let message = || format!("`{text}` is no duration above zero, such as 1.5s, 20ms or PT0.5S");
    iso().or_else(|| short_duration(text)).ok_or_else(|| ArgumentError::at(0, message()))
}

/// A number and its unit.
fn short_duration(text: &str) -> Option<Duration> {
    let (number, unit) =
        text.split_at_checked(text.find(|sign: char| sign.is_ascii_alphabetic())?)?;
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = number.parse().ok().filter(|_| plain)?;
    Duration::try_from_secs_f64(number * seconds).ok().filter(|length| !length.is_zero())
}
