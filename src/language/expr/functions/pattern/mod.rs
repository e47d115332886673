//! Patterns of `matches`: RE2's syntax, as CEL wants it, checked here and translated into the `regex` crate's.
//!
//! The two differ: in RE2 `\d`, `\s`, `\w` and `\b` are about ASCII, `&&` in a class is two characters, a brace that
//! repeats nothing stands for itself, and there are octal escapes and quotes (`\Q…\E`); it refuses `a**`, `a{1001}` and
//! `(?x)`. A pattern that passes here always compiles. It is compiled when it is first used, since that takes up to a
//! thousand times as long as the check.

use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

use self::reader::Reader;

mod members;
mod reader;
mod scripts;

/// The most that a compiled pattern may weigh, in bytes of memory. Compiling it then takes about 50 ms.
const MOST_WEIGHT: u64 = 1 << 20;

/// What one part weighs when it is compiled, measured: a byte, a class of ASCII, one of any code points.
const BYTE: u64 = 40;
const ASCII_CLASS: u64 = 100;
const CLASS: u64 = 1_200;

/// A pattern that is known to be one.
#[derive(Clone, Debug)]
pub(in super::super) struct Pattern {
    /// In the `regex` crate's syntax.
    translated: String,
    weight: u64,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Reads `pattern`, or says why it is none.
    pub(in super::super) fn new(pattern: &str) -> Result<Self, String> {
        let (translated, weight) = Reader::new(pattern).read()?;
        if weight > MOST_WEIGHT {
            return Err("the pattern is too large".to_owned());
        }
        Ok(Self { translated, weight, compiled: OnceLock::new() })
    }

    /// What it takes to compile it, in bytes of memory.
    pub(super) const fn weight(&self) -> u64 {
        self.weight
    }

    /// Whether `subject` has a match. `None` if the `regex` crate refuses the translation. The tests show that it never does.
    pub(super) fn is_match(&self, subject: &str) -> Option<bool> {
        let compile = || {
            let size = usize::try_from(4 * MOST_WEIGHT).unwrap_or(usize::MAX);
            RegexBuilder::new(&self.translated).size_limit(size).build().ok()
        };
        let regex = self.compiled.get_or_init(compile).as_ref()?;
        Some(regex.is_match(subject.as_bytes()))
    }
}

fn wrong(problem: &str) -> String {
    format!("the pattern is no regular expression: {problem}")
}

#[cfg(test)]
mod tests;
