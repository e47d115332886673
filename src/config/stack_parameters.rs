//! Parameters of named stacks: `parameters:` beside a stack's `middleware:`, the item's `with:`, and `${with.NAME}` in the
//! list, which stands for the value.
//!
//! An argument keeps its place in the file, so what the language finds wrong with it is told at the user's line.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::env::PARAMETER;
use super::read::Object;
use super::report::Report;
use super::shape::{Piece, Section, Shape, or, required};
use crate::language::expr::Program;
use crate::language::schema::Schema;
use crate::language::temporal::meant_duration;
use crate::language::value::Value;
use crate::source::{Diagnostic, Kind, Member, Node, Span, did_you_mean};

pub(super) const STACK: Section = Section {
    name: "a stack",
    doc: "A list of middleware entries with parameters: `${with.NAME}` in a string of the list stands for one.",
    fields: &[
        or(
            "parameters",
            Shape::Object,
            "{}",
            "A JSON Schema for each parameter, by name. One without a `default` is required.",
        ),
        required("middleware", Shape::Mwl(Piece::Middleware), "The entries, outermost first."),
    ],
};

/// An item that names a stack.
#[derive(Clone, Copy)]
pub(super) struct Use<'a> {
    /// The name of the stack.
    pub(super) name: &'a str,
    /// The place of the name.
    pub(super) span: Span,
    /// The item's `with`.
    pub(super) with: Option<&'a Node>,
}

/// The values of a stack's parameters, by name.
type Arguments = BTreeMap<Arc<str>, Node>;

/// Reports what is wrong with the declaration of a stack.
pub(super) fn declared(report: &Report, member: &Member) {
    if member.value.as_array().is_some() {
        return;
    }
    // Without a list in it, it is no stack at all.
    if member.value.get("middleware").is_none() {
        report.wrong_type(&member.key, &member.value, "a list of middleware entries");
        return;
    }
    let Some(object) = Object::open(report, &member.key, &member.value, &STACK) else {
        return;
    };
    object.list("middleware");
    for parameter in object.map("parameters") {
        let schema = Value::from(parameter.value.to_json());
        let whole = Value::object([
            ("type", Value::from("object")),
            ("properties", Value::object([(Arc::clone(&parameter.key), schema)])),
        ]);
        if let Err(problem) = Schema::compile_in(&whole, &report.room) {
            report.error("bad-parameter", parameter.value.span, problem.message);
        }
    }
}

/// The list of a stack.
pub(super) fn list_of(member: &Member) -> &Node {
    member.value.get("middleware").unwrap_or(&member.value)
}

/// The parameters of a stack, if it declares any.
pub(super) fn parameters_of(member: &Member) -> Option<&[Member]> {
    let parameters = member.value.get("parameters")?.as_object()?;
    (!parameters.is_empty()).then_some(parameters)
}

/// The list of `stack` with the arguments of `used` in it; `None` if there is nothing to fill.
pub(super) fn filled(report: &Report, stack: &Member, used: Use<'_>) -> Option<Node> {
    let parameters = parameters_of(stack).unwrap_or_default();
    if parameters.is_empty() && used.with.is_none() {
        return None;
    }
    let arguments = arguments(report, parameters, used);
    Some(replaced(report, list_of(stack), &arguments))
}

/// The values of the parameters where the stack is used. Mistakes are reported.
fn arguments(report: &Report, parameters: &[Member], used: Use<'_>) -> Arguments {
    let given = used.with.map_or(&[][..], |with| report.map("with", with));
    for member in given {
        if !parameters.iter().any(|known| known.key == member.key) {
            let message = format!("`{}` is no parameter of the stack `{}`", member.key, used.name);
            let known = parameters.iter().map(|known| &*known.key);
            let help = did_you_mean(&member.key, known.clone()).unwrap_or_else(|| {
                let names: Vec<String> = known.map(|name| format!("`{name}`")).collect();
                match names.as_slice() {
                    [] => "it has none; remove it".to_owned(),
                    names => format!("it has {}", names.join(", ")),
                }
            });
            let diagnostic = Diagnostic::error("bad-arguments", member.key_span, message);
            report.add(diagnostic.with_help(help));
        }
    }
    let mut arguments = Arguments::new();
    for parameter in parameters {
        let written = given.iter().find(|member| member.key == parameter.key);
        let value = written.map(|member| &member.value);
        if let Some(value) = value {
            check(report, parameter, value);
        }
        let Some(value) = value.or_else(|| parameter.value.get("default")) else {
            let message = format!("the stack `{}` needs `{}`", used.name, parameter.key);
            let place = used.with.map_or(used.span, |with| with.span);
            let diagnostic = Diagnostic::error("bad-arguments", place, message);
            let help = format!("write `with: {{ {}: … }}` beside `stack`", parameter.key);
            report.add(diagnostic.with_help(help).with_related(parameter.key_span, "required"));
            // Nothing more is to be said about it.
            let nothing = Node { span: place, kind: Kind::Null };
            arguments.insert(Arc::clone(&parameter.key), nothing);
            continue;
        };
        arguments.insert(Arc::clone(&parameter.key), value.clone());
    }
    arguments
}

/// Checks an argument against its parameter's schema. An expression has no value yet, nor has a parameter of the stack in
/// which the item stands.
fn check(report: &Report, parameter: &Member, value: &Node) {
    let open = |text: &Arc<str>| {
        Program::body(text).is_some() || text.contains(&format!("${{{PARAMETER}"))
    };
    if value.as_str().is_some_and(open) {
        return;
    }
    let schema = parameter.value.to_json();
    let value_json = Value::from(value.to_json());
    let checked = Schema::validate_part(&schema, &schema, &value_json, &report.room);
    if let Err(violation) = checked {
        let message = format!("`{}`: {}", parameter.key, violation.message);
        let error = Diagnostic::error("bad-arguments", value.span, message);
        let duration = parameter.value.get("format").and_then(Node::as_str);
        let duration = duration.is_some_and(|format| &**format == "duration");
        let meant = value.as_str().filter(|_| duration);
        let help =
            meant.and_then(|text| meant_duration(text)).map(|text| format!("write `{text}`"));
        let error = Diagnostic { help, ..error };
        report.add(error.with_related(parameter.key_span, "the parameter"));
    }
}

/// `node` with its references to parameters replaced.
fn replaced(report: &Report, node: &Node, arguments: &Arguments) -> Node {
    let kind = match &node.kind {
        Kind::String(text) if Program::body(text).is_none() && text.contains("${") => {
            return text_with(report, node, text, arguments);
        }
        Kind::Array(items) => {
            Kind::Array(items.iter().map(|item| replaced(report, item, arguments)).collect())
        }
        Kind::Object(members) => {
            let member = |member: &Member| Member {
                value: replaced(report, &member.value, arguments),
                ..member.clone()
            };
            Kind::Object(members.iter().map(member).collect())
        }
        other => other.clone(),
    };
    Node { span: node.span, kind }
}

/// A string with its references replaced: by the value itself if it is nothing but one reference.
fn text_with(report: &Report, node: &Node, text: &Arc<str>, arguments: &Arguments) -> Node {
    let mut out = String::new();
    let mut rest: &str = text;
    while let Some((before, after)) = rest.split_once("${") {
        let reference = after.strip_prefix(PARAMETER).and_then(|name| name.split_once('}'));
        let Some((name, behind)) = reference else {
            out.push_str(before);
            out.push_str("${");
            rest = after;
            continue;
        };
        let Some(value) = arguments.get(name) else {
            unknown(report, node, name, arguments);
            return node.clone();
        };
        if out.is_empty() && before.is_empty() && behind.is_empty() {
            return value.clone();
        }
        out.push_str(before);
        match &value.kind {
            Kind::String(text) => out.push_str(text),
            _ => out.push_str(&value.to_string()),
        }
        rest = behind;
    }
    out.push_str(rest);
    Node { span: node.span, kind: Kind::String(out.into()) }
}

fn unknown(report: &Report, node: &Node, name: &str, arguments: &Arguments) {
    let message = format!("the stack has no parameter `{name}`");
    let help = did_you_mean(name, arguments.keys().map(AsRef::as_ref));
    let help = help.unwrap_or_else(|| "declare it under the stack's `parameters`".to_owned());
    report.add(Diagnostic::error("unknown-parameter", node.span, message).with_help(help));
}
