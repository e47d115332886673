//! `flow test`: runs a directory of cases.

use std::process::ExitCode;

use super::arguments::FlowTest;
use super::output::{refuse, say};
use crate::testing::{Report, find};

pub(super) fn test(test: &FlowTest) -> ExitCode {
    match find(&test.directory) {
        Ok(cases) => {
            let report = Report::of(&cases);
            say(&report.to_string());
            if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(malformed) => refuse(&malformed.to_string()),
    }
}
