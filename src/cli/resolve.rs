//! `config`: prints a configuration with everything in place.

use std::process::ExitCode;

use super::arguments::Resolve;
use super::output::{fail, refuse, say};
use super::variables::Variables;
use crate::app::{self, given_text};
use crate::config::{self, Origin};

pub(super) fn resolve(resolve: &Resolve) -> ExitCode {
    let variables = match resolve.env_file.as_deref().map(Variables::read).transpose() {
        Ok(variables) => variables.unwrap_or_default(),
        Err(problem) => return refuse(&problem),
    };
    let variable = |name: &str| variables.value(name);
    let origin = Origin { variable: &variable, ..Origin::system() };
    let path = &resolve.config;
    let text = match given_text(path) {
        Ok(text) => text,
        Err(error) => return fail(&config::unreadable(path, &error).to_string()),
    };
    let loaded = config::parse(path, text.as_str(), origin).map_err(app::complete);
    if let Err(refused) = loaded.and_then(app::check) {
        return fail(&refused.to_string());
    }
    match config::resolved(path, &text, origin) {
        Some(resolved) => {
            say(&format!("{resolved:#}"));
            ExitCode::SUCCESS
        }
        None => fail("the configuration changed while it was read; try again"),
    }
}
