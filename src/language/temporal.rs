//! ISO 8601 durations and RFC 3339 timestamps (MWL, "Temporal format profile").

/// A span of time as the temporal profile writes it: may be zero or negative. Nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i128);

impl Span {
    pub const ZERO: Self = Self(0);
    pub const fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }
    pub const fn as_nanos(self) -> i128 {
        self.0
    }
    /// ISO 8601, also weeks, fractions and the leading minus.
    pub fn parse(text: &str) -> Option<Self> {
        unimplemented!()
    }
    /// Zero for a negative span; saturates at `Duration::MAX`.
    pub fn to_duration(self) -> std::time::Duration {
        unimplemented!()
    }
    pub fn from_duration(d: std::time::Duration) -> Self {
        unimplemented!()
    }
}
/// The canonical form: `PT1H30M`, `PT0.5S`, `-PT30S`, `PT0S`.
impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        unimplemented!()
    }
}

/// An instant: nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i128);
impl Timestamp {
    pub const fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }
    pub const fn as_nanos(self) -> i128 {
        self.0
    }
    /// RFC 3339.
    pub fn parse(text: &str) -> Option<Self> {
        unimplemented!()
    }
}
/// RFC 3339 in UTC, `2024-01-15T09:30:00.123Z`; as many fraction digits as it needs.
impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        unimplemented!()
    }
}
