//! Reads the arguments of the proxy's own middlewares. A message says what is wanted and what there is.

use std::sync::Arc;
use std::time::Duration;

use crate::language::outcome::Failure;
use crate::language::temporal::Span;
use crate::language::value::Value;

/// What a request's `with` adds to the arguments that are the same for all: the key, if the entry has one.
#[derive(Debug)]
pub(super) struct Key(pub(super) Option<Arc<str>>);

impl Key {
    /// Reads the key.
    pub(super) fn read(with: &Value) -> Result<Self, Failure> {
        text(with, "key").map(Self)
    }
}

/// The member `name`, unless it is absent or null.
pub(super) fn member(with: &Value, name: &str) -> Option<Value> {
    with.get(name).filter(|value| !value.is_null())
}

/// A text.
pub(super) fn text(with: &Value, name: &str) -> Result<Option<Arc<str>>, Failure> {
    let read = |value| match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(name, "a string", &other)),
    };
    member(with, name).map(read).transpose()
}

/// A duration of at least `least`.
pub(super) fn duration(
    with: &Value,
    name: &str,
    least: Duration,
) -> Result<Option<Duration>, Failure> {
    let read = |value: Value| {
        let span = value.as_str().and_then(Span::parse).filter(|span| *span >= Span::ZERO);
        let duration = span.map(Span::to_duration).filter(|duration| *duration >= least);
        duration.ok_or_else(|| {
            let least = Span::from_duration(least);
            let wanted = format!("an ISO 8601 duration of at least {least}");
            wrong(name, &wanted, &value)
        })
    };
    member(with, name).map(read).transpose()
}

/// A whole number from `least` to `most`.
pub(super) fn count(
    with: &Value,
    name: &str,
    (least, most): (u32, u32),
) -> Result<Option<u32>, Failure> {
    let read = |value: Value| {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| wrong(name, &format!("an integer from {least} to {most}"), &value))
    };
    member(with, name).map(read).transpose()
}

/// A size of at most `most` bytes, with its unit.
pub(super) fn size(with: &Value, name: &str, most: usize) -> Result<Option<usize>, Failure> {
    let read = |value: Value| {
        let size = value.as_str().and_then(bytes).filter(|size| *size <= most);
        let wanted = || format!("a size of at most {most} bytes, such as 64KiB");
        size.ok_or_else(|| wrong(name, &wanted(), &value))
    };
    member(with, name).map(read).transpose()
}

/// A number of bytes with its unit.
fn bytes(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(factor)
}

/// `observed` is not what `name` must be.
pub(super) fn wrong(name: &str, wanted: &str, observed: &Value) -> Failure {
    let message = format!("`{name}` must be {wanted}; it is {} {observed}", observed.type_name());
    Failure::validation(message, format!("/properties/{name}"), observed.clone())
}
