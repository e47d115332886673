//! Keeps the values of variables out of what is told about a file: a value may be a secret, and diagnostics go to logs and
//! to whoever asks for a reload.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use super::Span;

/// A part of a value as long as this gives the value away.
const TELLING: usize = 5;

/// A shorter value is concealed only in what is told of its own place: elsewhere it would be found in other words.
const RARE: usize = 6;

/// A string of a file in which variables were replaced.
pub struct ReplacedString {
    /// Its place.
    pub span: Span,
    /// As it is written in the file.
    pub written: Arc<str>,
    /// The variables in it, and their values.
    pub values: Vec<(String, String)>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Replaced {
    strings: HashMap<Span, ReplacedString>,
    /// The variables and their values.
    values: BTreeMap<String, String>,
}

/// Omits the values.
impl fmt::Debug for ReplacedString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplacedString").field("written", &self.written).finish_non_exhaustive()
    }
}

/// Omits the values.
impl fmt::Debug for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replaced").field("variables", &self.values.keys()).finish_non_exhaustive()
    }
}

impl Replaced {
    pub(super) fn add(&mut self, strings: Vec<ReplacedString>) {
        for string in strings {
            self.values.extend(string.values.iter().cloned());
            self.strings.insert(string.span, string);
        }
    }

    /// `text`, which is told of `span`, with the variables in place of their values. If a part of a value would still be
    /// seen, nothing is told but that the string is not right.
    pub(super) fn told<'t>(&self, span: Span, text: &'t str) -> Cow<'t, str> {
        let mut told = Cow::Borrowed(text);
        if self.values.is_empty() {
            return told;
        }
        let own = self.strings.get(&span);
        let of_own = own.iter().flat_map(|own| &own.values).map(|(name, value)| (name, value));
        let rare = self.values.iter().filter(|(_, value)| value.len() >= RARE);
        let mut values: Vec<_> =
            of_own.chain(rare).filter(|(_, value)| !value.is_empty()).collect();
        // A value may contain another one.
        values.sort_by_key(|(name, value)| (std::cmp::Reverse(value.len()), *name));
        for (name, value) in values {
            if told.contains(value.as_str()) {
                told = told.replace(value.as_str(), &format!("${{{name}}}")).into();
            }
        }
        match own {
            Some(own) if own.values.iter().any(|(name, value)| shows(&told, name, value)) => {
                format!("what the variables make of `{}` is not right here", own.written).into()
            }
            _ => told,
        }
    }
}

/// Whether a part of `value` can be seen in `text`, beside the name of its variable.
fn shows(text: &str, name: &str, value: &str) -> bool {
    let text = text.replace(&format!("${{{name}}}"), "").to_lowercase();
    let value: Vec<char> = value.to_lowercase().chars().collect();
    value.windows(TELLING).any(|part| text.contains(&part.iter().collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Diagnostic, Diagnostics, Format, Sources};

    const OWN: Span = Span { source: crate::source::SourceId(0), start: 4, end: 12 };

    fn told(value: &str, span: Span, text: &str) -> String {
        let mut replaced = Replaced::default();
        let values = vec![("NAME".to_owned(), value.to_owned())];
        replaced.add(vec![ReplacedString { span: OWN, written: "a ${NAME}".into(), values }]);
        replaced.told(span, text).into_owned()
    }

    #[test]
    fn a_value_is_told_by_its_name() {
        let elsewhere = Span::default();
        for (value, span, text, wanted) in [
            ("s3cret", OWN, "`a s3cret` is no address", "`a ${NAME}` is no address"),
            ("s3cret", elsewhere, "{a: s3cret} is no list", "{a: ${NAME}} is no list"),
            ("8", OWN, "`8` is no word", "`${NAME}` is no word"),
            ("dev", elsewhere, "a developer", "a developer"),
            ("", OWN, "`a ` is no address", "`a ` is no address"),
            ("name", OWN, "`name` is no NAME", "`${NAME}` is no NAME"),
        ] {
            assert_eq!(told(value, span, text), wanted, "{value}");
        }
    }

    #[test]
    fn nothing_is_told_of_a_part() {
        for text in ["the unit `3cret`", "`S3CRE` is unknown", "x3cret\\u{65}t"] {
            let told = told("s3cret", OWN, text);
            assert_eq!(told, "what the variables make of `a ${NAME}` is not right here");
        }
    }

    /// In whatever form, and in every part of a diagnostic.
    #[test]
    fn no_rendering_shows_a_value() {
        let mut sources = Sources::default();
        sources.parse("c.yaml", "a: \"${NAME} b\"", Format::Yaml).unwrap();
        let span = Span { start: 3, end: 14, ..Span::default() };
        let values = vec![("NAME".to_owned(), "s3cret".to_owned())];
        sources.conceal(vec![ReplacedString { span, written: "${NAME} b".into(), values }]);
        let found = Diagnostic::error("x", span, "`s3cret b` is wrong")
            .with_help("not s3cret")
            .with_related(span, "s3cret, too");
        let found: Diagnostics = found.into();
        for shown in [sources.render(&found), sources.to_json(&found).to_string()] {
            assert!(!shown.contains("s3cret") && shown.contains("`${NAME} b` is wrong"), "{shown}");
        }
        assert!(!format!("{sources:?}").contains("s3cret"));
    }
}
