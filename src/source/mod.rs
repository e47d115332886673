//! Text with places: files → trees whose every value knows where it was written, and the diagnostics
//! that point there. Used by the language (definitions) and by the configuration; knows neither.
//!
//! Both formats end in one tree, [`Node`], so nothing behind this door knows which one was written.
//! Reading is strict, because a policy that is read differently from how its author meant it is worse
//! than one that is refused: a repeated key, text after the end, a second document, a tag, a merge key,
//! a key that is no string and a number that no double holds are errors with places. What comes from
//! outside is bounded here: size, depth and what aliases expand to.

mod json;
mod place;
mod render;
mod yaml;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

/// How many bytes a file may have.
pub const MAX_BYTES: usize = 16 * 1024 * 1024;

/// How deep arrays and objects may be nested.
pub const MAX_DEPTH: usize = 100;

/// Which file of a [`Sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u16);

/// A range of bytes in one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file.
    pub source: SourceId,
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

/// The files that were read, kept for showing places in them.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<File>,
}

#[derive(Debug)]
struct File {
    name: Arc<str>,
    text: Arc<str>,
    format: Format,
    /// The byte at which each line starts.
    lines: Vec<usize>,
}

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RFC 8259, strictly.
    Json,
    /// YAML 1.2 with the core schema, of which only what JSON can say is accepted.
    Yaml,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// The whole value: quotes and brackets included. What an alias stands for keeps the place at which
    /// it was written.
    pub span: Span,
    /// What it is.
    pub kind: Kind,
}

/// The JSON types.
#[derive(Clone, Debug)]
pub enum Kind {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number, always finite.
    Number(f64),
    /// A string, unescaped.
    String(Arc<str>),
    /// An array.
    Array(Vec<Node>),
    /// An object in the order of writing; no key occurs twice.
    Object(Vec<Member>),
}

/// A member of an object.
#[derive(Clone, Debug)]
pub struct Member {
    /// The key, unescaped.
    pub key: Arc<str>,
    /// Where the key stands.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The document is refused.
    Error,
    /// The document is accepted, and may not do what its author meant.
    Warning,
}

/// One thing to say about one place.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Stable kebab-case name, e.g. `duplicate-key`, `unknown-step`.
    pub code: &'static str,
    /// What was seen and what was wanted.
    pub message: String,
    /// Where.
    pub span: Span,
    /// Where inside the string that stands at `span`: characters from the start of its value. Resolved
    /// to a place in the file when shown, because only the file knows how the string was escaped.
    pub offset: Option<usize>,
    /// What to write instead.
    pub help: Option<String>,
    /// Other places that belong to it.
    pub related: Vec<(Span, String)>,
}

/// All that was found, in order of place.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostic {
    /// An error at `span`.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: message.into(),
            span,
            offset: None,
            help: None,
            related: Vec::new(),
        }
    }

    /// A warning at `span`.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(code, span, message)
        }
    }

    /// The same, saying what to write instead.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same, pointing also at `span`.
    #[must_use]
    pub fn with_related(mut self, span: Span, note: impl Into<String>) -> Self {
        self.related.push((span, note.into()));
        self
    }

    /// The same, pointing `offset` characters into the value of the string at its span.
    #[must_use]
    pub fn with_offset(mut self, offset: usize) -> Self {
        self.offset = Some(offset);
        self
    }
}

impl Diagnostics {
    /// Whether any is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds all of `other`.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// The same in order of place.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.0.sort_by_key(|d| (d.span, d.offset, d.severity));
        self
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl Format {
    /// The format that a file of this name has: JSON for `.json`, else YAML.
    pub fn of_name(name: &str) -> Self {
        let json = name
            .rsplit_once('.')
            .is_some_and(|(_, end)| end.eq_ignore_ascii_case("json"));
        if json { Self::Json } else { Self::Yaml }
    }
}

impl Sources {
    /// Parses `text` and keeps it under `name`.
    ///
    /// # Errors
    /// Everything that makes the text no document: syntax, a repeated key (with both places), text or
    /// documents after the end, an empty file, a number out of range, nesting beyond [`MAX_DEPTH`], and
    /// in YAML what JSON cannot say.
    pub fn parse(&mut self, name: &str, text: &str, format: Format) -> Result<Node, Diagnostics> {
        let source = SourceId(u16::try_from(self.files.len()).unwrap_or(u16::MAX));
        self.files.push(File::new(name, text, format));
        let whole = Span {
            source,
            ..Span::default()
        };
        if text.len() > MAX_BYTES {
            let message = format!(
                "the file has {} bytes; at most {MAX_BYTES} are read",
                text.len()
            );
            return Err(Diagnostic::error("file-too-large", whole, message).into());
        }
        if self.files.len() > usize::from(u16::MAX) {
            let message = "too many files: at most 65535 are read";
            return Err(Diagnostic::error("too-many-files", whole, message).into());
        }
        read(source, text, format)
    }

    /// The name under which `source` was parsed.
    pub fn name(&self, source: SourceId) -> &str {
        self.file(source).map_or("", |file| &file.name)
    }

    fn file(&self, source: SourceId) -> Option<&File> {
        self.files.get(usize::from(source.0))
    }
}

fn read(source: SourceId, text: &str, format: Format) -> Result<Node, Diagnostics> {
    match format {
        Format::Json => json::read(source, text),
        Format::Yaml => yaml::read(source, text),
    }
}

impl Node {
    /// The member `key` of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.member(key).map(|member| &member.value)
    }

    /// The member `key` of an object, with the place of its key.
    pub fn member(&self, key: &str) -> Option<&Member> {
        self.as_object()?
            .iter()
            .find(|member| member.key.as_ref() == key)
    }

    /// The members of an object.
    pub fn as_object(&self) -> Option<&[Member]> {
        match &self.kind {
            Kind::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        match &self.kind {
            Kind::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&Arc<str>> {
        match &self.kind {
            Kind::String(text) => Some(text),
            _ => None,
        }
    }

    /// The boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.kind {
            Kind::Bool(bool) => Some(bool),
            _ => None,
        }
    }

    /// The number.
    pub fn as_number(&self) -> Option<f64> {
        match self.kind {
            Kind::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// The name of the JSON type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "boolean",
            Kind::Number(_) => "number",
            Kind::String(_) => "string",
            Kind::Array(_) => "array",
            Kind::Object(_) => "object",
        }
    }

    /// The value without its places.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The JSON Pointer (RFC 6901) of the innermost value or key that covers `span`.
    fn pointer(&self, span: Span) -> String {
        let covers = |outer: Span| {
            outer.source == span.source && outer.start <= span.start && span.end <= outer.end
        };
        let mut pointer = String::new();
        let mut at = Some(self);
        while let Some(node) = at.take() {
            match &node.kind {
                Kind::Array(items) => {
                    let found = items.iter().enumerate().find(|(_, item)| covers(item.span));
                    if let Some((index, item)) = found {
                        pointer.push_str(&format!("/{index}"));
                        at = Some(item);
                    }
                }
                Kind::Object(members) => {
                    let found = members
                        .iter()
                        .find(|member| covers(member.key_span) || covers(member.value.span));
                    if let Some(member) = found {
                        let key = member.key.replace('~', "~0").replace('/', "~1");
                        pointer.push('/');
                        pointer.push_str(&key);
                        at = covers(member.value.span).then_some(&member.value);
                    }
                }
                _ => {}
            }
        }
        pointer
    }
}

/// As it was written but for white space: member order and every `comment` are kept ("The `comment`
/// field").
impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            Kind::Null => serializer.serialize_unit(),
            Kind::Bool(bool) => serializer.serialize_bool(*bool),
            Kind::Number(number) => match whole(*number) {
                Some(whole) => serializer.serialize_i64(whole),
                None => serializer.serialize_f64(*number),
            },
            Kind::String(text) => serializer.serialize_str(text),
            Kind::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(item)?;
                }
                seq.end()
            }
            Kind::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for member in members {
                    map.serialize_entry(member.key.as_ref(), &member.value)?;
                }
                map.end()
            }
        }
    }
}

/// The integer that `number` is, where doubles hold integers exactly.
fn whole(number: f64) -> Option<i64> {
    let exact = number.fract() == 0.0
        && number.abs() <= 9_007_199_254_740_992.0
        && !(number == 0.0 && number.is_sign_negative());
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked to be whole and within 2^53"
    )]
    exact.then_some(number as i64)
}

/// Compact JSON.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// Equal in value: places do not matter, members compare in order.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Null, Kind::Null) => true,
            (Kind::Bool(a), Kind::Bool(b)) => a == b,
            (Kind::Number(a), Kind::Number(b)) => a == b,
            (Kind::String(a), Kind::String(b)) => a == b,
            (Kind::Array(a), Kind::Array(b)) => a == b,
            (Kind::Object(a), Kind::Object(b)) => {
                a.len() == b.len()
                    && a.iter()
                        .zip(b)
                        .all(|(a, b)| a.key == b.key && a.value == b.value)
            }
            _ => false,
        }
    }
}
