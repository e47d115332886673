//! Reads the fields of a construct: which are known, which are required, and what a structural one may hold.

use std::sync::Arc;

use super::template::is_expression;
use super::{Compiler, list};
use crate::language::expr::Program;
use crate::language::uri::ProviderKind;
use crate::source::{Diagnostic, Member, Node, Span, did_you_mean, with_article};

/// The fields of one construct.
#[derive(Clone, Copy)]
pub(super) struct Fields<'n> {
    pub(super) node: &'n Node,
    members: &'n [Member],
    /// The construct, for messages: "a `Call` Step".
    pub(super) what: &'n str,
}

impl<'n> Fields<'n> {
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        self.member(name).map(|member| &member.value)
    }

    pub(super) fn member(&self, name: &str) -> Option<&'n Member> {
        self.members.iter().find(|member| member.key.as_ref() == name)
    }
}

impl Compiler<'_> {
    /// The fields of the object `node`. Reports each that is not in `known`. A `comment` is checked here,
    /// once for all constructs.
    pub(super) fn fields<'n>(
        &mut self,
        node: &'n Node,
        what: &'n str,
        known: &[&str],
    ) -> Option<Fields<'n>> {
        let fields = self.open(node, what)?;
        for member in fields.members {
            if !known.contains(&member.key.as_ref()) {
                self.unknown_field(member, what, known);
            }
        }
        if known.contains(&"comment") {
            self.comment(&fields);
        }
        Some(fields)
    }

    /// The fields of an object, before it is known which ones it may have.
    pub(super) fn open<'n>(&mut self, node: &'n Node, what: &'n str) -> Option<Fields<'n>> {
        let Some(members) = node.as_object() else {
            self.wrong_type(node, &format!("{what} must be an object"));
            return None;
        };
        Some(Fields { node, members, what })
    }

    fn unknown_field(&mut self, member: &Member, what: &str, known: &[&str]) {
        let key = member.key.as_ref();
        let message = format!("`{key}` is not a field of {what}");
        let help = elsewhere(key, what)
            .or_else(|| self.written_as_key(key, what))
            .or_else(|| did_you_mean(key, known.iter().copied()));
        let help =
            help.unwrap_or_else(|| format!("its fields are {}", list(known.iter().copied())));
        self.error_with_help("unknown-field", member.key_span, message, help);
    }

    /// What to write for a middleware whose name is the key of an entry.
    fn written_as_key(&self, key: &str, what: &str) -> Option<String> {
        let mut known = self.catalog.contracts().map(|contract| &contract.uri);
        let meant =
            known.find(|uri| uri.kind() == ProviderKind::Middleware && uri.bare_name() == key);
        let meant = meant.filter(|_| what == "a middleware entry")?;
        Some(format!(
            "write `provider: {}`, and its arguments in a phase: `onEntry: {{ with: … }}`",
            meant.as_str()
        ))
    }

    fn comment(&mut self, fields: &Fields<'_>) {
        if let Some(comment) = fields.get("comment").filter(|comment| comment.as_str().is_none()) {
            self.wrong_type(comment, "`comment` must be a string");
        }
    }

    /// A field that must be present.
    pub(super) fn required<'n>(&mut self, fields: &Fields<'n>, name: &str) -> Option<&'n Node> {
        let found = fields.get(name);
        if found.is_none() {
            let message = format!("{} needs `{name}`", fields.what);
            self.error("missing-field", fields.node.span, message);
        }
        found
    }

    /// A structural string. The definition alone must resolve it, so it cannot be an expression ("Where
    /// expressions may appear").
    pub(super) fn name<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n Arc<str>> {
        let Some(text) = node.as_str() else {
            self.wrong_type(node, &format!("{what} must be a string"));
            return None;
        };
        (!self.refuse_expression(text, node.span, what)).then_some(text)
    }

    /// The key of a map whose keys are names of the definition.
    pub(super) fn key(&mut self, member: &Member, what: &str) {
        self.refuse_expression(&member.key, member.key_span, what);
    }

    /// Whether `text` is an expression, which is reported.
    fn refuse_expression(&mut self, text: &str, span: Span, what: &str) -> bool {
        let expression = is_expression_text(text);
        if expression {
            let message =
                format!("{what} cannot be an expression: it is read before anything runs");
            self.error("expression-in-structure", span, message);
        }
        expression
    }

    /// A literal boolean.
    pub(super) fn flag(&mut self, node: &Node, what: &str) -> Option<bool> {
        if let Some(bool) = node.as_bool() {
            return Some(bool);
        }
        let seen = if is_expression(node) {
            "an expression".to_owned()
        } else {
            with_article(node.type_name())
        };
        let message = format!("{what} must be `true` or `false`; this is {seen}");
        let mut diagnostic = Diagnostic::error("wrong-type", node.span, message);
        diagnostic.help = boolean_word(node);
        self.found.push(diagnostic);
        None
    }

    /// The elements of an array of definitions.
    pub(super) fn items<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Node] {
        node.as_array().unwrap_or_else(|| {
            self.wrong_type(node, &format!("{what} must be an array"));
            &[]
        })
    }
}

/// Help for authors who write the booleans of YAML 1.1.
pub(super) fn boolean_word(node: &Node) -> Option<String> {
    let word = node.as_str()?;
    let meant = match word.to_ascii_lowercase().as_str() {
        "yes" | "on" | "y" | "true" => "true",
        "no" | "off" | "n" | "false" => "false",
        _ => return None,
    };
    Some(format!("`{word}` is a string here; write `{meant}`"))
}

/// Where a field belongs that `what` does not have.
fn elsewhere(key: &str, what: &str) -> Option<String> {
    let step = what.ends_with(" Step");
    Some(match key {
        "$schema" => "only the root Flow carries `$schema`; remove it".to_owned(),
        "middleware" if what == "a `Gather` Step" => {
            "call a Flow that carries the `middleware`: a dispatch is wrapped inside its own frame"
                .to_owned()
        }
        "middleware" if step || what.starts_with("a call") => {
            "`middleware` stands on a `Call` Step or on a Flow".to_owned()
        }
        "catch" if step => "`catch` stands on `Call` and `Gather` Steps".to_owned(),
        "with" if what == "a middleware entry" => {
            "arguments belong to a phase: write `onEntry: { with: … }`".to_owned()
        }
        "next" if step => "a terminal Step has no successor; remove it".to_owned(),
        "output" | "assign" | "next" if what == "a `Match` Step" => {
            format!("`{key}` stands on each clause of a `Match`")
        }
        "output" if what == "a `Return` Step" => "a `Return` shapes its `value`".to_owned(),
        "when" if what == "the `default` clause" => {
            "`default` is what is left; move it to `cases`".to_owned()
        }
        "value" if what.starts_with("an `onFailure` arm") => {
            "a failure rises as it is; reshape it in a middleware's `onFailure`".to_owned()
        }
        _ => return None,
    })
}

/// Whether a string is one expression.
pub(super) fn is_expression_text(text: &str) -> bool {
    Program::body(text).is_some()
}
