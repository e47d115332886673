//! From where a configuration comes to what is ready to be served: read, compiled, described.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::admin;
use crate::config::{self, Loaded, Origin, Read, Refused};
use crate::language::provider::Catalog;
use crate::proxy::Runtime;
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
    /// The address for operators.
    pub admin: Option<SocketAddr>,
    /// How many threads serve.
    pub workers: usize,
    /// What may not be meant as it is written, rendered; empty where there is nothing.
    pub warnings: String,
    /// What was found, for machines: an array.
    pub found: Json,
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
    /// As written: no variable is resolved in it.
    pub config: Json,
    /// The routes in order, in plain words.
    pub routes: Json,
}

impl Input {
    /// Reads it.
    ///
    /// # Errors
    /// As [`config::load`].
    pub fn load(&self) -> Result<Loaded, Box<Refused>> {
        match self {
            Self::File(path) => config::load(path, Origin::system()),
            Self::Text {
                name,
                text,
                variables,
            } => {
                let variable = |wanted: &str| {
                    let mut known = variables.iter();
                    known
                        .find(|(name, _)| *name == wanted)
                        .map(|(_, value)| value.clone())
                };
                let origin = Origin {
                    variable: &variable,
                    ..Origin::system()
                };
                config::parse(name, text, origin)
            }
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
    let Loaded {
        settings,
        sources,
        warnings,
        files,
        written,
    } = loaded;
    let shown = Shown {
        hash: Arc::clone(&settings.hash),
        config: written,
        routes: admin::routes::describe(&settings),
    };
    let (admin, workers) = (settings.admin, settings.limits.workers);
    let mut found = warnings;
    match Runtime::build(settings, catalog, metrics) {
        Ok((runtime, more)) => {
            found.append(more);
            let found = config::distinct(found);
            Ok(Built {
                runtime: Arc::new(runtime),
                admin,
                workers,
                warnings: sources.render(&found),
                found: sources.to_json(&found),
                files,
                shown,
            })
        }
        Err(more) => {
            found.append(more);
            Err(Box::new(Refused {
                diagnostics: config::distinct(found),
                sources,
                files,
            }))
        }
    }
}

/// What a configuration says, without serving it: for `check`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(loaded: Loaded) -> Result<Built, Box<Refused>> {
    build(loaded, &Catalog::spec_defined(), &Metrics::new())
}
