//! Turns a configuration file into [`Settings`], whose values are always valid.
//!
//! The file's tree, which keeps places, is read in three passes: variables are replaced, sections are
//! read by their tables, and each route is written as one MWL document. No mistake stops the reading. The
//! language's own checks follow when the routes are compiled. Everything outside is reached through an
//! [`Origin`], so a load is a function of texts and variables.
//!
//! To add a key, add its row to the table of its section and the line that reads it. Tests check that
//! every row is read and that `config/reference.yaml` shows it.

mod answers;
mod changes;
mod classify;
mod client_certificate;
mod covering;
mod document;
mod env;
mod literals;
mod load;
mod matching;
mod observed;
mod read;
mod report;
mod resolved;
mod retry_budget;
mod root;
mod route;
mod scalar;
pub mod schema;
mod shape;
mod shaping;
mod shown;
mod stack_parameters;
mod stacks;
mod standard;
mod store;
mod tls;
mod upstream;

#[cfg(test)]
mod refusals;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::changes::{Changes, Comparable};
pub use self::literals::without_literals;
pub use self::resolved::resolved;

use self::load::Load;
use crate::language::clock::Clock;
use crate::language::temporal::Timestamp;
use crate::proxy::settings::Settings;
use crate::proxy::tls::{Roots, system_roots};
use crate::source::{Diagnostic, Diagnostics, Format, MAX_BYTES, Node, Sources, Span};
use crate::system::file;

/// Everything outside of the program that a load reads.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    /// Reads a file's text.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// The value of an environment variable; `None` if it is not set.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The current time, for checking that certificates are valid.
    pub now: &'a dyn Fn() -> Timestamp,
    /// The certificate authorities that the system trusts, or why there are none.
    pub roots: &'a dyn Fn() -> Result<Roots, String>,
}

/// A configuration that was loaded.
#[derive(Debug)]
pub struct Loaded {
    /// Its settings.
    pub settings: Settings,
    /// The texts to which diagnostics point.
    pub sources: Sources,
    /// Warnings about what may not be meant as written.
    pub warnings: Diagnostics,
    /// Every file that was read, the configuration first.
    pub files: Vec<FileContents>,
    /// The file as written.
    pub written: WrittenConfig,
}

/// A configuration as written. No variable is replaced in it, so no secret of the environment shows. It
/// is kept as text: a tree would be ten times as large and is seldom needed.
#[derive(Clone)]
pub struct WrittenConfig {
    name: String,
    text: Arc<str>,
}

/// A configuration with at least one error.
#[derive(Debug)]
pub struct ConfigError {
    /// The texts to which diagnostics point.
    pub sources: Sources,
    /// Every error and warning.
    pub diagnostics: Diagnostics,
    /// The settings that could be read despite the mistakes. With them the definitions can be checked
    /// too, so that all mistakes are reported at once.
    pub readable: Option<Box<Settings>>,
    /// Every file that was read or looked for, the configuration first.
    pub files: Vec<FileContents>,
}

/// A file and its contents when it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct FileContents {
    /// The file.
    pub path: PathBuf,
    /// Its text; `None` if it could not be read.
    pub text: Option<Arc<str>>,
}

impl WrittenConfig {
    /// All of it.
    fn to_json(&self) -> serde_json::Value {
        self.read(Node::to_json)
    }

    /// What of it operators may see.
    pub fn shown(&self) -> serde_json::Value {
        self.read(shown::shown)
    }

    fn read(&self, show: impl FnOnce(&Node) -> serde_json::Value) -> serde_json::Value {
        let format = Format::of_name(&self.name);
        let parsed = Sources::default().parse_shared(&self.name, &self.text, format);
        // It was parsed before, so it parses again.
        parsed.map(|node| show(&node)).unwrap_or_default()
    }
}

/// Omits the text, which may contain secrets.
impl fmt::Debug for WrittenConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.text.len();
        f.debug_struct("Written").field("name", &self.name).field("size", &size).finish()
    }
}

/// Omits the text, which may be a private key.
impl fmt::Debug for FileContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.text.as_ref().map(|text| text.len());
        f.debug_struct("Read").field("path", &self.path).field("size", &size).finish()
    }
}

/// The rendered diagnostics.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sources.render(&self.diagnostics))
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    /// An error that concerns `name` and has no place in a text.
    pub fn without_place(name: &str, code: &'static str, message: &str) -> Self {
        let mut sources = Sources::default();
        // Parsing an empty text gives a source to point at. That it is empty is not the mistake reported.
        sources.parse(name, "", Format::Json).err();
        let diagnostics = Diagnostic::error(code, Span::default(), message).into();
        Self { sources, diagnostics, readable: None, files: Vec::new() }
    }
}

impl Origin<'static> {
    /// The process's own files and environment, and the system's time and authorities. A variable that is
    /// not Unicode counts as not set.
    pub const fn system() -> Self {
        Self {
            read: &|path| file::read_text(path, MAX_BYTES),
            variable: &|name| std::env::var(name).ok(),
            now: &|| Clock::system().now(),
            roots: &system_roots,
        }
    }
}

impl fmt::Debug for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").finish_non_exhaustive()
    }
}

/// Reads the configuration at `path`.
///
/// # Errors
/// Every mistake in the file, with its place. Mistakes in its routes' definitions are found when these
/// are compiled.
pub fn load(path: &Path, origin: Origin<'_>) -> Result<Loaded, Box<ConfigError>> {
    match (origin.read)(path) {
        Ok(text) => parse(path, text, origin),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// The refusal of a file that cannot be read.
pub fn unreadable(path: &Path, error: &io::Error) -> Box<ConfigError> {
    let name = path.display().to_string();
    let message = format!("{name} cannot be read: {error}");
    let files = vec![FileContents { path: path.to_owned(), text: None }];
    let refused = ConfigError::without_place(&name, "unreadable", &message);
    Box::new(ConfigError { files, ..refused })
}

/// Reads `text` as the configuration at `path`, which need not exist. The files of Flows are relative to
/// its folder.
///
/// # Errors
/// As [`load()`].
pub fn parse(
    path: &Path,
    text: impl Into<Arc<str>>,
    origin: Origin<'_>,
) -> Result<Loaded, Box<ConfigError>> {
    let text = text.into();
    let mut sources = Sources::default();
    let name = path.display().to_string();
    let parsed = sources.parse_shared(&name, &text, Format::of_name(&name));
    let files = vec![FileContents { path: path.to_owned(), text: Some(Arc::clone(&text)) }];
    let node = match parsed {
        Ok(node) => node,
        Err(diagnostics) => {
            return Err(Box::new(ConfigError { readable: None, sources, diagnostics, files }));
        }
    };
    let folder = path.parent().unwrap_or_else(|| Path::new("")).to_owned();
    let load = Load::new(origin, sources, files, folder);
    load.report.room.grow(node.span);
    let settings = load.settings(&node);
    load.finish(settings, WrittenConfig { name, text })
}

/// Each diagnostic once, in order of place. What several routes share is checked with each of them.
pub fn distinct(diagnostics: Diagnostics) -> Diagnostics {
    let mut seen = BTreeSet::new();
    let Diagnostics(all) = diagnostics.sorted();
    let fresh =
        all.into_iter().filter(|d| seen.insert((d.span, d.offset, d.code, d.message.clone())));
    Diagnostics(fresh.collect())
}
