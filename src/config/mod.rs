//! A configuration file → [`Settings`], values that cannot be wrong.
//!
//! Reading goes in three passes over one tree, each keeping places: variables are resolved, sections
//! are read by their tables, and each route is written out as one MWL document. Nothing stops at the
//! first mistake; the language's own checks come after, when the routes are compiled. The world is
//! reached only through an [`Origin`], so a load is a function of texts and variables.
//!
//! To add a key: its row in the table of its section, and the line that reads it. A test holds that no
//! row is left unread and that `config/reference.yaml` shows every one.

mod classify;
mod covering;
mod document;
mod env;
mod matching;
mod observed;
mod read;
mod root;
mod route;
mod scalar;
pub mod schema;
mod shape;
mod shaping;
mod stacks;
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

use self::document::Shared;
use self::read::{Object, Report};
use self::root::ROOT;
use self::route::Routes;
use self::stacks::Stacks;
use crate::language::clock::Clock;
use crate::language::temporal::Timestamp;
use crate::proxy::settings::Settings;
use crate::proxy::tls::{Roots, system_roots};
use crate::source::{Diagnostic, Diagnostics, Format, Kind, Node, Sources, Span};

/// Where a load takes what it reads from.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    /// The text of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// The value of an environment variable; `None` where it is unset.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The time, by which certificates must not have expired.
    pub now: &'a dyn Fn() -> Timestamp,
    /// The certificate authorities that the system trusts, or why there are none.
    pub roots: &'a dyn Fn() -> Result<Roots, String>,
}

/// A configuration that was read.
#[derive(Debug)]
pub struct Loaded {
    /// What it says.
    pub settings: Settings,
    /// The texts, for showing places in them.
    pub sources: Sources,
    /// What may not be meant as it is written.
    pub warnings: Diagnostics,
    /// All files that were read, the configuration first.
    pub files: Vec<Read>,
    /// The file as written.
    pub written: Written,
}

/// A configuration as written: no variable is resolved in it, so no secret of the environment shows. It is
/// the text, which is kept in any case; a tree of it would be ten times as large, and is seldom asked for.
#[derive(Clone)]
pub struct Written {
    name: String,
    text: Arc<str>,
}

/// A configuration that was not: at least one error.
#[derive(Debug)]
pub struct Refused {
    /// The texts, for showing places in them.
    pub sources: Sources,
    /// Everything that was found.
    pub diagnostics: Diagnostics,
    /// What could be read of it, mistakes and all, so that its definitions can be checked too and all is
    /// said at once.
    pub readable: Option<Box<Settings>>,
    /// All files that were read or asked for, the configuration first.
    pub files: Vec<Read>,
}

/// A file, and what it held when it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub path: PathBuf,
    /// Its text; `None` where it could not be read.
    pub text: Option<Arc<str>>,
}

impl Written {
    /// What it holds.
    pub fn to_json(&self) -> serde_json::Value {
        let format = Format::of_name(&self.name);
        let parsed = Sources::default().parse_shared(&self.name, &self.text, format);
        // It was a document when it was loaded.
        parsed.map(|node| node.to_json()).unwrap_or_default()
    }
}

/// Without its text, which may hold secrets.
impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.text.len();
        f.debug_struct("Written").field("name", &self.name).field("size", &size).finish()
    }
}

/// Without its text, which may be a private key.
impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.text.as_ref().map(|text| text.len());
        f.debug_struct("Read").field("path", &self.path).field("size", &size).finish()
    }
}

/// The rendered diagnostics.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sources.render(&self.diagnostics))
    }
}

impl std::error::Error for Refused {}

impl Origin<'static> {
    /// The process's own files and environment, the system's time and what it trusts. A variable that is not Unicode counts as unset.
    pub const fn system() -> Self {
        Self {
            read: &|path| std::fs::read_to_string(path),
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
/// Everything that the file gets wrong, each with its place; what its routes' definitions get wrong is
/// found when they are compiled.
pub fn load(path: &Path, origin: Origin<'_>) -> Result<Loaded, Box<Refused>> {
    match (origin.read)(path) {
        Ok(text) => parse_shared(path, &text.into(), origin),
        Err(error) => {
            let mut sources = Sources::default();
            // An empty text gives the place to speak of; that it is empty is not what is wrong.
            sources.parse(&path.display().to_string(), "", Format::Json).err();
            let message = format!("{} cannot be read: {error}", path.display());
            Err(Box::new(Refused {
                readable: None,
                diagnostics: Diagnostic::error("unreadable", Span::default(), message).into(),
                sources,
                files: vec![Read { path: path.to_owned(), text: None }],
            }))
        }
    }
}

/// Reads `text` as the configuration at `path`, which need not exist: flows that it names by file are
/// looked for beside it.
///
/// # Errors
/// As [`load`].
pub fn parse(path: &Path, text: &str, origin: Origin<'_>) -> Result<Loaded, Box<Refused>> {
    parse_shared(path, &text.into(), origin)
}

fn parse_shared(path: &Path, text: &Arc<str>, origin: Origin<'_>) -> Result<Loaded, Box<Refused>> {
    let mut sources = Sources::default();
    let name = path.display().to_string();
    let parsed = sources.parse_shared(&name, text, Format::of_name(&name));
    let files = vec![Read { path: path.to_owned(), text: Some(Arc::clone(text)) }];
    let node = match parsed {
        Ok(node) => node,
        Err(diagnostics) => {
            return Err(Box::new(Refused { readable: None, sources, diagnostics, files }));
        }
    };
    let load = Load {
        origin,
        report: Report::default(),
        sources: RefCell::new(sources),
        files: RefCell::new(files),
        flows: RefCell::default(),
        texts: RefCell::default(),
        folder: path.parent().unwrap_or_else(|| Path::new("")).to_owned(),
    };
    let settings = load.settings(&node);
    load.finish(settings, Written { name, text: Arc::clone(text) })
}

/// Each diagnostic once, in order of place: what several routes share is checked with each of them.
pub fn distinct(diagnostics: Diagnostics) -> Diagnostics {
    let mut seen = BTreeSet::new();
    let Diagnostics(all) = diagnostics.sorted();
    let fresh =
        all.into_iter().filter(|d| seen.insert((d.span, d.offset, d.code, d.message.clone())));
    Diagnostics(fresh.collect())
}

/// One load under way.
struct Load<'a> {
    origin: Origin<'a>,
    report: Report,
    sources: RefCell<Sources>,
    files: RefCell<Vec<Read>>,
    /// The Flows that were read from files, by path: one read serves every route that names it.
    flows: RefCell<BTreeMap<PathBuf, Option<Node>>>,
    /// The texts of the files of certificates and keys, by path, or why there are none.
    texts: RefCell<BTreeMap<PathBuf, Result<Arc<str>, String>>>,
    /// What files are relative to.
    folder: PathBuf,
}

impl Load<'_> {
    /// `None` where the file is not even an object; else what could be read, mistakes noted.
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
        let stacks = Stacks::read(report, root.map("stacks"));
        unused_stacks(report, &root);
        let mut middleware = root.get("middleware").cloned();
        if let Some(list) = &mut middleware {
            report.list("middleware", list);
            stacks.expand_list(report, list);
        }
        let text = |path: &Path| self.named_file(path);
        let tls = tls::Reader::new(report, &text, (self.origin.now)(), self.origin.roots);
        let upstreams = upstream::upstreams(report, &root, &tls);
        let names: BTreeSet<Arc<str>> =
            root.map("upstreams").iter().map(|member| Arc::clone(&member.key)).collect();
        let routes = Routes {
            shared: Shared {
                report,
                stacks: &stacks,
                middleware: middleware.as_ref().and_then(Node::as_array).unwrap_or_default(),
            },
            upstreams: &names,
            flow_file: &|file, node| self.flow_file(file, node),
        };
        Some(Settings {
            environment: root.text("environment").cloned().unwrap_or_default(),
            listeners: root::listeners(report, &root, &tls),
            admin: observed::admin(report, &root),
            observed: observed::observed(report, &root),
            upstreams,
            forwarded: shaping::forwarded(report, &root),
            routes: routes.read(&root),
            limits: root::limits(report, &root),
            shutdown: root::shutdown(report, &root),
            hash: self.hash(),
        })
    }

    /// A file of certificates or a key. Each is read once, so that whatever is made of it is made of the same.
    fn named_file(&self, file: &Path) -> tls::Named {
        let at = self.folder.join(file);
        let path = at.display().to_string();
        let mut texts = self.texts.borrow_mut();
        let text = texts.entry(at).or_insert_with_key(|path| {
            let read = (self.origin.read)(path).map(Arc::from);
            let text = read.as_ref().ok().cloned();
            self.files.borrow_mut().push(Read { path: path.clone(), text });
            read.map_err(|error| error.to_string())
        });
        tls::Named { path, text: text.clone() }
    }

    /// The Flow in the file that a route names.
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
        let read = (self.origin.read)(path).map(Arc::from);
        self.files
            .borrow_mut()
            .push(Read { path: path.to_owned(), text: read.as_ref().ok().cloned() });
        match read {
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

    /// A short hash of all that was read so far: FNV-1a, 64 bits. It tells two loads apart; it proves
    /// nothing. Variables are left out, so it says nothing about a secret.
    fn hash(&self) -> Arc<str> {
        let files = self.files.borrow();
        let texts = files.iter().filter_map(|read| read.text.as_ref());
        let bytes = texts.flat_map(|text| text.bytes().chain([0]));
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}").into()
    }

    fn finish(self, settings: Option<Settings>, written: Written) -> Result<Loaded, Box<Refused>> {
        let Self { origin: _, report, sources, files, flows: _, texts: _, folder: _ } = self;
        let (sources, files) = (sources.into_inner(), files.into_inner());
        let diagnostics = distinct(report.finish());
        match settings {
            Some(settings) if !diagnostics.has_errors() => {
                Ok(Loaded { settings, sources, warnings: diagnostics, files, written })
            }
            readable => Err(Box::new(Refused {
                sources,
                diagnostics,
                readable: readable.map(Box::new),
                files,
            })),
        }
    }
}

/// Warns of stacks that no list names.
fn unused_stacks(report: &Report, root: &Object<'_>) {
    let mut used = BTreeSet::new();
    stacks::used(root.node, &mut used);
    for member in root.map("stacks") {
        if !matches!(member.value.kind, Kind::Array(_)) {
            report.wrong_type(&member.key, &member.value, "a list of middleware entries");
        }
        if !used.contains(&*member.key) {
            let message = format!("no list names the stack `{}`", member.key);
            report.add(Diagnostic::warning("unused-stack", member.key_span, message));
        }
    }
}
