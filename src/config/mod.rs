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
mod matching;
mod observed;
mod read;
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

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::changes::{Changes, Comparable};
pub use self::literals::without_literals;
pub use self::resolved::resolved;

use self::document::Documents;
use self::read::{Object, Report};
use self::root::ROOT;
use self::route::Routes;
use self::stacks::{Part, Stacks};
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
/// As [`load`].
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

/// A load in progress.
struct Load<'a> {
    origin: Origin<'a>,
    report: Report,
    sources: RefCell<Sources>,
    files: RefCell<Vec<FileContents>>,
    /// The Flows that were read from files, by path: each file is read once for all routes that name it.
    flows: RefCell<BTreeMap<PathBuf, Option<Node>>>,
    /// The texts of certificate and key files, by path, or why they could not be read.
    texts: RefCell<BTreeMap<PathBuf, Result<Arc<str>, String>>>,
    /// The folder that file names are relative to.
    folder: PathBuf,
}

impl<'a> Load<'a> {
    fn new(
        origin: Origin<'a>,
        sources: Sources,
        files: Vec<FileContents>,
        folder: PathBuf,
    ) -> Self {
        Self {
            origin,
            report: Report::default(),
            sources: RefCell::new(sources),
            files: RefCell::new(files),
            flows: RefCell::default(),
            texts: RefCell::default(),
            folder,
        }
    }

    /// `None` if the file is not even an object; otherwise what could be read, with the mistakes reported.
    fn settings(&self, written: &Node) -> Option<Settings> {
        let report = &self.report;
        let node = env::resolve(report, written, self.origin.variable);
        if node.as_object().is_none() {
            let seen = node.type_name();
            let message = format!(
                "the file holds one value of type {seen}; wanted: an object with `listeners`, `upstreams` and `routes`"
            );
            report.error("wrong-type", node.span, message);
            return None;
        }
        let root = Object::open(report, "the configuration", &node, &ROOT)?;
        let known = standard::beside(report, root.map("stacks"), root.node.span);
        let stacks = Stacks::read(report, &known, root.node.span.bytes());
        stacks::unused(report, &root);
        let mut middleware = root.get("middleware").cloned();
        if let Some(list) = &mut middleware {
            report.list("middleware", list);
            stacks.expand(list, Part::List);
        }
        let text = |path: &Path| self.named_file(path);
        let tls = tls::TlsReader::new(report, &text, (self.origin.now)(), self.origin.roots);
        let limits = root::limits(&root);
        let upstreams = upstream::upstreams(report, &root, &tls, limits.heads());
        let names: BTreeSet<Arc<str>> =
            root.map("upstreams").iter().map(|member| Arc::clone(&member.key)).collect();
        let paths = root::paths(&root);
        let routes = Routes {
            paths,
            shared: Documents {
                report,
                stacks: &stacks,
                middleware: middleware.as_ref().and_then(Node::as_array).unwrap_or_default(),
                flows: RefCell::default(),
            },
            upstreams: &names,
            certificates: root::asks_for_certificates(&root),
            flow_file: &|file, node| self.flow_file(file, node),
        };
        Some(Settings {
            environment: root.text("environment").cloned().unwrap_or_default(),
            listeners: root::listeners(report, &root, &tls),
            admin: observed::admin(report, &root),
            observed: observed::observed(report, &root),
            upstreams,
            stores: store::stores(report, &root, &tls),
            forwarded: shaping::forwarded(report, &root),
            request_id: shaping::request_id(report, &root),
            paths,
            routes: routes.read(&root),
            limits,
            shutdown: root::shutdown(&root),
            hash: self.hash(),
        })
    }

    /// A certificate or key file. Each is read once, so that all uses see the same text.
    fn named_file(&self, file: &Path) -> tls::NamedFile {
        let at = self.folder.join(file);
        let path = at.display().to_string();
        let mut texts = self.texts.borrow_mut();
        let text = texts
            .entry(at)
            .or_insert_with_key(|path| self.read_file(path).map_err(|error| error.to_string()));
        tls::NamedFile { path, text: text.clone() }
    }

    /// The Flow in a file that a route names.
    fn flow_file(&self, file: &Path, named: &Node) -> Option<Node> {
        let path = self.folder.join(file);
        if let Some(known) = self.flows.borrow().get(&path) {
            return known.clone();
        }
        let flow = self.read_flow(&path, named);
        self.flows.borrow_mut().insert(path, flow.clone());
        flow
    }

    fn read_flow(&self, path: &Path, named: &Node) -> Option<Node> {
        let name = path.display().to_string();
        match self.read_file(path) {
            Ok(text) => {
                let mut sources = self.sources.borrow_mut();
                let parsed = sources.parse_shared(&name, &text, Format::of_name(&name));
                let noted = parsed.map_err(|diagnostics| self.report.append(diagnostics));
                noted.ok()
            }
            Err(error) => {
                let message = format!("the Flow {name} cannot be read: {error}");
                let diagnostic = Diagnostic::error("unreadable", named.span, message);
                let help = "a Flow's file is named relative to the configuration's folder";
                self.report.add(diagnostic.with_help(help));
                None
            }
        }
    }

    /// Reads a file, and notes that it was looked for.
    fn read_file(&self, path: &Path) -> io::Result<Arc<str>> {
        let read = (self.origin.read)(path).map(Arc::from);
        let text = read.as_ref().ok().cloned();
        self.files.borrow_mut().push(FileContents { path: path.to_owned(), text });
        read
    }

    /// A short hash of everything read so far (FNV-1a, 64 bits). It tells two loads apart and proves
    /// nothing. Variables are not replaced in it, so it reveals no secret.
    fn hash(&self) -> Arc<str> {
        let files = self.files.borrow();
        let texts = files.iter().filter_map(|read| read.text.as_ref());
        let bytes = texts.flat_map(|text| text.bytes().chain([0]));
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}").into()
    }

    fn finish(
        self,
        settings: Option<Settings>,
        written: WrittenConfig,
    ) -> Result<Loaded, Box<ConfigError>> {
        let Self { origin: _, report, sources, files, flows: _, texts: _, folder: _ } = self;
        let (mut sources, files) = (sources.into_inner(), files.into_inner());
        sources.conceal(report.take_replaced());
        let diagnostics = distinct(report.finish());
        match settings {
            Some(settings) if !diagnostics.has_errors() => {
                Ok(Loaded { settings, sources, warnings: diagnostics, files, written })
            }
            readable => Err(Box::new(ConfigError {
                sources,
                diagnostics,
                readable: readable.map(Box::new),
                files,
            })),
        }
    }
}
