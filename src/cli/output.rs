//! Lines on standard output and standard error.

use std::io::{self, Write};

/// Writes a line to standard output. A reader that has left is not our error.
pub(super) fn say(text: &str) {
    writeln!(io::stdout(), "{text}").ok();
}

/// Writes a line to standard error.
pub(super) fn complain(text: &str) {
    writeln!(io::stderr(), "{text}").ok();
}
