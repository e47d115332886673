//! Failure codes, and the patterns that select them (MWL, "Code namespaces" and "Failure matching"). A code
//! is opaque dotted text; only patterns look at its segments.

use std::fmt;
use std::sync::Arc;

/// A failure's `code`: dotted text, compared exactly.
#[derive(Clone, Debug)]
pub enum Code {
    /// A code that is built in. Costs nothing to carry.
    Static(&'static str),
    /// A code that an author wrote or an expression made.
    Shared(Arc<str>),
}

impl Code {
    /// The text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Static(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Code {}

impl PartialEq<str> for Code {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Code {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl From<&'static str> for Code {
    fn from(text: &'static str) -> Self {
        Self::Static(text)
    }
}

impl From<Arc<str>> for Code {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl From<String> for Code {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The engine's own codes. There are no others under `System.` ("Failure code reference").
pub mod system {
    /// A directive from outside stopped the work.
    pub const CANCELLED: &str = "System.Cancelled";
    /// A `Gather` stopped a dispatch that it no longer needed.
    pub const GATHER_DISPATCH_CANCELLED: &str = "System.GatherDispatchCancelled";
    /// A `Gather` completed before it started this dispatch.
    pub const GATHER_DISPATCH_SKIPPED: &str = "System.GatherDispatchSkipped";
    /// A `Gather`'s completion policy can no longer be met.
    pub const GATHER_COMPLETION_UNMET: &str = "System.GatherCompletionUnmet";
    /// An expression could not be evaluated.
    pub const EXPRESSION_EVALUATION_ERROR: &str = "System.ExpressionEvaluationError";
    /// A value does not fit its schema or its type.
    pub const PARAMETER_VALIDATION_FAILED: &str = "System.ParameterValidationFailed";
    /// An expression's result has no form in the data model.
    pub const UNREPRESENTABLE_VALUE: &str = "System.UnrepresentableValue";
    /// A bare `Raise` found no active failure.
    pub const EMPTY_RAISE: &str = "System.EmptyRaise";
    /// A chain of `previous` was cut at the platform's depth.
    pub const FAILURE_CHAIN_TRUNCATED: &str = "System.FailureChainTruncated";
    /// Those that say that a definition is at fault, and not what it calls.
    pub const FAULTS: [&str; 4] = [
        EXPRESSION_EVALUATION_ERROR,
        UNREPRESENTABLE_VALUE,
        PARAMETER_VALIDATION_FAILED,
        EMPTY_RAISE,
    ];
    /// All of them.
    pub const ALL: [&str; 9] = [
        CANCELLED,
        GATHER_DISPATCH_CANCELLED,
        GATHER_DISPATCH_SKIPPED,
        GATHER_COMPLETION_UNMET,
        EXPRESSION_EVALUATION_ERROR,
        PARAMETER_VALIDATION_FAILED,
        UNREPRESENTABLE_VALUE,
        EMPTY_RAISE,
        FAILURE_CHAIN_TRUNCATED,
    ];
}

/// One entry of a matcher's `codes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodePattern {
    /// `*`: any code.
    Any,
    /// `Prefix.*`: any code that begins with these segments. Kept with its final dot.
    Prefix(Arc<str>),
    /// A fully qualified code.
    Exact(Arc<str>),
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is not a code pattern: {problem}; write `Prefix.Code`, `Prefix.*` or `*`")]
pub struct PatternError {
    /// What was written.
    pub pattern: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl CodePattern {
    /// Reads a pattern of the closed grammar in "Failure matching".
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let refuse = |problem| Err(PatternError { pattern: text.to_owned(), problem });
        if text == "*" {
            return Ok(Self::Any);
        }
        if text.trim() != text {
            return refuse("it begins or ends with white space");
        }
        let prefix = text.strip_suffix(".*");
        let segments = prefix.unwrap_or(text);
        if segments.split('.').any(str::is_empty) {
            return refuse("it has an empty segment");
        }
        if segments.contains('*') {
            return refuse("`*` may stand only alone or as the last segment");
        }
        Ok(match prefix {
            Some(prefix) => Self::Prefix(format!("{prefix}.").into()),
            None => Self::Exact(text.into()),
        })
    }

    /// Whether this pattern selects `code`.
    pub fn matches(&self, code: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(prefix) => code.len() > prefix.len() && code.starts_with(prefix.as_ref()),
            Self::Exact(exact) => code == exact.as_ref(),
        }
    }

    /// Whether this pattern selects every code that `narrow` selects.
    pub fn covers(&self, narrow: &Self) -> bool {
        match (self, narrow) {
            (Self::Any, _) => true,
            (_, Self::Exact(code)) => self.matches(code),
            (Self::Prefix(wide), Self::Prefix(narrow)) => narrow.starts_with(wide.as_ref()),
            _ => false,
        }
    }
}

impl fmt::Display for CodePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Exact(exact) => f.write_str(exact),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_s_codes_are_those_of_the_reference() {
        assert_eq!(
            system::ALL,
            [
                "System.Cancelled",
                "System.GatherDispatchCancelled",
                "System.GatherDispatchSkipped",
                "System.GatherCompletionUnmet",
                "System.ExpressionEvaluationError",
                "System.ParameterValidationFailed",
                "System.UnrepresentableValue",
                "System.EmptyRaise",
                "System.FailureChainTruncated",
            ]
        );
    }

    #[test]
    fn patterns_match_whole_segments() {
        let prefix = CodePattern::parse("Provider.Call.*").unwrap();
        assert!(prefix.matches("Provider.Call.Http.Throttled"));
        assert!(!prefix.matches("Provider.CallX.Http"));
        assert!(!prefix.matches("Provider.Call"));
        assert!(!prefix.matches("Provider.Call."));
        assert!(CodePattern::parse("*").unwrap().matches("anything"));
        assert!(CodePattern::parse("A.B").unwrap().matches("A.B"));
        assert!(CodePattern::parse("Not found.at all").unwrap().matches("Not found.at all"));
        assert!(!CodePattern::parse("A.B").unwrap().matches("A.B.C"));
    }

    #[test]
    fn what_is_not_a_pattern_is_refused() {
        for bad in ["", ".", "A.", ".A", "A..B", "A.*.B", "A*", "*.A", "A.B ", "**"] {
            assert!(CodePattern::parse(bad).is_err(), "{bad:?}");
        }
    }
}
