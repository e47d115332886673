//! Text with places: files → trees whose every value knows where it was written, and the diagnostics
//! that point there. Used by the language (definitions) and by the configuration; knows neither.
//!
//! Both formats end in one tree, [`Node`], so nothing behind this door knows which one was written.
//! Reading is strict, because a policy that is read differently from how its author meant it is worse
//! than one that is refused: a repeated key, text after the end, a second document, a tag, a merge key,
//! a key that is no string and a number that no double holds are errors with places. What comes from
//! outside is bounded here: size, depth and what aliases expand to.

mod diagnostic;
mod json;
mod node;
mod place;
mod render;
mod suggest;
mod texts;
mod yaml;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::suggest::{did_you_mean, nearest};

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
    /// `None`: the text is no document.
    format: Option<Format>,
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

/// A value and where it stands. A clone shares what the original holds: a configuration's routes are put
/// together from parts of its one tree.
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
    Array(Arc<[Node]>),
    /// An object in the order of writing; no key occurs twice.
    Object(Arc<[Member]>),
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

impl Format {
    /// The format that a file of this name has: JSON for `.json`, else YAML.
    pub fn of_name(name: &str) -> Self {
        let json = name.rsplit_once('.').is_some_and(|(_, end)| end.eq_ignore_ascii_case("json"));
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
        self.parse_shared(name, &text.into(), format)
    }

    /// The same, keeping no copy of `text`.
    ///
    /// # Errors
    /// As [`Sources::parse`].
    pub fn parse_shared(
        &mut self,
        name: &str,
        text: &Arc<str>,
        format: Format,
    ) -> Result<Node, Diagnostics> {
        let source = self.add(File::new(name, Arc::clone(text), Some(format)));
        let whole = Span { source, ..Span::default() };
        if text.len() > MAX_BYTES {
            let message =
                format!("the file has {} bytes; at most {MAX_BYTES} are read", text.len());
            return Err(Diagnostic::error("file-too-large", whole, message).into());
        }
        if self.files.len() > usize::from(u16::MAX) {
            let message = "too many files: at most 65535 are read";
            return Err(Diagnostic::error("too-many-files", whole, message).into());
        }
        read(source, text, format)
    }

    /// Keeps a `text` that is no document (an expression on a command line) under `name`, so that places
    /// in it can be shown. Gives the span of all of it; an offset there counts its characters.
    pub fn keep(&mut self, name: &str, text: &str) -> Span {
        Span {
            source: self.add(File::new(name, text.into(), None)),
            start: 0,
            end: u32::try_from(text.len()).unwrap_or(u32::MAX),
        }
    }

    fn add(&mut self, file: File) -> SourceId {
        let source = SourceId(u16::try_from(self.files.len()).unwrap_or(u16::MAX));
        self.files.push(file);
        source
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
