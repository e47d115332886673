//! Lines on standard output and standard error.

use std::io::{self, Write};
use std::process::ExitCode;

/// The exit code of a command that could not run.
const UNABLE: u8 = 2;

/// Writes a line to standard output. A reader that has left is not our error.
pub(super) fn say(text: &str) {
    writeln!(io::stdout(), "{text}").ok();
}

/// Writes a line to standard error.
pub(super) fn complain(text: &str) {
    writeln!(io::stderr(), "{}", text.trim_end()).ok();
}

/// Says why the command's answer is no.
pub(super) fn fail(why: &str) -> ExitCode {
    complain(why);
    ExitCode::FAILURE
}

/// Says why the command could not run.
pub(super) fn refuse(why: &str) -> ExitCode {
    complain(why);
    ExitCode::from(UNABLE)
}
