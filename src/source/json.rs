//! Reads JSON into a tree.
//!
//! Two libraries share the work. `serde_json` decides whether the text is JSON (RFC 8259, with surrogate
//! pairs) and unescapes strings. The scanner of `jsonc-parser` is laxer; it says where each token of the
//! accepted text is. Neither makes a tree of its own.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use jsonc_parser::Scanner;
use jsonc_parser::ScannerOptions;
use jsonc_parser::tokens::Token;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::interner::Interner;
use super::{Diagnostic, Diagnostics, Kind, MAX_DEPTH, Member, Node, SourceId, Span};

pub(super) fn read(source: SourceId, text: &str) -> Result<Node, Diagnostics> {
    let bom = text.len() - text.strip_prefix('\u{feff}').unwrap_or(text).len();
    let body = text.get(bom..).unwrap_or_default();
    let mut reader = Reader {
        source,
        shift: bom,
        text: body,
        tokens: Scanner::new(body, &strict()),
        strings: Interner::default(),
        found: Diagnostics::default(),
    };
    if body.trim().is_empty() {
        let message = "the file is empty; a JSON value was wanted";
        return Err(Diagnostic::error("empty-document", reader.span(0, 0), message).into());
    }
    if let Err(error) = serde_json::from_str::<Any>(body) {
        return Err(reader.refuse(&error).into());
    }
    let Some(node) = reader.next().and_then(|token| reader.node(token, 1)) else {
        let message = "the text could not be read as JSON";
        return Err(Diagnostic::error("invalid-json", reader.span(0, 0), message).into());
    };
    if reader.found.is_empty() { Ok(node) } else { Err(reader.found.sorted()) }
}

fn strict() -> ScannerOptions {
    ScannerOptions {
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// Any JSON value, read and not kept. Unlike `IgnoredAny`, it makes the parser check each string and number.
struct Any;

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Any {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while let Some(Self) = items.next_element()? {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        while let Some((Self, Self)) = members.next_entry()? {}
        Ok(self)
    }
}

struct Reader<'a> {
    source: SourceId,
    /// The number of bytes before `text`: those of a byte order mark.
    shift: usize,
    text: &'a str,
    tokens: Scanner<'a>,
    strings: Interner,
    found: Diagnostics,
}

impl<'a> Reader<'a> {
    fn span(&self, start: usize, end: usize) -> Span {
        let at = |byte: usize| u32::try_from(byte + self.shift).unwrap_or(u32::MAX);
        Span { source: self.source, start: at(start), end: at(end) }
    }

    /// The place of the last token.
    fn here(&self) -> Span {
        self.span(self.tokens.token_start(), self.tokens.token_end())
    }

    /// The last token, as it is written.
    fn written(&self) -> &'a str {
        self.text.get(self.tokens.token_start()..self.tokens.token_end()).unwrap_or_default()
    }

    fn next(&mut self) -> Option<Token<'a>> {
        self.tokens.scan().ok().flatten()
    }

    /// The value that begins with `token`. `None` only if the scanner refuses what `serde_json` accepted.
    fn node(&mut self, token: Token<'a>, depth: usize) -> Option<Node> {
        let start = self.here();
        let kind = match token {
            Token::Null => Kind::Null,
            Token::Boolean(bool) => Kind::Bool(bool),
            Token::Number(_) => self.number(),
            Token::String(lax) => Kind::String(self.string(&lax)),
            Token::OpenBracket | Token::OpenBrace if depth > MAX_DEPTH => {
                self.found.push(too_deep(start));
                self.skip()?;
                Kind::Null
            }
            Token::OpenBracket => Kind::Array(self.items(depth)?),
            Token::OpenBrace => Kind::Object(self.members(depth)?),
            _ => return None,
        };
        Some(Node { span: Span { end: self.here().end, ..start }, kind })
    }

    fn items(&mut self, depth: usize) -> Option<Arc<[Node]>> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Token::CloseBracket => return Some(items.into()),
                Token::Comma => {}
                token => items.push(self.node(token, depth + 1)?),
            }
        }
    }

    fn members(&mut self, depth: usize) -> Option<Arc<[Member]>> {
        let mut members = Vec::new();
        let mut seen = Seen::new();
        loop {
            let lax = match self.next()? {
                Token::CloseBrace => return Some(members.into()),
                Token::Comma => continue,
                Token::String(lax) => lax,
                _ => return None,
            };
            let (key, key_span) = (self.string(&lax), self.here());
            let Token::Colon = self.next()? else { return None };
            let token = self.next()?;
            let value = self.node(token, depth + 1)?;
            if let Some(first) = seen.get_mut(&key) {
                if let Some(first) = first.take() {
                    self.found.push(duplicate(&key, key_span, first));
                }
                continue;
            }
            seen.insert(Arc::clone(&key), Some(key_span));
            members.push(Member { key, key_span, value });
        }
    }

    /// Skips the rest of a collection.
    fn skip(&mut self) -> Option<()> {
        let mut open = 1_usize;
        while open > 0 {
            match self.next()? {
                Token::OpenBracket | Token::OpenBrace => open += 1,
                Token::CloseBracket | Token::CloseBrace => open -= 1,
                _ => {}
            }
        }
        Some(())
    }

    fn number(&mut self) -> Kind {
        let text = self.written();
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        Kind::Number(number.unwrap_or_else(|| {
            self.found.push(out_of_range(self.here(), text));
            0.0
        }))
    }

    /// The text of the last token, a string. `lax` is what the scanner makes of it.
    fn string(&mut self, lax: &str) -> Arc<str> {
        let written = self.written();
        // If the length is the same without the quotes, there is no escape in it.
        if written.len() == lax.len() + 2 {
            return self.strings.intern(lax);
        }
        match serde_json::from_str::<String>(written) {
            Ok(text) => self.strings.intern(&text),
            Err(_) => self.strings.intern(lax),
        }
    }

    /// The error of `serde_json` as a diagnostic.
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

/// The keys of an object so far, and where each was first written; `None` once a second one was reported,
/// for one report is enough.
pub(super) type Seen = HashMap<Arc<str>, Option<Span>>;

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
