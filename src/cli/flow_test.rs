//! `flow test`: runs a directory of cases.

use std::process::ExitCode;

use super::arguments::FlowTest;
use super::output::{complain, say};
use crate::testing::{Report, find};

/// The exit code when the directory holds no cases or a case is malformed.
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
