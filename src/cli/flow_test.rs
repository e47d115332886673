//! `flow test`: a directory of cases, judged.

use std::process::ExitCode;

use super::{FlowTest, complain, say};
use crate::testing::{Report, find};

/// The exit code of a directory that holds no cases, or files that are none.
const MALFORMED: u8 = 2;

pub(super) fn test(test: &FlowTest) -> ExitCode {
    match find(&test.directory) {
        Ok(cases) => {
            let report = Report::of(&cases);
            say(&report.to_string());
            if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(malformed) => {
            complain(malformed.to_string().trim_end());
            ExitCode::from(MALFORMED)
        }
    }
}
