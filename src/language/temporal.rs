//! ISO 8601 durations and RFC 3339 timestamps (MWL, "Temporal format profile").
//!
//! The data model has no temporal type: fields give strings a meaning, and only this module reads them. Both
//! types are a signed count of nanoseconds. That is what a timer and a record need, and it orders and hashes
//! by value (`PT60S` is `PT1M`). 128 bits cover every text that a person would write; beyond them a duration
//! saturates and never overflows. The months and years of a calendar have no fixed length, and an interval to
//! wait belongs to no calendar: so a year counts as 365 days, a month as 30.

mod guess;
mod span;
mod timestamp;

#[cfg(test)]
mod tests;

pub use self::guess::{meant_duration, months};
pub use self::span::Span;
pub use self::timestamp::Timestamp;

const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;
