//! `classify:`, a route's own rules for what its upstream's responses mean.

use std::sync::Arc;

use super::matching::{VALUE_OR_ANY, headers};
use super::read::Object;
use super::report::Report;
use super::shape::{Section, Shape, optional, or};
use crate::language::expr::{OperationKind, Program, Root, Roots};
use crate::proxy::settings::{ClassifyRule, RuledRetryable, Verdict};
use crate::source::{Diagnostic, Kind, Node};

pub(super) const STATUS: Shape =
    Shape::Either(&[Shape::Count(100, 599), Shape::Word(&["1xx", "2xx", "3xx", "4xx", "5xx"])]);

/// The word for `retryable` that leaves it to the method.
const BY_METHOD: &str = "byMethod";

pub(super) const CLASSIFY: Section = Section {
    name: "a `classify` rule",
    doc: "What a response is, where all that the rule asks for holds. The first rule that matches decides.",
    fields: &[
        or(
            "status",
            Shape::List(&STATUS),
            "[]",
            "Statuses such as 402, or classes such as `5xx`. Without it, any.",
        ),
        or(
            "headers",
            Shape::Map(&VALUE_OR_ANY),
            "{}",
            "Fields that the response must have, by name. A null value means any value.",
        ),
        optional(
            "when",
            Shape::Text,
            "An expression over `response` (`status`, `headers`, `body`) that must be true.",
        ),
        optional("code", Shape::Text, "The response is a failure with this code."),
        optional(
            "retryable",
            Shape::Either(&[Shape::Boolean, Shape::Word(&[BY_METHOD])]),
            "Whether the failure says that a retry may help. `byMethod`: if the method is idempotent or the request has an `Idempotency-Key`. Without it, the status decides.",
        ),
        or("success", Shape::Boolean, "false", "The response is a success, whatever its status."),
    ],
};

/// The rules of a route, in order.
pub(super) fn classify(report: &Report, route: &Object<'_>) -> Vec<ClassifyRule> {
    let rules = route.list("classify").iter();
    let rules: Vec<_> = rules.filter_map(|node| Some((node, rule(report, node)?))).collect();
    for (position, (node, rule)) in rules.iter().enumerate() {
        let mut earlier = rules.iter().take(position);
        let wider =
            earlier.find(|(node, earlier)| is_whole(node, earlier) && covers(earlier, rule));
        if let Some((wider, _)) = wider.filter(|_| is_whole(node, rule)) {
            let message =
                "this rule is never reached: an earlier one takes every response that it takes";
            let diagnostic = Diagnostic::warning("unreachable-rule", node.span, message);
            let diagnostic = diagnostic.with_related(wider.span, "takes them");
            report.add(diagnostic.with_help("put the narrower rule first"));
        }
    }
    rules.into_iter().map(|(_, rule)| rule).collect()
}

/// Whether all conditions of a rule could be read.
fn is_whole(node: &Node, rule: &ClassifyRule) -> bool {
    let statuses = node.get("status").and_then(Node::as_array).map_or(0, <[Node]>::len);
    statuses == rule.status.len() && node.get("when").is_some() == rule.when.is_some()
}

/// Whether `earlier` takes every response that `later` takes.
fn covers(earlier: &ClassifyRule, later: &ClassifyRule) -> bool {
    let any = [(100, 599)];
    let wide = if earlier.status.is_empty() { &any } else { earlier.status.as_slice() };
    let narrow = if later.status.is_empty() { &any } else { later.status.as_slice() };
    let within = |(first, last): &(u16, u16)| {
        (*first..=*last)
            .all(|status| wide.iter().any(|(low, high)| (*low..=*high).contains(&status)))
    };
    let implied = |(name, value): &(_, Option<Arc<str>>)| {
        later
            .headers
            .iter()
            .any(|(other, found)| other == name && (value.is_none() || value == found))
    };
    earlier.when.is_none() && narrow.iter().all(within) && earlier.headers.iter().all(implied)
}

fn rule(report: &Report, node: &Node) -> Option<ClassifyRule> {
    let object = Object::open(report, "classify", node, &CLASSIFY)?;
    let statuses = object.list("status").iter();
    let status: Vec<_> = statuses.filter_map(|node| status(report, "status", node)).collect();
    let headers = headers(report, &object);
    let when = object.get("when").and_then(|node| when(report, node));
    let asks = ["status", "headers", "when"].iter().any(|key| node.get(key).is_some());
    if !asks {
        let message = "the rule matches every response; give it `status`, `headers` or `when`";
        report.error("missing-key", node.span, message);
    }
    let verdict = verdict(report, &object)?;
    Some(ClassifyRule { status, headers, when, verdict })
}

/// One status or a class of them, as an inclusive range.
pub(super) fn status(report: &Report, key: &str, node: &Node) -> Option<(u16, u16)> {
    let range = match &node.kind {
        Kind::Number(_) => {
            let status = node.to_string().parse::<u16>().ok();
            status.filter(|status| (100..600).contains(status)).map(|status| (status, status))
        }
        Kind::String(class) => match class.as_bytes() {
            [digit @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => {
                let first = u16::from(digit - b'0') * 100;
                Some((first, first + 99))
            }
            _ => None,
        },
        _ => None,
    };
    if range.is_none() {
        report.wrong_type(key, node, "a status from 100 to 599, or a class such as `5xx`");
    }
    range
}

fn when(report: &Report, node: &Node) -> Option<Program> {
    let text = report.text("when", node)?;
    let Some((shift, body)) = Program::placed_body(text) else {
        let message = format!("`when` is the string `{text}`, which is no expression");
        let diagnostic = Diagnostic::error("not-an-expression", node.span, message);
        report.add(diagnostic.with_help("write it between `{{` and `}}`"));
        return None;
    };
    match Program::compile(body, Roots::of(&[Root::Response])) {
        Ok(program) => {
            compared(report, node, shift, &program);
            Some(program)
        }
        Err(errors) => {
            for error in errors {
                let diagnostic = Diagnostic::error("bad-expression", node.span, error.message);
                report.add(diagnostic.with_offset(shift + error.offset));
            }
            None
        }
    }
}

/// Warns of comparisons that are never true: a status is a number, and a field's value is a string.
fn compared(report: &Report, node: &Node, shift: usize, program: &Program) {
    for operation in program.operations() {
        let members: Vec<&str> = operation.members.iter().map(AsRef::as_ref).collect();
        let ty = match members.as_slice() {
            ["status"] => "number",
            ["headers", name] if *name != "set-cookie" => "string",
            _ => continue,
        };
        let seen = operation.literal.name();
        if seen != ty && operation.kind != OperationKind::Arithmetic {
            let message = format!(
                "`response.{}` is a {ty}, and this compares it with a {seen}",
                members.join(".")
            );
            let diagnostic = Diagnostic::warning("mismatched-types", node.span, message);
            let diagnostic = diagnostic.with_offset(shift + operation.offset);
            report.add(diagnostic.with_help(format!("write a {ty}")));
        }
    }
}

/// Exactly one of a code and `success: true`.
fn verdict(report: &Report, object: &Object<'_>) -> Option<Verdict> {
    let success = object.boolean("success");
    let retryable = object.get("retryable");
    let retryable = retryable.map(|node| (node, retryable_by(object, node)));
    match (object.get("code"), success) {
        (Some(node), false) => Some(Verdict::Failure {
            code: code(report, node)?,
            retryable: retryable.and_then(|(_, value)| value),
        }),
        (None, true) => {
            if let Some((node, _)) = retryable {
                let message = "`retryable` beside `success`: only a failure can be retried";
                report.error("unknown-key", node.span, message);
            }
            Some(Verdict::Success)
        }
        (Some(_), true) => {
            let message = "a response cannot be both: give `code` or `success: true`, not both";
            report.error("conflicting-keys", object.node.span, message);
            None
        }
        (None, false) => {
            let message =
                "the rule does not say what the response is: give `code` or `success: true`";
            report.error("missing-key", object.node.span, message);
            None
        }
    }
}

/// `true`, `false` or `byMethod`.
fn retryable_by(object: &Object<'_>, node: &Node) -> Option<RuledRetryable> {
    if node.as_str().is_some_and(|word| &**word == BY_METHOD) {
        return Some(RuledRetryable::ByMethod);
    }
    object.optional_boolean("retryable", node).map(RuledRetryable::Is)
}

fn code(report: &Report, node: &Node) -> Option<Arc<str>> {
    report.parsed("bad-code", "code", node, |text| {
        let part = |segment: &str| !segment.is_empty() && !segment.contains('*');
        if text.chars().any(char::is_whitespace) || !text.split('.').all(part) {
            return Err(format!(
                "`{text}` is not a code; write dotted words, such as `Provider.Call.Payments.CardDeclined`"
            ));
        }
        if text == "System" || text.starts_with("System.") {
            return Err(format!("`{text}` is reserved: codes under `System.` are the engine's own"));
        }
        Ok(text.into())
    })
}
