//! Reads files into trees in which each value knows where it was written, and renders the diagnostics that
//! point there. The language (definitions) and the configuration use this; it knows neither.
//!
//! Both formats become the same tree, [`Node`], so that no user of it knows which one was written. Reading is
//! strict, because to misunderstand a policy is worse than to refuse it. A repeated key, text after the end,
//! a second document, a tag, a merge key, a key that is not a string and a number that no double can hold are
//! errors with places. Input from outside is bounded here: its size, its depth and what aliases expand to.

mod conceal;
mod diagnostic;
mod interner;
mod json;
mod node;
mod place;
mod render;
mod suggest;
mod yaml;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

pub use self::conceal::ReplacedString;
pub use self::diagnostic::Causes;
pub use self::node::with_article;
pub use self::suggest::{did_you_mean, nearest};

/// How many bytes a file may have.
pub const MAX_BYTES: usize = 16 * 1024 * 1024;

/// How deep arrays and objects may nest.
pub const MAX_DEPTH: usize = 100;

/// How many documents a file of several may have.
pub const MAX_DOCUMENTS: usize = 1000;

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

impl Span {
    /// How many bytes there are from the first to the last.
    pub fn bytes(self) -> usize {
        usize::try_from(self.end.saturating_sub(self.start)).unwrap_or(usize::MAX)
    }
}

/// The files that were read. They are kept so that places in them can be shown.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<File>,
    /// What is never told.
    replaced: conceal::Replaced,
}

#[derive(Debug)]
struct File {
    name: Arc<str>,
    text: Arc<str>,
    /// `None` if the text is not a document.
    format: Option<Format>,
    /// The byte at which each line starts.
    lines: Vec<usize>,
    /// The number of characters before each place where they were counted, so that a long line is not counted again for
    /// each message about it.
    chars: Vec<usize>,
}

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RFC 8259, strictly.
    Json,
    /// YAML 1.2 with the core schema. Only what JSON can express is accepted.
    Yaml,
}

/// A value and its place. A clone shares its content with the original, because a configuration's routes are
/// built from parts of its one tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// The place of the whole value, including quotes and brackets. The value of an alias keeps the place of
    /// its anchor.
    pub span: Span,
    /// What it is.
    pub kind: Kind,
}

/// The JSON types.
#[derive(Clone, Debug, PartialEq)]
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
    /// An object, in the order in which it was written. No key occurs twice.
    Object(Arc<[Member]>),
}

/// A member of an object.
#[derive(Clone, Debug)]
pub struct Member {
    /// The key, unescaped.
    pub key: Arc<str>,
    /// The place of the key.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

/// How bad a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The document is refused.
    Error,
    /// The document is accepted, but may not do what its author meant.
    Warning,
}

/// A message about a place.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Stable kebab-case name, e.g. `duplicate-key`, `unknown-step`.
    pub code: &'static str,
    /// What was seen and what was wanted.
    pub message: String,
    /// The place.
    pub span: Span,
    /// The place inside the string at `span`: characters from the start of its value. It is turned into a
    /// place in the file when it is shown, because only the file knows how the string was escaped.
    pub offset: Option<usize>,
    /// What to write instead.
    pub help: Option<String>,
    /// Other places that belong to it, each with a note.
    pub related: Vec<(Span, String)>,
}

/// Everything that was found.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Format {
    /// The format of a file of this name: JSON for `.json`, else YAML.
    pub fn of_name(name: &str) -> Self {
        let json = name.rsplit_once('.').is_some_and(|(_, end)| end.eq_ignore_ascii_case("json"));
        if json { Self::Json } else { Self::Yaml }
    }
}

impl Sources {
    /// Parses `text` and keeps it under `name`.
    ///
    /// # Errors
    /// Everything that makes the text invalid: a syntax error, a repeated key (with both places), text or
    /// documents after the end, an empty file, a number out of range, nesting beyond [`MAX_DEPTH`], and in
    /// YAML what JSON cannot express.
    pub fn parse(&mut self, name: &str, text: &str, format: Format) -> Result<Node, Diagnostics> {
        self.parse_shared(name, &text.into(), format)
    }

    /// The same, without copying `text`.
    ///
    /// # Errors
    /// Like [`Sources::parse`].
    pub fn parse_shared(
        &mut self,
        name: &str,
        text: &Arc<str>,
        format: Format,
    ) -> Result<Node, Diagnostics> {
        let source = self.add(File::new(name, Arc::clone(text), Some(format)));
        let whole = Span { source, ..Span::default() };
        if text.len() > MAX_BYTES {
            return Err(too_large(whole, text).into());
        }
        if self.files.len() > usize::from(u16::MAX) {
            let message = "too many files: at most 65535 are read";
            return Err(Diagnostic::error("too-many-files", whole, message).into());
        }
        read(source, text, format)
    }

    /// Parses `text`, YAML of several documents, and keeps it under `name`. Empty documents are left out.
    ///
    /// # Errors
    /// Like [`Sources::parse`], and beyond [`MAX_DOCUMENTS`].
    pub fn parse_documents(&mut self, name: &str, text: &str) -> Result<Vec<Node>, Diagnostics> {
        let source = self.add(File::new(name, text.into(), Some(Format::Yaml)));
        if text.len() > MAX_BYTES {
            let whole = Span { source, ..Span::default() };
            return Err(too_large(whole, text).into());
        }
        yaml::read_all(source, text, MAX_DOCUMENTS)
    }

    /// Keeps a `text` that is not a document (an expression on a command line) under `name`, so that places
    /// in it can be shown. Returns the span of all of it; an offset in it counts characters.
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

    /// Keeps the values of the variables in these strings out of everything that is rendered.
    pub fn conceal(&mut self, strings: Vec<ReplacedString>) {
        self.replaced.add(strings);
    }

    /// `text` without the values of variables that are concealed here.
    pub fn without_values<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.replaced.told(Span::default(), text)
    }

    /// The name under which `source` is kept.
    pub fn name(&self, source: SourceId) -> &str {
        self.file(source).map_or("", |file| &file.name)
    }

    fn file(&self, source: SourceId) -> Option<&File> {
        self.files.get(usize::from(source.0))
    }
}

fn too_large(whole: Span, text: &str) -> Diagnostic {
    let message = format!("the file has {} bytes; at most {MAX_BYTES} are read", text.len());
    Diagnostic::error("file-too-large", whole, message)
}

fn read(source: SourceId, text: &str, format: Format) -> Result<Node, Diagnostics> {
    match format {
        Format::Json => json::read(source, text),
        Format::Yaml => yaml::read(source, text),
    }
}
