//! Integration tests: one binary, a line per module.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests: helper functions fail loudly"
)]

mod cel;
