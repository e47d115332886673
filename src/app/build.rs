//! Turns a configuration's source into something that can be served: read, compiled and described.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::admin::routes::{RouteDescriptions, RouteHeads};
use crate::config::{self, Comparable, ConfigError, FileContents, Loaded, Origin, WrittenConfig};
use crate::language::provider::Catalog;
use crate::proxy::settings::{Admin, Settings};
use crate::proxy::{self, Runtime, UpstreamRegistry};
use crate::source::{Diagnostics, MAX_BYTES, Sources, Span};
use crate::system::file;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::settings::TelemetrySettings;

/// Where a configuration comes from.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file, read again at each reload.
    File(PathBuf),
    /// A pipe, which was read once: at a reload there is nothing new.
    Pipe {
        /// What diagnostics call it.
        name: PathBuf,
        /// What was in it.
        text: Arc<str>,
    },
    /// A text inside the program, with the variables that it names.
    Text {
        /// What diagnostics call the text: in brackets, because it is no file.
        name: PathBuf,
        /// The text.
        text: String,
        /// The variables and their values.
        variables: Vec<(&'static str, String)>,
    },
}

/// A configuration that is ready to be served.
#[derive(Debug)]
pub struct Built {
    /// Serves requests.
    pub runtime: Arc<Runtime>,
    /// Which records of requests to write, and where.
    pub observed: TelemetrySettings,
    /// How many threads serve.
    pub workers: usize,
    /// Warnings about what may not be meant as written.
    pub warnings: Diagnostics,
    /// The texts to which the warnings point.
    pub sources: Sources,
    /// Every file that was read.
    pub files: Vec<FileContents>,
    /// What `/config` and `/routes` show.
    pub shown: AdminView,
}

/// The parts of a configuration that operators can see.
#[derive(Debug)]
pub struct AdminView {
    /// The short hash of the configuration.
    pub hash: Arc<str>,
    /// The configuration as written.
    pub config: WrittenConfig,
    /// The routes in order, in plain words.
    pub routes: RouteDescriptions,
    /// The admin settings: who may see it, and how many executions are kept.
    pub admin: Option<Admin>,
    /// The files that it was made of.
    pub files: Vec<FileContents>,
}

impl AdminView {
    /// What a reload compares.
    pub fn comparable(&self) -> Comparable<'_> {
        Comparable { written: &self.config, files: &self.files }
    }

    /// How many executions of each kind are kept: none when there is no admin address.
    pub fn executions(&self) -> usize {
        self.admin.as_ref().map_or(0, |admin| admin.executions)
    }
}

/// The text of whatever a user names: a file, or a pipe, which can be read only once; `-` is standard input.
///
/// # Errors
/// As [`file::read_given_text`].
pub fn given_text(path: &Path) -> io::Result<String> {
    let stdin = path == Path::new("-");
    file::read_given_text(if stdin { Path::new("/dev/stdin") } else { path }, MAX_BYTES)
}

/// Where it comes from, for the log.
impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Pipe { .. } => f.write_str("a pipe"),
            Self::Text { name, .. } => write!(f, "built in {}", name.display()),
        }
    }
}

impl Input {
    /// What a user names as the configuration. What is no regular file is read at once.
    pub fn given(path: &Path) -> Self {
        let irregular = |kind: std::fs::Metadata| !kind.is_file() && !kind.is_dir();
        let piped = path == Path::new("-") || std::fs::metadata(path).is_ok_and(irregular);
        match piped.then(|| given_text(path)) {
            // Files of Flows are relative to the current folder.
            Some(Ok(text)) => Self::Pipe { name: PathBuf::from("(pipe)"), text: text.into() },
            // If it cannot be read, loading it says why.
            _ => Self::File(path.to_owned()),
        }
    }

    /// Reads the configuration.
    ///
    /// # Errors
    /// As [`config::load`].
    pub fn load(&self) -> Result<Loaded, Box<ConfigError>> {
        self.read().map_err(complete)
    }

    fn read(&self) -> Result<Loaded, Box<ConfigError>> {
        match self {
            Self::File(path) => config::load(path, Origin::system()),
            Self::Pipe { name, text } => config::parse(name, Arc::clone(text), Origin::system()),
            Self::Text { name, text, .. } => {
                let variable = |wanted: &str| self.variable(wanted);
                let origin = Origin { variable: &variable, ..Origin::system() };
                config::parse(name, text.as_str(), origin)
            }
        }
    }

    /// Reads what was read before, `files`, again: the configuration that is served, whatever has become of them since.
    ///
    /// # Errors
    /// As [`config::load`].
    pub fn again(&self, files: &[FileContents]) -> Result<Loaded, Box<ConfigError>> {
        let read = |path: &Path| {
            let known = files.iter().find(|file| file.path == path);
            let text = known.and_then(|file| file.text.as_deref()).map(str::to_owned);
            text.ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        let variable = |wanted: &str| self.variable(wanted);
        let origin = Origin { read: &read, variable: &variable, ..Origin::system() };
        config::load(
            files.first().map_or_else(|| Path::new(""), |file| file.path.as_path()),
            origin,
        )
    }

    /// The value of a variable.
    fn variable(&self, wanted: &str) -> Option<String> {
        let Self::Text { variables, .. } = self else {
            return (Origin::system().variable)(wanted);
        };
        let known = variables.iter().find(|(name, _)| *name == wanted);
        known.map(|(_, value)| value.clone())
    }

    /// The files to watch, out of those that were read. A text inside the program does not change.
    pub fn watched(&self, files: Vec<FileContents>) -> Vec<FileContents> {
        match self {
            Self::File(_) => files,
            Self::Pipe { .. } | Self::Text { .. } => Vec::new(),
        }
    }

    /// The configuration file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Pipe { .. } | Self::Text { .. } => None,
        }
    }
}

/// Compiles a configuration that was read.
///
/// # Errors
/// Every mistake in its definitions, and the warnings from reading it.
pub fn build(
    loaded: Loaded,
    catalog: &Catalog,
    metrics: &Arc<Metrics>,
    known: &UpstreamRegistry,
) -> Result<Built, Box<ConfigError>> {
    build_with(loaded, |settings| Runtime::build(settings, catalog, metrics, known))
}

/// The same, but `compile` chooses how the runtime is made.
pub(crate) fn build_with(
    loaded: Loaded,
    compile: impl FnOnce(Settings) -> Result<(Runtime, Diagnostics), Diagnostics>,
) -> Result<Built, Box<ConfigError>> {
    let Loaded { settings, sources, warnings, files, written } = loaded;
    let (hash, admin) = (Arc::clone(&settings.hash), settings.admin.clone());
    let heads = RouteHeads::of(&settings);
    let (observed, workers) = (settings.observed.clone(), settings.limits.workers);
    let mut found = warnings;
    match compile(settings) {
        Ok((runtime, more)) => {
            found.append(more);
            let found = config::distinct(found);
            let routes = heads.described(runtime.plans());
            let shown = AdminView { hash, config: written, routes, admin, files: files.clone() };
            Ok(Built {
                runtime: Arc::new(runtime),
                observed,
                workers,
                warnings: found,
                sources,
                files,
                shown,
            })
        }
        Err(more) => {
            found.append(more);
            Err(Box::new(ConfigError {
                diagnostics: config::distinct(found),
                readable: None,
                sources,
                files,
            }))
        }
    }
}

/// Adds the mistakes in the definitions to a refused configuration: one run reports every mistake.
///
/// A second mistake at a place that was already reported would be an echo, so it is left out.
pub fn complete(mut refused: Box<ConfigError>) -> Box<ConfigError> {
    let Some(settings) = refused.readable.take() else {
        return refused;
    };
    let (catalog, known) = (proxy::catalog(None), UpstreamRegistry::default());
    let built = Runtime::build(*settings, &catalog, &Metrics::new(), &known);
    let Diagnostics(more) = built.map_or_else(|errors| errors, |(_, warnings)| warnings);
    let told: Vec<Span> = refused.diagnostics.0.iter().map(|said| said.span).collect();
    let fresh = more.into_iter().filter(|found| !told.contains(&found.span));
    refused.diagnostics.0.extend(fresh);
    refused.diagnostics = config::distinct(std::mem::take(&mut refused.diagnostics));
    refused
}

/// Compiles a configuration without serving it, for `check`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(loaded: Loaded) -> Result<Built, Box<ConfigError>> {
    build(loaded, &proxy::catalog(None), &Metrics::new(), &UpstreamRegistry::default())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use serde_json::{Value as Json, json};

    use super::*;
    use crate::source::Format;

    #[test]
    fn mistakes_of_the_file_and_of_its_definitions_are_told_together() {
        let text = r#"
listeners: [{ address: "127.0.0.1:0" }]
upstreams: { billing: { endpoints: ["http://127.0.0.1:1"], conectTimeout: PT1S } }
routes:
  - name: charge
    upstream: biling
    catch: [{ match: { codes: ["*"] }, next: nowhere }]
"#;
        let name = PathBuf::from("both.yaml");
        let input = Input::Text { name, text: text.to_owned(), variables: Vec::new() };
        let refused = input.load().unwrap_err();
        let codes: Vec<_> = refused.diagnostics.0.iter().map(|found| found.code).collect();
        assert_eq!(codes, ["unknown-key", "unknown-upstream", "unknown-step"]);
    }

    #[test]
    fn a_pipe_is_read_once_and_loaded_as_often_as_one_likes() {
        let (reader, mut writer) = io::pipe().unwrap();
        let text = b"listeners: [{ address: 127.0.0.1:0 }]\n\
            upstreams: { app: { endpoints: [http://a] } }\n\
            routes: [{ name: r, upstream: app }]\n";
        writer.write_all(text).unwrap();
        drop(writer);
        let input = Input::given(Path::new(&format!("/dev/fd/{}", reader.as_raw_fd())));
        let hashes = [(); 2].map(|()| input.load().unwrap().settings.hash);
        assert_eq!(hashes[0], hashes[1]);
        assert_eq!((input.file(), input.watched(Vec::new()).len()), (None, 0));
        // What is served can be read again from what is kept of it.
        let files = input.load().unwrap().files;
        assert_eq!(input.again(&files).unwrap().settings.hash, hashes[0]);
        // A file is read anew each time.
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/minimal.yaml");
        assert_eq!(Input::given(&file).file(), Some(file.as_path()));
    }

    /// The places of all texts in `value`.
    fn texts(value: &Json, at: String, found: &mut Vec<String>) {
        match value {
            Json::String(_) => found.push(at),
            Json::Array(items) => {
                let items = items.iter().enumerate();
                items.for_each(|(place, item)| texts(item, format!("{at}/{place}"), found));
            }
            Json::Object(members) => members.iter().for_each(|(key, member)| {
                let key = key.replace('~', "~0").replace('/', "~1");
                texts(member, format!("{at}/{key}"), found);
            }),
            _ => {}
        }
    }

    /// Each text of the reference becomes a variable, in turn. Whatever is wrong with its value, nobody is told it.
    #[test]
    fn nothing_that_is_told_shows_the_value_of_a_variable() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/reference.yaml");
        let text = std::fs::read_to_string(&path).unwrap();
        let read = Sources::default().parse("r.yaml", &text, Format::Yaml).unwrap().to_json();
        let mut places = Vec::new();
        texts(&read, String::new(), &mut places);
        assert!(places.len() > 50, "{}", places.len());
        let mut told = 0;
        for value in ["s3cr3t-v4lue", "Very 5ecret/\u{e9}?", "9988776655"] {
            for place in &places {
                let mut config = read.clone();
                *config.pointer_mut(place).unwrap() = json!("${SECRET}");
                let input = Input::Text {
                    name: path.with_extension("json"),
                    text: config.to_string(),
                    variables: vec![("SECRET", value.to_owned())],
                };
                let said = match input.load().and_then(check) {
                    Ok(built) => built.sources.render(&built.warnings),
                    Err(refused) => {
                        told += 1;
                        let json = refused.sources.to_json(&refused.diagnostics);
                        // The file is one long line: what is told of a place is what matters.
                        format!("{refused}{json}")
                    }
                };
                let part = value.get(..6).unwrap();
                assert!(!said.contains(part), "{place}: {said}");
            }
        }
        assert!(told > 50, "{told}");
    }
}
