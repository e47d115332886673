//! The failure matcher (MWL, "Failure matching").

use super::fields::is_expression_text;
use super::{CodeUse, Compiler};
use crate::language::code::CodePattern;
use crate::language::matcher::Matcher;
use crate::language::outcome::FailureType;
use crate::source::{Diagnostic, Node, Span, did_you_mean, with_article};

/// The types that the specification defines, `success` aside.
const TYPES: [&str; 4] = ["error", "cancellation", "timeout", "skipped"];

impl Compiler<'_> {
    /// A matcher. It is structural, and has at least one member and no empty list.
    pub(super) fn matcher(&mut self, node: &Node) -> Option<Matcher> {
        let fields = self.fields(node, "a failure matcher", &["codes", "types", "retryable"])?;
        if node.as_object().is_some_and(<[_]>::is_empty) {
            let message =
                "a failure matcher needs at least one of `codes`, `types` and `retryable`";
            let help = r#"to match every failure write { "codes": ["*"] }"#;
            self.error_with_help("invalid-matcher", node.span, message, help);
            return None;
        }
        let codes = fields.get("codes").map(|codes| self.list(codes, "codes", Self::pattern));
        let types = fields.get("types").map(|types| self.list(types, "types", Self::failure_type));
        let retryable =
            fields.get("retryable").map(|flag| self.flag(flag, "a matcher's `retryable`"));
        Some(Matcher {
            codes: transposed(codes)?,
            types: transposed(types)?,
            retryable: transposed(retryable)?,
        })
    }

    fn list<T>(
        &mut self,
        node: &Node,
        name: &str,
        read: fn(&mut Self, &Node) -> Option<T>,
    ) -> Option<Vec<T>> {
        let items = self.items(node, &format!("a matcher's `{name}`"));
        if node.as_array().is_some_and(<[_]>::is_empty) {
            let message = format!("a matcher's `{name}` must not be empty: it would match nothing");
            self.error("invalid-matcher", node.span, message);
            return None;
        }
        let read: Vec<_> = items.iter().map(|item| read(self, item)).collect();
        read.into_iter().collect::<Option<Vec<_>>>().filter(|list| !list.is_empty())
    }

    fn pattern(&mut self, node: &Node) -> Option<CodePattern> {
        let text = self.name(node, "a code pattern")?;
        match CodePattern::parse(text) {
            Ok(pattern) => {
                self.codes.push(CodeUse::Matched(pattern.clone(), node.span));
                Some(pattern)
            }
            Err(error) => {
                self.error("invalid-pattern", node.span, error.to_string());
                None
            }
        }
    }

    fn failure_type(&mut self, node: &Node) -> Option<FailureType> {
        let text = self.name(node, "a failure type")?;
        let Some(ty) = FailureType::parse(text) else {
            let message = "`success` is no failure type: no success reaches a matcher; remove it";
            self.error("invalid-matcher", node.span, message);
            return None;
        };
        self.advise_type(text, node.span);
        Some(ty)
    }

    /// Warns of a type that is not written as the specification asks: its own in lower case, others in
    /// `PascalCase` ("Result types").
    pub(super) fn advise_type(&mut self, text: &str, span: Span) {
        let pascal = text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.chars().all(|c| c.is_ascii_alphanumeric());
        if pascal || TYPES.contains(&text) {
            return;
        }
        let message = if text.starts_with(|c: char| c.is_ascii_lowercase()) {
            format!("`{text}` is no type of the specification, which reserves lower case")
        } else {
            format!("the type `{text}` is not written in PascalCase")
        };
        let help = did_you_mean(text, TYPES)
            .unwrap_or_else(|| "write a type of your own in PascalCase".to_owned());
        self.warn("reserved-type", span, message, help);
    }

    /// Collects the code patterns by which a middleware's `with` selects, for the advice on codes. Whether
    /// one was wrong, which is reported. The middleware also reads them when it prepares the `with`; but a
    /// mistake that is reported here has its exact place.
    pub(super) fn selected(&mut self, codes: &[&Node]) -> bool {
        let mut wrong = false;
        for code in codes {
            let Some(text) = code.as_str().filter(|text| !is_expression_text(text)) else {
                continue;
            };
            match CodePattern::parse(text) {
                Ok(pattern) => self.codes.push(CodeUse::Matched(pattern, code.span)),
                Err(error) => {
                    wrong = true;
                    let message = error.to_string();
                    self.load_error(Diagnostic::error("invalid-pattern", code.span, message));
                }
            }
        }
        wrong
    }

    /// A literal `type` of a constructed failure.
    pub(super) fn constructed_type(&mut self, node: &Node) {
        match node.as_str() {
            Some(text) if is_expression_text(text) => {}
            Some(text) if FailureType::parse(text).is_none() => {
                let message =
                    "`type` must be a non-success type: a failure cannot become a success";
                self.error("success-type", node.span, message);
            }
            Some(text) => self.advise_type(text, node.span),
            None => {
                let seen = with_article(node.type_name());
                let message = format!("`type` must be a string; this is {seen}");
                self.load_error(Diagnostic::error("wrong-type", node.span, message));
            }
        }
    }
}

/// `None` if the member was written and is wrong.
fn transposed<T>(member: Option<Option<T>>) -> Option<Option<T>> {
    match member {
        None => Some(None),
        Some(read) => read.map(Some),
    }
}
