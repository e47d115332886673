//! Values that hold expressions: templates, predicates and captures. And checks of literals against a field's
//! type.

use std::sync::Arc;

use super::Compiler;
use super::fields::boolean_word;
use super::site::{self, Site};
use crate::language::expr::{MISTAKES, Path, PathEnd, Program, Root, Roots};
use crate::language::plan::{Assign, Template, When};
use crate::language::value::{Map, Value};
use crate::source::{Diagnostic, Kind, Member, Node, Severity, with_article};

impl Compiler<'_> {
    /// A field's value: a literal, an expression, or a tree of them.
    pub(super) fn template(&mut self, node: &Node, site: Site<'_>) -> Option<Template> {
        match &node.kind {
            Kind::String(text) => {
                if let Some(body) = Program::placed_body(text) {
                    return self.expression(node, body, site).map(Template::Expression);
                }
                self.advise_text(node, text);
                Some(Template::Constant(Value::String(Arc::clone(text))))
            }
            Kind::Array(items) => {
                let parts: Vec<_> = items.iter().map(|item| self.template(item, site)).collect();
                let parts = parts.into_iter().collect::<Option<Vec<_>>>()?;
                Some(match constants(&parts) {
                    Some(values) => Template::Constant(Value::array(values)),
                    None => Template::Array(parts.into()),
                })
            }
            Kind::Object(members) => self.object(members.iter(), site),
            _ => Some(Template::Constant(super::literal(node))),
        }
    }

    /// Reports text with an expression in the middle of it: an expression is the whole string or none at all (MWL,
    /// "Expressions").
    fn advise_text(&mut self, node: &Node, text: &str) {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, opened)) = rest.split_once("{{") {
            let Some((body, after)) = opened.split_once("}}") else {
                return;
            };
            // Templates of others have these delimiters, too.
            if Program::compile(body.trim(), Roots::of(&Root::ALL)).is_err() {
                return;
            }
            parts.extend(quoted(before));
            parts.push(format!("string({})", body.trim()));
            rest = after;
        }
        if parts.is_empty() {
            return;
        }
        parts.extend(quoted(rest));
        let message = "this is text: an expression spans the whole string, and here something stands beside it";
        let help = format!("write `{{{{ {} }}}}`", parts.join(" + "));
        self.warn("partial-expression", node.span, message.to_owned(), help);
    }

    /// An object of these members.
    pub(super) fn object<'n>(
        &mut self,
        members: impl Iterator<Item = &'n Member>,
        site: Site<'_>,
    ) -> Option<Template> {
        let parts: Vec<_> = members
            .map(|member| {
                let value = self.template(&member.value, site)?;
                Some((Arc::clone(&member.key), value))
            })
            .collect();
        let parts = parts.into_iter().collect::<Option<Vec<_>>>()?;
        let constant = |(key, value): &(Arc<str>, Template)| match value {
            Template::Constant(value) => Some((Arc::clone(key), value.clone())),
            _ => None,
        };
        Some(match parts.iter().map(constant).collect::<Option<Map>>() {
            Some(map) => Template::Constant(Value::Object(Arc::new(map))),
            None => Template::Object(parts.into()),
        })
    }

    /// The value of the optional field at `node`.
    pub(super) fn optional(
        &mut self,
        node: Option<&Node>,
        site: Site<'_>,
    ) -> Option<Option<Template>> {
        match node {
            None => Some(None),
            Some(node) => self.template(node, site).map(Some),
        }
    }

    /// Compiles the expression `body`, before which its string has `shift` characters.
    fn expression(
        &mut self,
        node: &Node,
        (shift, body): (usize, &str),
        site: Site<'_>,
    ) -> Option<Program> {
        let program = match Program::compile(body, site.roots) {
            Ok(program) => program,
            Err(errors) => {
                for error in errors {
                    let diagnostic =
                        Diagnostic::error("invalid-expression", node.span, error.message);
                    self.found.push(diagnostic.with_offset(shift + error.offset));
                }
                return None;
            }
        };
        self.check_reads(node, shift, &program, site);
        self.check_operations(node, shift, &program);
        Some(program)
    }

    /// Reports what the expression reads and can never exist here. Asking whether it exists is always right, and what is
    /// read only after that is never read.
    fn check_reads(&mut self, node: &Node, shift: usize, program: &Program, site: Site<'_>) {
        let (asked, read): (Vec<_>, Vec<_>) =
            program.reads().iter().partition(|path| path.end == PathEnd::Presence);
        let known = |path: &Path| {
            let asks =
                |asked: &&Path| asked.root == path.root && path.members.starts_with(&asked.members);
            path.guarded && asked.iter().any(asks)
        };
        let absent = read.into_iter().filter_map(|path| Some((path, site.absence(path)?)));
        for (path, reason) in absent.filter(|(path, _)| !known(path)).take(MISTAKES) {
            let message = format!("`{}` cannot be read here: {reason}", site::name(path));
            // What a guard may keep from being read runs.
            let severity = if path.guarded { Severity::Warning } else { Severity::Error };
            let diagnostic = Diagnostic::error("unreadable-binding", node.span, message);
            let diagnostic = Diagnostic { severity, ..diagnostic };
            self.load_error(diagnostic.with_offset(shift + path.offset));
        }
    }

    /// A predicate: `true`, `false` or an expression.
    pub(super) fn when(&mut self, node: &Node, site: Site<'_>) -> Option<When> {
        if let Some(bool) = node.as_bool() {
            return Some(When::Literal(bool));
        }
        if let Some(text) = node.as_str()
            && let Some(body) = Program::placed_body(text)
        {
            return self.expression(node, body, site).map(When::Expression);
        }
        let seen = with_article(node.type_name());
        let message = format!("`when` must be `true`, `false` or an expression; this is {seen}");
        let mut diagnostic = Diagnostic::error("wrong-type", node.span, message);
        diagnostic.help = boolean_word(node);
        if diagnostic.help.is_none() && node.as_str().is_some() {
            diagnostic.help = Some("an expression stands between `{{` and `}}`".to_owned());
        }
        self.found.push(diagnostic);
        None
    }

    /// A map from name to value ("Variables: `assign`").
    pub(super) fn assign(&mut self, node: Option<&Node>, site: Site<'_>) -> Option<Assign> {
        let Some(node) = node else {
            return Some(Assign::default());
        };
        let Some(members) = node.as_object() else {
            self.wrong_type(node, "`assign` must be an object of names and values");
            return None;
        };
        let parts: Vec<_> = members
            .iter()
            .map(|member| {
                self.key(member, "a variable's name");
                let value = self.template(&member.value, site)?;
                Some((Arc::clone(&member.key), value))
            })
            .collect();
        parts.into_iter().collect()
    }

    /// Checks a literal against the type of its field. An expression is checked when it has a value.
    pub(super) fn typed(&mut self, node: &Node, name: &str, wanted: &str, fits: fn(&Node) -> bool) {
        if is_expression(node) || fits(node) {
            return;
        }
        let seen = match node.as_number() {
            Some(_) => node.to_string(),
            None => with_article(node.type_name()),
        };
        let message = format!("`{name}` must be {wanted}; this is {seen}");
        let mut diagnostic = Diagnostic::error("wrong-type", node.span, message);
        if wanted.contains("boolean") {
            diagnostic.help = boolean_word(node);
        }
        self.load_error(diagnostic);
    }
}

/// Whether the whole value is one expression.
pub(super) fn is_expression(node: &Node) -> bool {
    node.as_str().is_some_and(|text| Program::body(text).is_some())
}

fn constants(parts: &[Template]) -> Option<Vec<Value>> {
    let constant = |part: &Template| match part {
        Template::Constant(value) => Some(value.clone()),
        _ => None,
    };
    parts.iter().map(constant).collect()
}

/// `text` as a literal of an expression; `None` if it is empty.
fn quoted(text: &str) -> Option<String> {
    let plain = !text.contains(['\'', '\\', '\n']);
    (!text.is_empty()).then(|| if plain { format!("'{text}'") } else { format!("{text:?}") })
}
