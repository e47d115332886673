//! Collects the mistakes of a load, and reads single values: one that is wrong is reported, and left out.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::language::schema::Room;
use crate::source::{
    Diagnostic, Diagnostics, Kind, Member, Node, ReplacedString, Span, did_you_mean,
};

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    found: RefCell<Diagnostics>,
    /// Strings whose variables could not be replaced: further mistakes in them are not reported.
    unresolved: RefCell<HashSet<Span>>,
    /// Strings in which variables were replaced.
    replaced: RefCell<Vec<ReplacedString>>,
    /// What the schemas in it may cost.
    pub(super) room: Room,
    /// Which keys of which sections were read. A test checks that every known key is.
    #[cfg(test)]
    pub(super) asked: RefCell<std::collections::BTreeSet<(&'static str, &'static str)>>,
}

impl Report {
    /// Adds a diagnostic.
    pub(super) fn add(&self, diagnostic: Diagnostic) {
        if !self.unresolved.borrow().contains(&diagnostic.span) {
            self.found.borrow_mut().push(diagnostic);
        }
    }

    /// Adds an error without a help line.
    pub(super) fn error(&self, code: &'static str, span: Span, message: impl Into<String>) {
        self.add(Diagnostic::error(code, span, message));
    }

    /// Adds all of `diagnostics`.
    pub(super) fn append(&self, diagnostics: Diagnostics) {
        self.found.borrow_mut().append(diagnostics);
    }

    /// Adds a mistake with a variable. No other mistake is reported for the string at its span.
    pub(super) fn unresolved(&self, diagnostic: Diagnostic) {
        self.unresolved.borrow_mut().insert(diagnostic.span);
        self.found.borrow_mut().push(diagnostic);
    }

    /// Notes that variables were replaced in a string.
    pub(super) fn replaced(&self, string: ReplacedString) {
        self.replaced.borrow_mut().push(string);
    }

    /// The strings in which variables were replaced.
    pub(super) fn take_replaced(&self) -> Vec<ReplacedString> {
        self.replaced.take()
    }

    /// All diagnostics, in order of place.
    pub(super) fn finish(self) -> Diagnostics {
        self.found.into_inner().sorted()
    }

    /// Reports that `key` has the wrong type.
    pub(super) fn wrong_type(&self, key: &str, node: &Node, wanted: &str) {
        let message = format!("`{key}` is {}; wanted: {wanted}", seen(node));
        self.error("wrong-type", node.span, message);
    }

    /// The string, or a diagnostic.
    pub(super) fn text<'a>(&self, key: &str, node: &'a Node) -> Option<&'a Arc<str>> {
        let text = node.as_str();
        if text.is_none() {
            self.wrong_type(key, node, "a string");
        }
        text
    }

    /// The array, or a diagnostic.
    pub(super) fn list<'a>(&self, key: &str, node: &'a Node) -> &'a [Node] {
        node.as_array().unwrap_or_else(|| {
            self.wrong_type(key, node, "a list");
            &[]
        })
    }

    /// The object, or a diagnostic.
    pub(super) fn map<'a>(&self, key: &str, node: &'a Node) -> &'a [Member] {
        node.as_object().unwrap_or_else(|| {
            self.wrong_type(key, node, "an object");
            &[]
        })
    }

    /// The string as `parse` converts it. Its error is reported with `code`.
    pub(super) fn parsed<T>(
        &self,
        code: &'static str,
        key: &str,
        node: &Node,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(key, node)?;
        let parsed = parse(text);
        parsed.map_err(|problem| self.error(code, node.span, format!("`{key}`: {problem}"))).ok()
    }

    /// Reports that nothing of this kind has this name.
    pub(super) fn unknown_name<'k>(
        &self,
        code: &'static str,
        kind: &str,
        (name, span): (&str, Span),
        known: impl Iterator<Item = &'k str>,
    ) {
        let help = did_you_mean(name, known)
            .unwrap_or_else(|| format!("name it under `{kind}s:` at the top of the file"));
        let message = format!("no {kind} is called `{name}`");
        self.add(Diagnostic::error(code, span, message).with_help(help));
    }

    /// Reports each of `names` that occurred before.
    pub(super) fn unique<'a>(&self, what: &str, names: impl IntoIterator<Item = (&'a str, Span)>) {
        let mut first = HashMap::new();
        for (name, span) in names {
            if let Some(earlier) = first.insert(name, span) {
                let message =
                    format!("two {what} are called `{name}`: give one of them another name");
                let diagnostic = Diagnostic::error("duplicate-name", span, message);
                self.add(diagnostic.with_related(earlier, "the first"));
            }
        }
    }
}

/// What was found, for "x is …".
pub(super) fn seen(node: &Node) -> String {
    match &node.kind {
        Kind::Null => "null".into(),
        Kind::Bool(value) => format!("the boolean `{value}`"),
        Kind::Number(_) => format!("the number {node}"),
        Kind::String(text) => format!("the string `{text}`"),
        Kind::Array(_) => "a list".into(),
        Kind::Object(_) => "an object".into(),
    }
}
