//! Failure matchers (MWL, "Failure matching"): `catch` clauses and `Retry` policies select failures with
//! them.

use std::fmt;

use super::code::CodePattern;
use super::outcome::{Failure, FailureType};
use super::value::{Array, Value};

/// A failure matcher. It matches a failure if every member that is present matches. A definition must write
/// at least one; that is checked when it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// Matches when the failure's code matches any of these.
    pub codes: Option<Vec<CodePattern>>,
    /// Matches when the failure's type is any of these.
    pub types: Option<Vec<FailureType>>,
    /// Matches only a failure that says the same about itself.
    pub retryable: Option<bool>,
}

impl Matcher {
    /// Reads a matcher from a value, which an expression or a literal made.
    pub fn read(written: &Value) -> Result<Self, Failure> {
        let list = |name| match written.get(name) {
            None => Ok(None),
            Some(value) => {
                let texts = value.as_array().into_iter().flat_map(Array::iter);
                let texts: Option<Vec<_>> =
                    texts.map(|text| text.as_str().map(str::to_owned)).collect();
                match texts.filter(|texts| !texts.is_empty()) {
                    Some(texts) => Ok(Some(texts)),
                    None => Err(wrong(name, "a list of at least one string", value)),
                }
            }
        };
        let code = |code: String| {
            CodePattern::parse(&code).map_err(|error| {
                Failure::validation(error.to_string(), "/match/codes", Value::string(code))
            })
        };
        let ty = |ty: String| {
            FailureType::parse(&ty)
                .ok_or_else(|| wrong("types", "a list of non-success types", Value::string(ty)))
        };
        let codes =
            list("codes")?.map(|codes| codes.into_iter().map(code).collect()).transpose()?;
        let types = list("types")?.map(|types| types.into_iter().map(ty).collect()).transpose()?;
        let retryable = written.get("retryable").as_ref().and_then(Value::as_bool);
        Ok(Self { codes, types, retryable })
    }

    /// Whether this would select `failure` if that said something else about `retryable`.
    pub fn misses_retryable(&self, failure: &Failure) -> bool {
        let any = Self { retryable: None, ..self.clone() };
        !self.matches(failure) && any.matches(failure)
    }

    /// Whether this selects `failure`. A failure that says nothing about `retryable` matches neither value.
    pub fn matches(&self, failure: &Failure) -> bool {
        let Self { codes, types, retryable } = self;
        let code = failure.code.as_str();
        codes.as_ref().is_none_or(|codes| codes.iter().any(|pattern| pattern.matches(code)))
            && types.as_ref().is_none_or(|types| types.contains(&failure.ty))
            && retryable.is_none_or(|wanted| failure.retryable == Some(wanted))
    }

    /// Whether this selects every failure with `code`, whatever else it says.
    pub fn takes_code(&self, code: &str) -> bool {
        let Self { codes, types, retryable } = self;
        let named =
            codes.as_ref().is_some_and(|codes| codes.iter().any(|pattern| pattern.matches(code)));
        named && types.is_none() && retryable.is_none()
    }

    /// Whether this selects everything that `later` selects.
    pub fn covers(&self, later: &Self) -> bool {
        let Self { codes, types, retryable } = self;
        let codes = codes.as_ref().is_none_or(|wide| {
            let narrow = later.codes.as_deref().unwrap_or(&[CodePattern::Any]);
            narrow.iter().all(|narrow| wide.iter().any(|wide| wide.covers(narrow)))
        });
        let types = types.as_ref().is_none_or(|wide| {
            let narrow = later.types.as_ref();
            narrow.is_some_and(|narrow| narrow.iter().all(|ty| wide.contains(ty)))
        });
        codes && types && retryable.is_none_or(|wanted| later.retryable == Some(wanted))
    }
}

fn wrong(name: &str, wanted: &str, observed: Value) -> Failure {
    let message = format!("`{name}` must be {wanted}; it is {} {observed}", observed.type_name());
    Failure::validation(message, format!("/{name}"), observed)
}

/// One line for people: `A.B or A.C.*, type timeout, retryable`.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { codes, types, retryable } = self;
        let codes = codes.as_ref().map(|codes| {
            let codes: Vec<String> = codes.iter().map(ToString::to_string).collect();
            codes.join(" or ")
        });
        let types = types.as_ref().map(|types| {
            let types: Vec<&str> = types.iter().map(FailureType::as_str).collect();
            format!("type {}", types.join(" or "))
        });
        let retryable = retryable.map(|yes| if yes { "retryable" } else { "not retryable" });
        let parts: Vec<String> =
            codes.into_iter().chain(types).chain(retryable.map(str::to_owned)).collect();
        f.write_str(&parts.join(", "))
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
    fn it_reads_as_a_line() {
        let codes = ["A.B", "A.C.*"].map(|code| CodePattern::parse(code).unwrap()).to_vec();
        let types = Some(vec![FailureType::Timeout, FailureType::Error]);
        let all = Matcher { codes: Some(codes), types, retryable: Some(false) };
        assert_eq!(all.to_string(), "A.B or A.C.*, type timeout or error, not retryable");
        let retryable = Matcher { retryable: Some(true), ..Matcher::default() };
        assert_eq!(retryable.to_string(), "retryable");
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
