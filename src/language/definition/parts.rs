//! Checks a `with` part by part: each mistake is reported at its own place.
//!
//! Of a `with` that holds expressions, the whole cannot be checked before these have values. But a schema's `properties`,
//! `additionalProperties` and `items` apply to each part by itself. So a part without expressions is checked here against
//! its own schema; other keywords are left to run time. A literal `with` is checked as a whole first, and part by part if
//! that fails.

use serde_json::Value as Json;

use super::template::is_expression;
use super::with::Declared;
use super::{Compiler, literal, part};
use crate::language::schema::Schema;
use crate::language::temporal::{meant_duration, months};
use crate::source::{Diagnostic, Kind, Member, Node, did_you_mean};

impl Compiler<'_> {
    /// Checks the literal parts of `with` against `schema`, except its `structural` members. The names at its top level are
    /// checked by `check_members`.
    pub(super) fn check_parts(
        &mut self,
        with: &Node,
        schema: Option<&Json>,
        structural: &[String],
    ) {
        let (Some(members), Some(schema)) = (with.as_object(), schema) else {
            return;
        };
        let is_structural = |member: &&Member| structural.iter().any(|name| **name == *member.key);
        for member in members.iter().filter(|member| !is_structural(member)) {
            self.check_member(member, schema, schema);
        }
    }

    /// Warns of durations in months, by which minutes are meant more often.
    pub(super) fn advise_months(&mut self, node: &Node, schema: Option<&Json>) {
        if let Some(schema) = schema.filter(|_| holds_months(node)) {
            self.months_within(node, schema, schema);
        }
    }

    fn months_within(&mut self, node: &Node, schema: &Json, root: &Json) {
        let Some(schema) = resolved(schema, root) else {
            return;
        };
        match &node.kind {
            Kind::Object(members) => {
                for member in members.iter() {
                    let declared = schema.get("properties").and_then(|all| all.get(&*member.key));
                    if let Some(schema) = declared {
                        self.months_within(&member.value, schema, root);
                    }
                }
            }
            Kind::Array(items) => {
                let each = schema.get("items");
                let each = items.iter().filter_map(|item| Some((item, each?)));
                each.for_each(|(item, schema)| self.months_within(item, schema, root));
            }
            _ if schema.get("format").and_then(Json::as_str) == Some("duration") => {
                self.advise_month(node);
            }
            _ => {}
        }
    }

    /// Warns of the duration `node` if it is in months.
    pub(super) fn advise_month(&mut self, node: &Node) {
        let Some(number) = node.as_str().and_then(|text| months(text)) else {
            return;
        };
        let message = format!("`P{number}M` means months of 30 days: minutes stand after a `T`");
        let help = format!("for minutes write `PT{number}M`, for months a number of days");
        self.warn("month-duration", node.span, message, help);
    }

    fn check_member(&mut self, member: &Member, schema: &Json, root: &Json) {
        let declared = schema.get("properties").and_then(|all| all.get(&*member.key));
        let other = schema.get("additionalProperties");
        let is_schema = |other: &&Json| other.is_object();
        let other = other.filter(is_schema).filter(|_| schema.get("patternProperties").is_none());
        if let Some(schema) = declared.or(other) {
            self.check_part(&member.value, schema, root);
        }
    }

    fn check_part(&mut self, node: &Node, schema: &Json, root: &Json) {
        let Some(schema) = resolved(schema, root) else {
            return;
        };
        if holds_expression(node) {
            return self.check_within(node, schema, root);
        }
        let checked = Schema::validate_part(schema, root, &literal(node), self.cache.room());
        let Err(violation) = checked else {
            return;
        };
        let before = self.found.0.len();
        self.check_within(node, schema, root);
        if self.found.0.len() == before {
            let at = part(node, &violation.instance_path);
            let error = Diagnostic::error("invalid-with", at.span, &*violation.message);
            let help = if at.span == node.span { help(node, schema) } else { None };
            self.load_error(Diagnostic { help, ..error });
        }
    }

    /// Checks the members or items of `node`.
    fn check_within(&mut self, node: &Node, schema: &Json, root: &Json) {
        match &node.kind {
            Kind::Object(members) if of_objects(schema) => {
                self.check_names(members, node.span, &Declared::nested(schema));
                for member in members.iter() {
                    self.check_member(member, schema, root);
                }
            }
            Kind::Array(items) if schema.get("prefixItems").is_none() => {
                let each = schema.get("items");
                for item in items.iter().filter(|_| each.is_some()) {
                    self.check_part(item, each.unwrap_or(&Json::Null), root);
                }
            }
            _ => {}
        }
    }
}

/// Whether an object is what `schema` wants. If it wants something else, the object's names do not matter.
fn of_objects(schema: &Json) -> bool {
    schema.get("type").is_none_or(|ty| {
        ty == "object" || ty.as_array().is_some_and(|all| all.contains(&"object".into()))
    })
}

/// What to write in place of the literal `node`, which `schema` refuses.
fn help(node: &Node, schema: &Json) -> Option<String> {
    let keyword = |name| schema.get(name).and_then(Json::as_str);
    let text = match &node.kind {
        Kind::String(text) => text.as_ref().to_owned(),
        Kind::Number(_) => node.to_string(),
        Kind::Object(_) if keyword("type") == Some("array") => {
            return Some("write a list: `- ` before its first member".to_owned());
        }
        _ => return None,
    };
    if let Some(number) = node.as_number() {
        return within(number, schema).or_else(|| quoted(node, schema, &text));
    }
    if keyword("pattern") == Some("^/") {
        return Some(format!("write `/{text}`"));
    }
    quoted(node, schema, &text)
}

/// The bound that a number is beyond, and of a share in percent what was meant.
fn within(number: f64, schema: &Json) -> Option<String> {
    let bound = |name| schema.get(name).and_then(Json::as_f64);
    match (bound("minimum"), bound("maximum")) {
        (_, Some(1.0)) if (1.0..=100.0).contains(&number) => {
            Some(format!("a share is a number up to 1: write {}", number / 100.0))
        }
        (_, Some(most)) if number > most => Some(format!("write a number up to {most}")),
        (Some(least), _) if number < least => Some(format!("write a number from {least}")),
        _ => None,
    }
}

/// What was meant by a text in another form, or a number.
fn quoted(node: &Node, schema: &Json, text: &str) -> Option<String> {
    let keyword = |name| schema.get(name).and_then(Json::as_str);
    if keyword("format") == Some("duration") {
        let meant = meant_duration(text)?;
        return Some(format!("write `{meant}`"));
    }
    if let Some(words) = schema.get("enum").and_then(Json::as_array) {
        let words = words.iter().filter_map(Json::as_str);
        return did_you_mean(text, words.clone())
            .or_else(|| Some(format!("write {}", super::alternatives(words))));
    }
    let number = text.parse::<f64>().is_ok();
    match keyword("type")? {
        "integer" | "number" if node.as_str().is_some() && number => {
            Some(format!("write {text}, without quotes"))
        }
        "integer" if node.as_str().is_some() => Some("write a whole number".to_owned()),
        "string" if node.as_number().is_some() => Some(format!("write `\"{text}\"`, with quotes")),
        "array" => Some(format!("write a list: `[{node}]`")),
        _ => None,
    }
}

/// The target of a `$ref` within `root`, or the schema itself if it is not one.
fn resolved<'s>(schema: &'s Json, root: &'s Json) -> Option<&'s Json> {
    match schema.get("$ref") {
        None => Some(schema),
        Some(reference) => root.pointer(reference.as_str()?.strip_prefix('#')?),
    }
}

fn holds_months(node: &Node) -> bool {
    node.as_str().is_some_and(|text| months(text).is_some()) || node.children().any(holds_months)
}

fn holds_expression(node: &Node) -> bool {
    is_expression(node) || node.children().any(holds_expression)
}
