//! Reads objects with known keys. A mistake is added to a [`Report`] and its value is left out, then
//! reading goes on, so that one run reports every mistake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::report::{Report, seen};
use super::scalar;
use super::shape::{Absent, Section, Shape};
use crate::language::temporal::months;
use crate::source::{Diagnostic, Kind, Member, Node, did_you_mean, nearest};

/// The longest duration that a configuration may contain.
pub(super) const LONGEST: &str = "P365D";

/// An object whose keys were checked against its section.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object<'a> {
    /// As written.
    pub(super) node: &'a Node,
    members: &'a [Member],
    section: &'static Section,
    report: &'a Report,
}

impl<'a> Object<'a> {
    /// The object of `key`, after a check of its keys: unknown and missing ones are reported.
    pub(super) fn open(
        report: &'a Report,
        key: &str,
        node: &'a Node,
        section: &'static Section,
    ) -> Option<Self> {
        let Some(members) = node.as_object() else {
            report.wrong_type(key, node, &format!("{}, an object", section.name));
            return None;
        };
        let object = Self { node, members, section, report };
        object.check_keys();
        Some(object)
    }

    fn check_keys(&self) {
        let known = || self.section.fields.iter().map(|field| field.key);
        let mut meant = Vec::new();
        for member in self.members {
            if self.section.field(&member.key).is_none() {
                let name = self.section.name;
                let message = format!("`{}` is not a key of {name}", member.key);
                meant.extend(nearest(&member.key, known()));
                let help = self.section.elsewhere(&member.key);
                let help =
                    help.or_else(|| did_you_mean(&member.key, known())).unwrap_or_else(|| {
                        let keys: Vec<_> = known().map(|key| format!("`{key}`")).collect();
                        format!("{name} has the keys {}", keys.join(", "))
                    });
                let diagnostic = Diagnostic::error("unknown-key", member.key_span, message);
                self.report.add(diagnostic.with_help(help));
            }
        }
        for field in self.section.fields {
            let there = self.members.iter().any(|member| &*member.key == field.key);
            // One that is there in other letters was reported.
            let misspelt = meant.contains(&field.key);
            if field.absent == Absent::Required && !there && !misspelt {
                let message = format!("{} needs `{}`: {}", self.section.name, field.key, field.doc);
                self.report.error("missing-key", self.node.span, message);
            }
        }
    }

    /// The value of `key`, which must be in the section.
    pub(super) fn get(&self, key: &'static str) -> Option<&'a Node> {
        self.member(key).map(|member| &member.value)
    }

    /// The member `key`, which must be in the section.
    pub(super) fn member(&self, key: &'static str) -> Option<&'a Member> {
        debug_assert!(self.section.field(key).is_some(), "`{key}` has no row");
        #[cfg(test)]
        self.report.asked.borrow_mut().insert((self.section.name, key));
        self.members.iter().find(|member| &*member.key == key)
    }

    /// The default of `key` as text: a string as it is, anything else as JSON.
    fn default(&self, key: &str) -> &'static str {
        match self.section.field(key).map(|field| field.absent) {
            Some(Absent::Default(json)) => json.trim_matches('"'),
            _ => "",
        }
    }

    /// A string.
    pub(super) fn text(&self, key: &'static str) -> Option<&'a Arc<str>> {
        self.report.text(key, self.get(key)?)
    }

    /// A boolean, or its default.
    pub(super) fn boolean(&self, key: &'static str) -> bool {
        let default = self.default(key) == "true";
        self.get(key).map_or(default, |node| self.optional_boolean(key, node).unwrap_or(default))
    }

    /// `node` as a boolean. The diagnostic explains YAML 1.1's other words for one.
    pub(super) fn optional_boolean(&self, key: &str, node: &Node) -> Option<bool> {
        if let Some(found) = node.as_bool() {
            return Some(found);
        }
        let word = node.as_str().map(|text| text.to_ascii_lowercase());
        let meant = match word.as_deref() {
            Some("yes" | "on" | "y") => "true",
            Some("no" | "off" | "n") => "false",
            _ => {
                self.report.wrong_type(key, node, "`true` or `false`");
                return None;
            }
        };
        let message = format!("`{key}` is {}, not a boolean", seen(node));
        let diagnostic = Diagnostic::error("wrong-type", node.span, message);
        let help = format!("in YAML 1.2 only `true` and `false` are; write `{meant}`");
        self.report.add(diagnostic.with_help(help));
        None
    }

    /// A duration within `bounds` (inclusive), or the default.
    pub(super) fn duration(&self, key: &'static str, bounds: (&str, &str)) -> Duration {
        if let Some(node) = self.get(key)
            && let Some(number) = node.as_str().and_then(|text| months(text))
        {
            let message =
                format!("`P{number}M` means months of 30 days: minutes stand after a `T`");
            let help = format!("for minutes write `PT{number}M`");
            let diagnostic = Diagnostic::warning("month-duration", node.span, message);
            self.report.add(diagnostic.with_help(help));
        }
        let wanted = |_: &Node| "an ISO 8601 duration with its unit, such as `PT1.5S`".to_owned();
        self.with_unit("bad-duration", key, bounds, scalar::duration, wanted)
    }

    /// A number of bytes within `bounds` (inclusive), or the default.
    pub(super) fn size(&self, key: &'static str, bounds: (&str, &str)) -> usize {
        let wanted =
            |node: &Node| format!("a size with its unit, such as `{node}KiB` or `{node}B`");
        self.with_unit("bad-size", key, bounds, scalar::size, wanted)
    }

    /// A text that `parse` converts, or the default. `wanted` says what is wanted in place of a bare number.
    fn with_unit<T: PartialOrd + Default>(
        &self,
        code: &'static str,
        key: &'static str,
        bounds: (&str, &str),
        parse: fn(&str) -> Result<T, String>,
        wanted: impl Fn(&Node) -> String,
    ) -> T {
        let read = |node: &Node| {
            if node.as_number().is_some() {
                self.report.wrong_type(key, node, &wanted(node));
                return None;
            }
            self.report.parsed(code, key, node, |text| scalar::within(text, bounds, parse))
        };
        let default = || parse(self.default(key)).unwrap_or_default();
        self.get(key).and_then(read).unwrap_or_else(default)
    }

    /// A whole number within the bounds of its row; `None` if it is absent and has no default.
    pub(super) fn count(&self, key: &'static str) -> Option<usize> {
        let default = self.default(key).parse().ok();
        let Some(node) = self.get(key) else {
            return default;
        };
        let (least, most) = match self.section.field(key).map(|field| &field.shape) {
            Some(Shape::Count(least, most)) => (*least, *most),
            _ => (0, u64::MAX),
        };
        let Some(number) = node.as_number() else {
            self.report.wrong_type(key, node, "a whole number");
            return default;
        };
        let whole = number.to_string().parse::<u64>().ok();
        let Some(whole) = whole.filter(|n| (least..=most).contains(n)) else {
            let message =
                format!("`{key}` is {node}; wanted: a whole number from {least} to {most}");
            self.report.error("out-of-range", node.span, message);
            return default;
        };
        usize::try_from(whole).ok()
    }

    /// A number within the bounds of its row, or its default.
    pub(super) fn number(&self, key: &'static str) -> f64 {
        let default = || self.default(key).parse().unwrap_or_default();
        let number = self.get(key).map(|node| self.number_within(key, node));
        number.flatten().unwrap_or_else(default)
    }

    /// `node` as a number, within the bounds of the row of `key`, or of its elements.
    pub(super) fn number_within(&self, key: &'static str, node: &Node) -> Option<f64> {
        let (least, most) = match self.section.field(key).map(|field| &field.shape) {
            Some(Shape::Number(least, most) | Shape::List(Shape::Number(least, most))) => {
                (*least, *most)
            }
            _ => (f64::MIN, f64::MAX),
        };
        let Some(number) = node.as_number() else {
            self.report.wrong_type(key, node, "a number");
            return None;
        };
        let number = number.to_string().parse::<f64>().ok();
        let within = number.filter(|number| (least..=most).contains(number));
        if within.is_none() {
            let message = format!("`{key}` is {node}; wanted: a number from {least} to {most}");
            self.report.error("out-of-range", node.span, message);
        }
        within
    }

    /// One of the words of its row, or the default.
    pub(super) fn word(&self, key: &'static str) -> Option<&'a str> {
        let Some(node) = self.get(key) else {
            return Some(self.default(key));
        };
        let words = match self.section.field(key).map(|field| &field.shape) {
            Some(Shape::Word(words)) => *words,
            _ => &[],
        };
        let text = self.report.text(key, node)?;
        let known = words.iter().any(|word| *word == &**text);
        if !known {
            let message = format!("`{key}` is `{text}`; wanted: {}", words.join(", "));
            let diagnostic = Diagnostic::error("unknown-word", node.span, message);
            let help = did_you_mean(text, words.iter().copied());
            self.report.add(match help {
                Some(help) => diagnostic.with_help(help),
                None => diagnostic,
            });
        }
        known.then_some(text)
    }

    /// An address with its port.
    pub(super) fn address(&self, key: &'static str) -> Option<SocketAddr> {
        let node = self.get(key)?;
        if node.as_number().is_some() {
            let wanted = format!("an address and a port, such as `127.0.0.1:{node}`");
            self.report.wrong_type(key, node, &wanted);
            return None;
        }
        self.report.parsed("bad-address", key, node, scalar::address)
    }

    /// The elements of a list, empty if it is absent.
    pub(super) fn list(&self, key: &'static str) -> &'a [Node] {
        self.get(key).map_or(&[], |node| self.report.list(key, node))
    }

    /// The same for a list that must not be empty: `least` says what it has at least.
    pub(super) fn nonempty_list(&self, key: &'static str, least: &str) -> &'a [Node] {
        if let Some(node) = self.get(key)
            && node.as_array().is_some_and(<[_]>::is_empty)
        {
            let message = format!("`{key}` is empty; at least {least} is wanted");
            self.report.error("empty-list", node.span, message);
        }
        self.list(key)
    }

    /// The members of an object whose keys the author chooses, empty if it is absent.
    pub(super) fn map(&self, key: &'static str) -> &'a [Member] {
        self.get(key).map_or(&[], |node| self.report.map(key, node))
    }

    /// The section under `key` as `read` converts it; an empty one if it is absent or not an object.
    pub(super) fn section<T>(
        &self,
        key: &'static str,
        section: &'static Section,
        read: impl FnOnce(&Object<'_>) -> T,
    ) -> T {
        let node = self.get(key);
        if let Some(object) = node.and_then(|node| Object::open(self.report, key, node, section)) {
            return read(&object);
        }
        // The keys of an object that is absent are not checked.
        let node = Node { span: self.node.span, kind: Kind::Object(Arc::default()) };
        read(&Object { node: &node, members: &[], section, report: self.report })
    }
}
