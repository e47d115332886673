//! JSON → tree.
//!
//! Two kept parsers, each for what it is good at: `serde_json` decides whether the text is JSON (RFC
//! 8259, surrogate pairs and all) and unescapes strings; `jsonc-parser`, which is laxer, then says where
//! each value of the accepted text stands.

use std::collections::HashMap;

use jsonc_parser::ast::{ObjectPropName, Value};
use jsonc_parser::common::Range;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{Diagnostic, Diagnostics, Kind, MAX_DEPTH, Member, Node, SourceId, Span};

pub(super) fn read(source: SourceId, text: &str) -> Result<Node, Diagnostics> {
    let bom = text.len() - text.strip_prefix('\u{feff}').unwrap_or(text).len();
    let body = text.get(bom..).unwrap_or_default();
    let mut reader = Reader { source, shift: bom, text: body, found: Diagnostics::default() };
    if body.trim().is_empty() {
        let message = "the file is empty; a JSON value was wanted";
        return Err(Diagnostic::error("empty-document", reader.span(0, 0), message).into());
    }
    if let Err(error) = serde_json::from_str::<serde_json::Value>(body) {
        return Err(reader.refuse(&error).into());
    }
    let ast = parse_to_ast(body, &CollectOptions::default(), &strict())
        .ok()
        .and_then(|parsed| parsed.value);
    let Some(ast) = ast else {
        let message = "the text could not be read as JSON";
        return Err(Diagnostic::error("invalid-json", reader.span(0, 0), message).into());
    };
    let node = reader.node(&ast, 1);
    if reader.found.is_empty() { Ok(node) } else { Err(reader.found.sorted()) }
}

fn strict() -> ParseOptions {
    ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

struct Reader<'a> {
    source: SourceId,
    /// How many bytes stand before `text`: a byte order mark's.
    shift: usize,
    text: &'a str,
    found: Diagnostics,
}

impl Reader<'_> {
    fn span(&self, start: usize, end: usize) -> Span {
        let at = |byte: usize| u32::try_from(byte + self.shift).unwrap_or(u32::MAX);
        Span { source: self.source, start: at(start), end: at(end) }
    }

    fn range(&self, range: &Range) -> Span {
        self.span(range.start, range.end)
    }

    fn slice(&self, range: &Range) -> &str {
        self.text.get(range.start..range.end).unwrap_or_default()
    }

    fn node(&mut self, value: &Value<'_>, depth: usize) -> Node {
        let (range, kind) = match value {
            Value::NullKeyword(null) => (&null.range, Kind::Null),
            Value::BooleanLit(bool) => (&bool.range, Kind::Bool(bool.value)),
            Value::NumberLit(number) => (&number.range, self.number(&number.range)),
            Value::StringLit(string) => {
                let text = self.string(&string.range, &string.value);
                (&string.range, Kind::String(text.into()))
            }
            Value::Array(array) => {
                let deep = self.too_deep(&array.range, depth);
                let items = array.elements.iter().filter(|_| !deep);
                let items = items.map(|item| self.node(item, depth + 1)).collect();
                (&array.range, Kind::Array(items))
            }
            Value::Object(object) => {
                let deep = self.too_deep(&object.range, depth);
                let members = if deep { Vec::new() } else { self.members(object, depth) };
                (&object.range, Kind::Object(members))
            }
        };
        Node { span: self.range(range), kind }
    }

    fn members(&mut self, object: &jsonc_parser::ast::Object<'_>, depth: usize) -> Vec<Member> {
        let mut members: Vec<Member> = Vec::with_capacity(object.properties.len());
        let mut seen = HashMap::new();
        for property in &object.properties {
            let (range, lax) = match &property.name {
                ObjectPropName::String(name) => (&name.range, name.value.as_ref()),
                ObjectPropName::Word(name) => (&name.range, name.value),
            };
            let key = self.string(range, lax);
            let key_span = self.range(range);
            let value = self.node(&property.value, depth + 1);
            if let Some(first) = seen.get(&key) {
                self.found.push(duplicate(&key, key_span, *first));
                continue;
            }
            members.push(Member { key: key.as_str().into(), key_span, value });
            seen.insert(key, key_span);
        }
        members
    }

    fn number(&mut self, range: &Range) -> Kind {
        let text = self.slice(range).to_owned();
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        Kind::Number(number.unwrap_or_else(|| {
            self.found.push(out_of_range(self.range(range), &text));
            0.0
        }))
    }

    fn string(&self, range: &Range, lax: &str) -> String {
        serde_json::from_str(self.slice(range)).unwrap_or_else(|_| lax.to_owned())
    }

    /// Whether a collection lies beyond the bound, which is then reported.
    fn too_deep(&mut self, range: &Range, depth: usize) -> bool {
        if depth > MAX_DEPTH {
            let open = self.span(range.start, range.start + 1);
            self.found.push(too_deep(open));
        }
        depth > MAX_DEPTH
    }

    /// What `serde_json` has against the text, in place.
    fn refuse(&self, error: &serde_json::Error) -> Diagnostic {
        let before: usize = self
            .text
            .split_inclusive('\n')
            .take(error.line().saturating_sub(1))
            .map(str::len)
            .sum();
        let at = (before + error.column().saturating_sub(1)).min(self.text.len());
        let at = self.text.floor_char_boundary(at);
        let rest = self.text.get(at..).unwrap_or_default();
        let next = rest.chars().next();
        let span = self.span(at, at + next.map_or(0, char::len_utf8));
        let full = error.to_string();
        let message = full.split(" at line ").next().unwrap_or_default();
        if message.starts_with("recursion limit") {
            return too_deep(span);
        }
        if message.starts_with("number out of range") {
            let head = self.text.get(..at).unwrap_or_default();
            let digits = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
            let start = head.trim_end_matches(digits).len();
            let end = at + rest.len() - rest.trim_start_matches(digits).len();
            return out_of_range(
                self.span(start, end),
                self.text.get(start..end).unwrap_or_default(),
            );
        }
        if error.is_eof() {
            let end = self.text.trim_end().len();
            let message = format!("not JSON: the text ends too early ({message})");
            return Diagnostic::error("invalid-json", self.span(end, end), message)
                .with_help("close the bracket or the quote that is open");
        }
        let diagnostic = Diagnostic::error("invalid-json", span, format!("not JSON: {message}"));
        let help = match next {
            _ if message.starts_with("trailing comma") => "remove the comma before the bracket",
            _ if message.starts_with("trailing characters") => {
                "a file holds one value; remove what follows it"
            }
            Some('\'') => "JSON strings stand in double quotes",
            Some('/' | '#') => "JSON has no comments; write a `comment` member, or write YAML",
            _ => return diagnostic,
        };
        diagnostic.with_help(help)
    }
}

pub(super) fn duplicate(key: &str, span: Span, first: Span) -> Diagnostic {
    let message = format!("the key `{key}` is written twice in one object");
    Diagnostic::error("duplicate-key", span, message)
        .with_help("remove one of the two")
        .with_related(first, "first written here")
}

pub(super) fn too_deep(span: Span) -> Diagnostic {
    let message = format!("arrays and objects are nested deeper than {MAX_DEPTH} levels");
    Diagnostic::error("nesting-too-deep", span, message)
}

pub(super) fn out_of_range(span: Span, text: &str) -> Diagnostic {
    let message = format!("the number `{text}` is not one that a 64-bit double holds");
    Diagnostic::error("number-out-of-range", span, message)
        .with_help("write a number between -1.7e308 and 1.7e308, or a string")
}
