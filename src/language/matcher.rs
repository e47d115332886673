//! The language's one failure-selection grammar (MWL, "Failure matching"): what `catch` clauses and
//! `Retry` policies select failures with.

use super::code::CodePattern;
use super::outcome::{Failure, FailureType};

/// A failure matcher: matches a failure when every member present matches. A definition that writes
/// no member is refused where it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// Matches when the failure's code matches any of these.
    pub codes: Option<Vec<CodePattern>>,
    /// Matches when the failure's type is any of these.
    pub types: Option<Vec<FailureType>>,
    /// Matches only a failure that asserts the same value.
    pub retryable: Option<bool>,
}

impl Matcher {
    /// Whether this selects `failure`. A failure silent about `retryable` matches neither value.
    pub fn matches(&self, failure: &Failure) -> bool {
        let Self { codes, types, retryable } = self;
        let code = failure.code.as_str();
        codes.as_ref().is_none_or(|codes| codes.iter().any(|pattern| pattern.matches(code)))
            && types.as_ref().is_none_or(|types| types.contains(&failure.ty))
            && retryable.is_none_or(|wanted| failure.retryable == Some(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_present_must_match() {
        let failure = Failure::error("A.B", "x").with_retryable(true);
        let codes = Some(vec![CodePattern::parse("A.*").unwrap()]);
        let all = Matcher { codes, types: Some(vec![FailureType::Error]), retryable: Some(true) };
        assert!(all.matches(&failure));
        let timeout = Matcher { types: Some(vec![FailureType::Timeout]), ..all.clone() };
        assert!(!timeout.matches(&failure));
        assert!(!Matcher { retryable: Some(false), ..all }.matches(&failure));
    }

    #[test]
    fn silence_about_retryable_matches_neither_value() {
        let silent = Failure::error("A", "x");
        for wanted in [true, false] {
            let matcher = Matcher { retryable: Some(wanted), ..Matcher::default() };
            assert!(!matcher.matches(&silent));
        }
    }
}
