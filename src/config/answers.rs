//! Values that a route's Flow returns, and that look like an answer but are not one: the client gets them as JSON, with 200.

use super::report::Report;
use crate::source::{Diagnostic, Kind, Member, Node, nearest};

/// The members of an answer.
const MEMBERS: [&str; 3] = ["status", "headers", "body"];

/// What others call a status.
const ALIASES: [&str; 6] =
    ["statusCode", "status_code", "statuscode", "httpStatus", "http_status", "Status"];

/// Warns of what the `Return` Steps of a route's Flow write.
pub(super) fn answers(report: &Report, flow: &Node) {
    let steps = flow.get("steps").and_then(Node::as_object).unwrap_or_default();
    for step in steps.iter().map(|step| &step.value) {
        let action = step.get("action").and_then(Node::as_str);
        if let (Some("Return"), Some(value)) = (action.map(AsRef::as_ref), step.get("value")) {
            answer(report, value.as_object().unwrap_or_default());
        }
    }
}

fn answer(report: &Report, members: &[Member]) {
    if let Some(status) = members.iter().find(|member| &*member.key == "status") {
        match &status.value.kind {
            Kind::String(text) if text.trim().parse().is_ok_and(is_status) => {
                let message = "`status` is a string, so this is no answer: the client gets all of it as JSON, with 200";
                let diagnostic = Diagnostic::warning("not-an-answer", status.value.span, message);
                report.add(diagnostic.with_help(format!("write {}, without quotes", text.trim())));
            }
            Kind::Number(number) if is_status(*number) => misnamed(report, members),
            _ => {}
        }
        return;
    }
    let alias = members.iter().find(|member| ALIASES.contains(&&*member.key));
    if let Some(alias) = alias.filter(|alias| alias.value.as_number().is_some_and(is_status)) {
        let message = format!(
            "an answer's status is called `status`, not `{}`: the client gets all of it as JSON, with 200",
            alias.key
        );
        let diagnostic = Diagnostic::warning("not-an-answer", alias.key_span, message);
        report.add(diagnostic.with_help("did you mean `status`?"));
    }
}

/// A member beside an answer's `status` that is nearly one of an answer.
fn misnamed(report: &Report, members: &[Member]) {
    let others = members.iter().filter(|member| !MEMBERS.contains(&&*member.key));
    for member in others {
        if let Some(meant) = nearest(&member.key, MEMBERS) {
            let message = format!(
                "`{}` is no member of an answer, so the client gets all of this as JSON, with 200",
                member.key
            );
            let diagnostic = Diagnostic::warning("not-an-answer", member.key_span, message);
            report.add(diagnostic.with_help(format!("did you mean `{meant}`?")));
        }
    }
}

fn is_status(number: f64) -> bool {
    (100.0..600.0).contains(&number) && number.fract() == 0.0
}
