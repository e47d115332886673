//! Checks what a case's files hold. Each message says what is wanted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::language::conformance::CLAIM;
use crate::language::temporal::Span;
use crate::source::{Diagnostic, Diagnostics, Kind, Node};

/// The members of a failure's Result.
const FAILURE: &[&str] = &["type", "code", "message", "details", "retryable", "previous"];

/// The content of `case.json`.
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) description: String,
    pub(super) section: Option<String>,
    pub(super) profiles: BTreeSet<String>,
    pub(super) temporal: bool,
    pub(super) scenarios: BTreeSet<String>,
}

/// Checks one file, and collects what is wrong with it.
#[derive(Debug, Default)]
pub(super) struct Checker(Diagnostics);

impl Checker {
    /// Everything that is wrong.
    pub(super) fn found(self) -> Diagnostics {
        self.0
    }

    /// `case.json`.
    pub(super) fn meta(&mut self, node: &Node) -> Meta {
        let known = ["description", "section", "profiles", "marks", "scenarios"];
        self.members(node, &known);
        let description = self.required(node, "description");
        let profiles = self.required(node, "profiles");
        let marks = self.required(node, "marks");
        Meta {
            description: description.map_or_else(String::new, |node| self.text(node)),
            section: node.get("section").map(|node| self.text(node)),
            profiles: self.words(profiles, "a conformance profile that is claimed", &CLAIM),
            temporal: !self.words(marks, "a mark", &["temporal"]).is_empty(),
            scenarios: self.scenarios(node),
        }
    }

    fn scenarios(&mut self, node: &Node) -> BTreeSet<String> {
        let Some(node) = self.required(node, "scenarios") else {
            return BTreeSet::new();
        };
        let members = node.as_object().unwrap_or_default();
        if members.is_empty() {
            self.wanted(node, "an object with a member for each scenario");
        }
        for member in members {
            self.members(&member.value, &["description"]);
        }
        members.iter().map(|member| member.key.to_string()).collect()
    }

    /// `expected-error.json`.
    pub(super) fn refused(&mut self, node: &Node) -> BTreeSet<String> {
        self.members(node, &["codes"]);
        let Some(codes) = self.required(node, "codes") else {
            return BTreeSet::new();
        };
        let items = codes.as_array().unwrap_or_default();
        if items.is_empty() {
            self.wanted(codes, "an array of the diagnostics' codes, at least one");
        }
        items.iter().map(|item| self.text(item)).collect()
    }

    /// `expected.json`.
    pub(super) fn took(&mut self, node: &Node) -> Option<Duration> {
        self.members(node, &["took"]);
        let took = self.required(node, "took")?;
        let span = took.as_str().and_then(|text| Span::parse(text));
        if span.is_none() {
            self.wanted(took, "an ISO 8601 duration, such as `PT1.5S`");
        }
        span.map(Span::to_duration)
    }

    /// `arguments.json`.
    pub(super) fn arguments(&mut self, node: &Node) {
        if node.as_object().is_none() {
            self.wanted(node, "an object of the Flow's arguments");
        }
    }

    /// `expected-result.json`, or a `previous` in it.
    pub(super) fn result(&mut self, node: &Node) {
        let success = node.get("type").and_then(Node::as_str);
        if success.is_some_and(|ty| &**ty == "success") {
            self.members(node, &["type", "value"]);
            self.required(node, "value");
            return;
        }
        self.members(node, FAILURE);
        for name in ["type", "code"] {
            if let Some(node) = self.required(node, name) {
                self.text(node);
            }
        }
        if let Some(previous) = node.get("previous").filter(|node| !node.is_null()) {
            self.result(previous);
        }
    }

    /// Reports the members that an object may not have.
    fn members(&mut self, node: &Node, known: &[&str]) {
        let Some(members) = node.as_object() else {
            return self.wanted(node, &format!("an object with {}", list(known)));
        };
        let unknown = members.iter().filter(|member| !known.contains(&&*member.key));
        for member in unknown {
            let message = format!("`{}` is unknown; wanted: {}", member.key, list(known));
            self.0.push(Diagnostic::error("unknown-member", member.key_span, message));
        }
    }

    fn required<'n>(&mut self, node: &'n Node, name: &str) -> Option<&'n Node> {
        let found = node.get(name);
        if found.is_none() && node.as_object().is_some() {
            let message = format!("`{name}` is missing");
            self.0.push(Diagnostic::error("missing-member", node.span, message));
        }
        found
    }

    fn text(&mut self, node: &Node) -> String {
        let text = node.as_str().filter(|text| !text.is_empty());
        if text.is_none() {
            self.wanted(node, "a string that is not empty");
        }
        text.map(Arc::to_string).unwrap_or_default()
    }

    /// An array of words, each one of `known`.
    fn words(&mut self, node: Option<&Node>, what: &str, known: &[&str]) -> BTreeSet<String> {
        let Some(node) = node else {
            return BTreeSet::new();
        };
        let Some(items) = node.as_array() else {
            self.wanted(node, &format!("an array of {}", list(known)));
            return BTreeSet::new();
        };
        for item in items {
            if !item.as_str().is_some_and(|word| known.contains(&&**word)) {
                let message = format!("{item} is not {what}; wanted: {}", list(known));
                self.0.push(Diagnostic::error("unknown-value", item.span, message));
            }
        }
        let words = items.iter().filter_map(Node::as_str);
        words.map(Arc::to_string).collect()
    }

    fn wanted(&mut self, node: &Node, wanted: &str) {
        let seen = match node.kind {
            Kind::Array(_) => "an array".to_owned(),
            Kind::Object(_) => "an object".to_owned(),
            _ => node.to_string(),
        };
        let message = format!("this is {seen}; wanted: {wanted}");
        self.0.push(Diagnostic::error("wrong-type", node.span, message));
    }
}

fn list(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Format, Sources};

    /// What is wrong with `text`, one line each.
    fn wrong<T>(text: &str, read: impl FnOnce(&mut Checker, &Node) -> T) -> String {
        let node = Sources::default().parse("f", text, Format::Json).unwrap();
        let mut checker = Checker::default();
        read(&mut checker, &node);
        let found = checker.found().0.into_iter();
        let lines: Vec<_> = found.map(|one| format!("{}: {}", one.code, one.message)).collect();
        lines.join("\n")
    }

    #[test]
    fn a_case_says_what_it_is() {
        let sound = r#"{
            "description": "d", "section": "s", "marks": ["temporal"],
            "profiles": ["https://mwl.dev/v0.1/conformance/core"],
            "scenarios": { "base": {}, "other": { "description": "d" } }
        }"#;
        let mut read = None;
        assert_eq!(wrong(sound, |checker, node| read = Some(checker.meta(node))), "");
        let meta = read.unwrap();
        assert_eq!((meta.description.as_str(), meta.section.as_deref()), ("d", Some("s")));
        assert!(meta.temporal && meta.profiles.len() == 1);
        assert_eq!(Vec::from_iter(meta.scenarios), ["base", "other"]);

        insta::assert_snapshot!(wrong("{}", Checker::meta), @r##"
        missing-member: `description` is missing
        missing-member: `profiles` is missing
        missing-member: `marks` is missing
        missing-member: `scenarios` is missing
        "##);
        insta::assert_snapshot!(wrong("[]", Checker::meta), @r##"wrong-type: this is an array; wanted: an object with `description`, `section`, `profiles`, `marks`, `scenarios`"##);
        let bad = r#"{
            "description": 1, "sections": "s", "marks": "temporal",
            "profiles": ["https://mwl.dev/v0.1/conformance/core/"],
            "scenarios": { "base": { "input": 1 } }
        }"#;
        insta::assert_snapshot!(wrong(bad, Checker::meta), @r##"
        unknown-member: `sections` is unknown; wanted: `description`, `section`, `profiles`, `marks`, `scenarios`
        wrong-type: this is 1; wanted: a string that is not empty
        unknown-value: "https://mwl.dev/v0.1/conformance/core/" is not a conformance profile that is claimed; wanted: `https://mwl.dev/v0.1/conformance/core`, `https://mwl.dev/v0.1/conformance/expressions/cel`, `https://mwl.dev/v0.1/conformance/expressions/cel/strings`, `https://mwl.dev/v0.1/conformance/expressions/cel/lists`, `https://mwl.dev/v0.1/conformance/expressions/cel/sets`, `https://mwl.dev/v0.1/conformance/expressions/cel/encoders`, `https://mwl.dev/v0.1/conformance/expressions/cel/math`
        wrong-type: this is "temporal"; wanted: an array of `temporal`
        unknown-member: `input` is unknown; wanted: `description`
        "##);
    }

    #[test]
    fn an_expected_result_is_a_result() {
        for sound in [
            r#"{ "type": "success", "value": null }"#,
            r#"{ "type": "error", "code": "A", "details": 1, "retryable": null, "previous": null }"#,
            r#"{ "type": "paused", "code": "A", "previous": { "type": "error", "code": "B" } }"#,
        ] {
            assert_eq!(wrong(sound, Checker::result), "");
        }
        for bad in [
            r#"{ "type": "success" }"#,
            r#"{ "type": "success", "value": 1, "code": "A" }"#,
            r#"{ "type": "error" }"#,
            r#"{ "type": "error", "code": 1 }"#,
            r#"{ "type": "error", "code": "A", "value": 1 }"#,
            r#"{ "type": "error", "code": "A", "previous": { "type": "error" } }"#,
            "7",
        ] {
            assert_ne!(wrong(bad, Checker::result), "", "{bad}");
        }
    }

    #[test]
    fn our_extensions_have_shapes_too() {
        assert_eq!(wrong(r#"{ "took": "PT1.5S" }"#, Checker::took), "");
        assert_eq!(wrong(r#"{ "codes": ["unknown-step"] }"#, Checker::refused), "");
        assert_eq!(wrong("{}", Checker::arguments), "");
        insta::assert_snapshot!(wrong(r#"{ "took": "1.5s", "code": 1 }"#, Checker::took), @r##"
        unknown-member: `code` is unknown; wanted: `took`
        wrong-type: this is "1.5s"; wanted: an ISO 8601 duration, such as `PT1.5S`
        "##);
        insta::assert_snapshot!(wrong(r#"{ "codes": [] }"#, Checker::refused), @r##"wrong-type: this is an array; wanted: an array of the diagnostics' codes, at least one"##);
        insta::assert_snapshot!(wrong("null", Checker::arguments), @r##"wrong-type: this is null; wanted: an object of the Flow's arguments"##);
    }
}
