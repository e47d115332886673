//! A load in progress: reads the sections of a file, and the files that it names.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::document::Documents;
use super::read::Object;
use super::report::Report;
use super::root::{self, ROOT};
use super::route::Routes;
use super::stacks::{self, Part, Stacks};
use super::{
    ConfigError, FileContents, Loaded, Origin, WrittenConfig, distinct, env, observed, shaping,
    standard, store, tls, upstream,
};
use crate::proxy::settings::Settings;
use crate::source::{Diagnostic, Format, Node, Sources};

/// A load in progress.
pub(super) struct Load<'a> {
    pub(super) origin: Origin<'a>,
    pub(super) report: Report,
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
    pub(super) fn new(
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
    pub(super) fn settings(&self, written: &Node) -> Option<Settings> {
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
    pub(super) fn flow_file(&self, file: &Path, named: &Node) -> Option<Node> {
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

    pub(super) fn finish(
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
