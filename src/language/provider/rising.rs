//! The failures that may rise at a place, as far as a definition says before anything runs.
//!
//! The set may contain failures that never come, but it contains each that can: what is *not* in it is certain, and only
//! that is reported. The engine's own codes (`System.*`) may come from anywhere, so they are not in it.

use std::sync::Arc;

use super::contract::{Contract, Prepared};
use crate::language::code::CodePattern;
use crate::language::value::Value;

/// A kind of failure: those with one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind<'k> {
    /// Its code.
    pub code: &'k str,
    /// Whether such a failure may say if a retry helps. One that says nothing matches neither value of `retryable`.
    pub says_retryable: bool,
    /// What another run may do twice, although it failed: `a POST without a key`.
    pub repeats: Option<&'static str>,
}

/// A code that could be expected, but cannot come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone<'k> {
    /// The code.
    pub code: &'k str,
    /// Why it cannot come.
    pub why: &'static str,
    /// What to write instead.
    pub help: &'static str,
}

/// The failures that may rise at a place.
#[derive(Clone, Debug, Default)]
pub struct Rising<'k> {
    /// By code, each once.
    pub kinds: Vec<Kind<'k>>,
    /// Whether a failure with any other code may come, too.
    pub any: bool,
    /// What was taken away on the way here.
    pub gone: Vec<Gone<'k>>,
    /// Of a call alone: whether it may wait for ever, unless something around it bounds that.
    pub endless: bool,
}

/// A call, as its provider sees it before anything runs.
#[derive(Clone, Copy, Debug)]
pub struct Foreseen<'c> {
    /// The prepared `with`; `None` if it holds an expression.
    pub with: Option<&'c Prepared>,
    /// The arguments of a `with` that holds an expression, unless that is the whole of it.
    pub arguments: Option<&'c [(Arc<str>, Argument)]>,
    /// Whether the call's input is the execution's own.
    pub own_input: bool,
}

/// An argument, as far as it is known before anything runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// It holds no expression.
    Known(Value),
    /// It holds one. Of an object, the names of its members are known.
    Computed(Option<Vec<Arc<str>>>),
}

impl<'k> Kind<'k> {
    /// Failures with this code, of which nothing else is known.
    pub const fn of(code: &'k str) -> Self {
        Self { code, says_retryable: true, repeats: None }
    }
}

impl<'k> Rising<'k> {
    /// What a provider with this contract may emit.
    pub fn of(contract: &'k Contract) -> Self {
        let mut rising = Self { any: !contract.open.is_empty(), ..Self::default() };
        rising.emit(contract);
        rising
    }

    /// Adds what `contract` declares.
    pub fn emit(&mut self, contract: &'k Contract) {
        contract.closed.iter().for_each(|code| self.add(Kind::of(code)));
    }

    /// Adds a kind.
    pub fn add(&mut self, kind: Kind<'k>) {
        match self.kinds.iter_mut().find(|known| known.code == kind.code) {
            Some(known) => {
                known.says_retryable |= kind.says_retryable;
                known.repeats = known.repeats.or(kind.repeats);
            }
            None => self.kinds.push(kind),
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        other.kinds.iter().for_each(|kind| self.add(*kind));
        self.any |= other.any;
        let new = |gone: &&Gone<'k>| !self.gone.contains(gone);
        let new: Vec<_> = other.gone.iter().filter(new).copied().collect();
        self.gone.extend(new);
    }

    /// Takes away every kind that `is_taken` names, for this reason.
    pub fn take(&mut self, is_taken: impl Fn(&str) -> bool, why: &'static str, help: &'static str) {
        let Self { kinds, gone, .. } = self;
        kinds.retain(|kind| {
            let taken = is_taken(kind.code);
            if taken {
                gone.push(Gone { code: kind.code, why, help });
            }
            !taken
        });
    }

    /// What another run may do twice after one of these failures.
    pub fn repeats(&self) -> Option<&'static str> {
        self.kinds.iter().find_map(|kind| kind.repeats)
    }

    /// Whether nothing can come.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty() && !self.any
    }

    /// Whether a failure that `pattern` selects may come.
    pub fn may_match(&self, pattern: &CodePattern) -> bool {
        let engine_s = match pattern {
            CodePattern::Any => true,
            CodePattern::Exact(code) => {
                code.starts_with("System.") || code.starts_with("Platform.")
            }
            CodePattern::Prefix(prefix) => {
                ["System.", "Platform."].iter().any(|own| prefix.starts_with(own))
            }
        };
        self.any || engine_s || self.kinds.iter().any(|kind| pattern.matches(kind.code))
    }

    /// Why a code that `pattern` selects cannot come, if something took it away.
    pub fn gone(&self, pattern: &CodePattern) -> Option<&Gone<'k>> {
        self.gone.iter().find(|gone| pattern.matches(gone.code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> CodePattern {
        CodePattern::parse(text).unwrap()
    }

    #[test]
    fn what_was_taken_away_is_known_with_its_reason() {
        let mut rising =
            Rising { kinds: vec![Kind::of("A.B"), Kind::of("A.C")], ..Rising::default() };
        rising.take(|code| code == "A.B", "why", "help");
        assert!(!rising.may_match(&pattern("A.B")));
        assert!(rising.may_match(&pattern("A.*")));
        assert_eq!(rising.gone(&pattern("A.B")).unwrap().why, "why");
        assert_eq!(rising.gone(&pattern("A.C")), None);
    }

    #[test]
    fn the_engine_s_codes_may_always_come() {
        let nothing = Rising::default();
        for always in ["*", "System.*", "System.Cancelled", "Platform.GatherFanOutLimitExceeded"] {
            assert!(nothing.may_match(&pattern(always)), "{always}");
        }
        assert!(!nothing.may_match(&pattern("Provider.*")));
        assert!(nothing.is_empty());
    }

    #[test]
    fn merged_kinds_may_do_what_either_may() {
        let silent = Kind { says_retryable: false, ..Kind::of("A") };
        let mut rising = Rising { kinds: vec![silent], ..Rising::default() };
        let other = Kind { repeats: Some("a POST"), ..Kind::of("A") };
        rising.merge(&Rising { kinds: vec![other, Kind::of("B")], ..Rising::default() });
        assert_eq!(rising.kinds, [other, Kind::of("B")]);
    }
}
