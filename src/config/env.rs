//! Replaces `${NAME}` and `${NAME:-default}` in the strings of a configuration.
//!
//! This happens once, at load, and only in literals: expressions belong to the language, which has no
//! environment. Nor can a variable's value become an expression; one that would is refused. `$${` stands
//! for `${`. In `stacks:`, `${with.NAME}` is a stack's own parameter, and stays until the stack is used.

use std::cell::RefCell;
use std::sync::Arc;

use super::report::Report;
use crate::language::expr::Program;
use crate::source::{Diagnostic, Kind, Member, Node, ReplacedString};

/// Returns the value of a variable; `None` if it is not set.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// How references begin that name a stack's parameter.
pub(super) const PARAMETER: &str = "with.";

/// What references may name.
#[derive(Clone, Copy)]
struct Variables<'a> {
    lookup: Lookup<'a>,
    /// Whether a stack's parameters may be named here.
    parameters: bool,
}

/// The configuration `node` with the variables in its strings replaced. Mistakes are reported and left as written. Parts
/// without variables are shared.
pub(super) fn resolve(report: &Report, node: &Node, lookup: Lookup<'_>) -> Node {
    let Kind::Object(members) = &node.kind else {
        return node.clone();
    };
    let changed = |member: &Member| {
        let parameters = &*member.key == "stacks";
        resolved(report, &member.value, Variables { lookup, parameters })
    };
    let changed = changes(members, changed, with_value);
    changed.map_or_else(|| node.clone(), |all| Node { span: node.span, kind: Kind::Object(all) })
}

/// `None` if `node` contains no variable.
fn resolved(report: &Report, node: &Node, variables: Variables<'_>) -> Option<Node> {
    let kind = match &node.kind {
        Kind::String(text) if text.contains("${") => {
            Kind::String(string(report, node, text, variables))
        }
        Kind::Array(items) => {
            let changed = |item: &Node| resolved(report, item, variables);
            Kind::Array(changes(items, changed, |_, item| item)?)
        }
        Kind::Object(members) => {
            let changed = |member: &Member| resolved(report, &member.value, variables);
            Kind::Object(changes(members, changed, with_value)?)
        }
        _ => return None,
    };
    Some(Node { span: node.span, kind })
}

fn with_value(member: &Member, value: Node) -> Member {
    Member { value, ..member.clone() }
}

/// `parts` with the replacements that `changed` returns, or `None` if there are none.
fn changes<T: Clone, C>(
    parts: &[T],
    changed: impl Fn(&T) -> Option<C>,
    replaced: impl Fn(&T, C) -> T,
) -> Option<Arc<[T]>> {
    let mut all: Option<Vec<T>> = None;
    for (position, part) in parts.iter().enumerate() {
        let change = changed(part);
        if change.is_some() && all.is_none() {
            all = Some(parts.iter().take(position).cloned().collect());
        }
        if let Some(all) = &mut all {
            all.push(change.map_or_else(|| part.clone(), |change| replaced(part, change)));
        }
    }
    all.map(Into::into)
}

fn string(report: &Report, node: &Node, text: &Arc<str>, variables: Variables<'_>) -> Arc<str> {
    if Program::body(text).is_some() {
        return Arc::clone(text);
    }
    let used = RefCell::new(Vec::new());
    let noting = |name: &str| {
        let value = (variables.lookup)(name);
        used.borrow_mut().extend(value.clone().map(|value| (name.to_owned(), value)));
        value
    };
    let substituted = substitute(text, Variables { lookup: &noting, ..variables });
    let values = used.into_inner();
    if !values.is_empty() || substituted.as_deref() != Ok(text) {
        report.replaced(ReplacedString { span: node.span, written: Arc::clone(text), values });
    }
    match substituted {
        Ok(resolved) if Program::body(&resolved).is_some() => {
            let message = format!("the variables in `{text}` make an expression of it");
            let help = "write the expression itself; a variable gives text";
            let diagnostic = Diagnostic::error("variable-makes-expression", node.span, message);
            report.unresolved(diagnostic.with_help(help));
            Arc::clone(text)
        }
        Ok(resolved) => resolved.into(),
        Err(problem) => {
            let Problem { code, message, help, offset } = problem;
            let diagnostic = Diagnostic::error(code, node.span, message);
            report.unresolved(diagnostic.with_offset(offset).with_help(help));
            Arc::clone(text)
        }
    }
}

/// A mistake in a reference to a variable.
#[derive(Debug, PartialEq)]
struct Problem {
    code: &'static str,
    message: String,
    help: String,
    /// Where it begins, in characters.
    offset: usize,
}

fn substitute(text: &str, variables: Variables<'_>) -> Result<String, Problem> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, found, after)) = next_special(rest) {
        out.push_str(before);
        rest = after;
        match found {
            Mark::Braces => {
                let (inside, after) = rest.split_once("}}").unwrap_or((rest, ""));
                out.push_str("{{");
                out.push_str(inside);
                if inside.len() < rest.len() {
                    out.push_str("}}");
                }
                rest = after;
            }
            Mark::Escape => out.push_str("${"),
            Mark::Reference => {
                let start = text.len().saturating_sub(rest.len() + 2);
                let (value, after) = reference(rest, variables).map_err(|problem| {
                    let offset = text.get(..start).map_or(0, |before| before.chars().count());
                    Problem { offset, ..problem }
                })?;
                out.push_str(&value);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// A mark with a special meaning.
#[derive(Clone, Copy, Debug)]
enum Mark {
    /// `{{`: the text up to its `}}` stays untouched.
    Braces,
    /// `$${`.
    Escape,
    /// `${`.
    Reference,
}

/// The first special mark, and the text before and after it.
fn next_special(text: &str) -> Option<(&str, Mark, &str)> {
    let marks = [("$${", Mark::Escape), ("${", Mark::Reference), ("{{", Mark::Braces)];
    text.match_indices(['$', '{']).find_map(|(at, _)| {
        let (before, rest) = text.split_at_checked(at)?;
        let special = |(mark, special)| Some((before, special, rest.strip_prefix(mark)?));
        marks.into_iter().find_map(special)
    })
}

/// The value of the reference at the start of `text` (after its `${`), and the text behind it.
fn reference<'a>(text: &'a str, variables: Variables<'_>) -> Result<(String, &'a str), Problem> {
    let problem = |code, message, help: String| Problem { code, message, help, offset: 0 };
    let Some((inside, after)) = text.split_once('}') else {
        let message = "`${` without its `}`".to_owned();
        let help = "write `${NAME}`, or `$${` for the text `${`".to_owned();
        return Err(problem("bad-variable", message, help));
    };
    if inside.starts_with(PARAMETER) {
        if variables.parameters {
            return Ok((format!("${{{inside}}}"), after));
        }
        let message = format!("`{inside}` is a stack's parameter, and this is not in a stack");
        let help = "write the value, or a variable as `${NAME}`".to_owned();
        return Err(problem("bad-variable", message, help));
    }
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = name.chars().next().is_some_and(|c| !c.is_ascii_digit());
    if !starts || !name.chars().all(letter) {
        let message = format!("`{name}` is not the name of a variable");
        let help =
            "write `${NAME}` or `${NAME:-default}`; NAME has letters, digits and `_`".to_owned();
        return Err(problem("bad-variable", message, help));
    }
    let value = (variables.lookup)(name).or_else(|| default.map(str::to_owned));
    let Some(value) = value else {
        let message = format!("the environment variable `{name}` is not set");
        let help = format!("set it, or give a default: `${{{name}:-default}}`");
        return Err(problem("unset-variable", message, help));
    };
    Ok((value, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIABLES: Variables<'static> = Variables { lookup: &lookup, parameters: false };

    fn lookup(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("billing".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_resolved_outside_expressions() {
        for (text, wanted) in [
            ("http://${HOST}:80", "http://billing:80"),
            ("${HOST}${HOST}", "billingbilling"),
            ("${NONE:-a:-b}", "a:-b"),
            ("${NONE:-}", ""),
            ("${EMPTY:-x}", ""),
            ("$${HOST} ${HOST}", "${HOST} billing"),
            ("$HOST $", "$HOST $"),
            ("a {{ '${HOST}' }} ${HOST}", "a {{ '${HOST}' }} billing"),
            ("a {{ ${HOST}", "a {{ ${HOST}"),
            ("é${HOST}é", "ébillingé"),
        ] {
            assert_eq!(substitute(text, VARIABLES).as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn a_stack_s_parameters_stay() {
        let variables = Variables { parameters: true, ..VARIABLES };
        let text = "${HOST}-${with.size}";
        assert_eq!(substitute(text, variables).as_deref(), Ok("billing-${with.size}"));
    }

    #[test]
    fn what_is_no_reference_says_so() {
        for (text, offset, message) in [
            ("é${NONE}", 1, "the environment variable `NONE` is not set"),
            ("${HOST", 0, "`${` without its `}`"),
            ("a${}", 1, "`` is not the name of a variable"),
            ("${1A}", 0, "`1A` is not the name of a variable"),
            ("${A-B}", 0, "`A-B` is not the name of a variable"),
            ("${with.a}", 0, "`with.a` is a stack's parameter, and this is not in a stack"),
        ] {
            let problem = substitute(text, VARIABLES).unwrap_err();
            assert_eq!((problem.offset, problem.message.as_str()), (offset, message));
        }
    }
}
