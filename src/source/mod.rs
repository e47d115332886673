//! Text with places: files → trees whose every value knows where it was written, and the diagnostics
//! that point there. Used by the language (definitions) and by the configuration; knows neither.

use std::sync::Arc;

/// Which file of a [`Sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u16);

/// A range of bytes in one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    pub source: SourceId,
    pub start: u32,
    pub end: u32,
}

/// The files that were read.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<(Arc<str>, Arc<str>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    pub span: Span,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Null,
    Bool(bool),
    Number(f64),
    String(Arc<str>),
    Array(Vec<Node>),
    Object(Vec<Member>),
}

#[derive(Clone, Debug)]
pub struct Member {
    pub key: Arc<str>,
    pub key_span: Span,
    pub value: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
}

/// One thing to say about one place.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Stable kebab-case name, e.g. `duplicate-key`, `unknown-step`.
    pub code: &'static str,
    /// What was seen and what was wanted.
    pub message: String,
    pub span: Span,
    /// What to write instead.
    pub help: Option<String>,
    /// Other places that belong to it.
    pub related: Vec<(Span, String)>,
}

/// All that was found, in order of place.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>);
impl Diagnostics {
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }
}

impl Sources {
    /// Parses `text`; strict: duplicate keys, trailing text, YAML 1.1 surprises, bombs are errors with places.
    pub fn parse(&mut self, name: &str, text: &str, format: Format) -> Result<Node, Diagnostics> {
        unimplemented!()
    }
    /// Line and column (1-based, in characters) of a span's start.
    pub fn position(&self, span: Span) -> (usize, usize) {
        unimplemented!()
    }
    pub fn name(&self, source: SourceId) -> &str {
        unimplemented!()
    }
    /// For people: `error[code]: message`, `--> file:line:col`, the source line with a caret, help.
    pub fn render(&self, diagnostics: &Diagnostics) -> String {
        unimplemented!()
    }
    /// For machines.
    pub fn to_json(&self, diagnostics: &Diagnostics) -> serde_json::Value {
        unimplemented!()
    }
}
