//! What is remembered of a configuration that was refused.

use crate::config::ConfigError;
use crate::source::Severity;

/// The codes of refusals that the system causes: it may accept the same configuration a moment later.
const MAY_PASS: [&str; 3] = ["address", "no-roots", "unreadable"];

/// Why a configuration was refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The rendered diagnostics.
    text: String,
    /// Whether the reason may pass although nothing changes.
    pub(super) may_pass: bool,
}

impl Refusal {
    pub(super) fn of(refused: &ConfigError) -> Self {
        let mut errors = refused.diagnostics.0.iter().filter(|d| d.severity == Severity::Error);
        let may_pass = errors.any(|error| MAY_PASS.contains(&error.code));
        Self { text: refused.to_string(), may_pass }
    }
}
