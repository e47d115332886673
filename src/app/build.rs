//! From where a configuration comes to what is ready to be served: read, compiled, described.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::admin::routes::{Described, Heads};
use crate::config::{self, Loaded, Origin, Read, Refused, Written};
use crate::language::provider::Catalog;
use crate::proxy::Runtime;
use crate::proxy::settings::{Admin, Observed, Settings};
use crate::source::{Diagnostics, Sources, Span};
use crate::telemetry::metrics::Metrics;

/// Where the configuration comes from.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file, read anew at each reload.
    File(PathBuf),
    /// A text of the program's own, with the variables that it names.
    Text {
        /// What diagnostics call it.
        name: PathBuf,
        /// The text.
        text: String,
        /// Variables and their values.
        variables: Vec<(&'static str, String)>,
    },
}

/// A configuration that is ready to be served.
#[derive(Debug)]
pub struct Built {
    /// What serves.
    pub runtime: Arc<Runtime>,
    /// What is told of requests.
    pub observed: Observed,
    /// How many threads serve.
    pub workers: usize,
    /// What may not be meant as it is written.
    pub warnings: Diagnostics,
    /// Where it is written.
    pub sources: Sources,
    /// All files that were read.
    pub files: Vec<Read>,
    /// What `/config` and `/routes` show.
    pub shown: Shown,
}

/// What operators are shown of a configuration.
#[derive(Debug)]
pub struct Shown {
    /// Its short hash.
    pub hash: Arc<str>,
    /// As written.
    pub config: Written,
    /// The routes in order, in plain words.
    pub routes: Described,
    /// Who is shown it, and how many executions.
    pub admin: Option<Admin>,
}

impl Shown {
    /// How many executions of each kind are kept: none where nobody can ask for them.
    pub fn executions(&self) -> usize {
        self.admin.as_ref().map_or(0, |admin| admin.executions)
    }
}

impl Input {
    /// Reads it.
    ///
    /// # Errors
    /// As [`config::load`].
    pub fn load(&self) -> Result<Loaded, Box<Refused>> {
        self.read().map_err(complete)
    }

    fn read(&self) -> Result<Loaded, Box<Refused>> {
        match self {
            Self::File(path) => config::load(path, Origin::system()),
            Self::Text { name, text, variables } => {
                let variable = |wanted: &str| {
                    let mut known = variables.iter();
                    known.find(|(name, _)| *name == wanted).map(|(_, value)| value.clone())
                };
                let origin = Origin { variable: &variable, ..Origin::system() };
                config::parse(name, text, origin)
            }
        }
    }

    /// Of the files that were read, those to watch: a text of the program's own does not change.
    pub fn watched(&self, files: Vec<Read>) -> Vec<Read> {
        match self {
            Self::File(_) => files,
            Self::Text { .. } => Vec::new(),
        }
    }

    /// The file, where it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text { .. } => None,
        }
    }
}

/// Compiles a configuration that was read.
///
/// # Errors
/// Everything that its definitions get wrong, beside the warnings of the reading.
pub fn build(
    loaded: Loaded,
    catalog: &Catalog,
    metrics: &Arc<Metrics>,
) -> Result<Built, Box<Refused>> {
    build_with(loaded, |settings| Runtime::build(settings, catalog, metrics))
}

/// The same, where something else than what serves is made of the settings.
pub(crate) fn build_with(
    loaded: Loaded,
    compile: impl FnOnce(Settings) -> Result<(Runtime, Diagnostics), Diagnostics>,
) -> Result<Built, Box<Refused>> {
    let Loaded { settings, sources, warnings, files, written } = loaded;
    let (hash, admin) = (Arc::clone(&settings.hash), settings.admin.clone());
    let heads = Heads::of(&settings);
    let (observed, workers) = (settings.observed.clone(), settings.limits.workers);
    let mut found = warnings;
    match compile(settings) {
        Ok((runtime, more)) => {
            found.append(more);
            let found = config::distinct(found);
            let routes = heads.described(runtime.plans());
            let shown = Shown { hash, config: written, routes, admin };
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
            Err(Box::new(Refused {
                diagnostics: config::distinct(found),
                readable: None,
                sources,
                files,
            }))
        }
    }
}

/// A refused configuration with what its definitions get wrong beside it: one run reports every mistake.
///
/// What is said of a place that the reading has spoken of already would be an echo, and is left out.
pub fn complete(mut refused: Box<Refused>) -> Box<Refused> {
    let Some(settings) = refused.readable.take() else {
        return refused;
    };
    let built = Runtime::build(*settings, &Catalog::spec_defined(), &Metrics::new());
    let Diagnostics(more) = built.map_or_else(|errors| errors, |(_, warnings)| warnings);
    let told: Vec<Span> = refused.diagnostics.0.iter().map(|said| said.span).collect();
    let fresh = more.into_iter().filter(|found| !told.contains(&found.span));
    refused.diagnostics.0.extend(fresh);
    refused.diagnostics = config::distinct(std::mem::take(&mut refused.diagnostics));
    refused
}

/// What a configuration says, without serving it: for `check`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(loaded: Loaded) -> Result<Built, Box<Refused>> {
    build(loaded, &Catalog::spec_defined(), &Metrics::new())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
