//! Reads the policies of other systems and writes them as our configuration (`mwl-proxy import`).
//!
//! Each kind has a reader, which makes the neutral [`form`]; one [`mod@write`]r makes YAML of it, with a comment at each thing
//! that has no equal. A source's own choices are kept: who sends a POST again there sends it again here. At the end
//! [`crate::app::check`] reviews what was written, and each of its warnings becomes a comment, too.
//!
//! Input is bounded: its size by [`MAX_SOURCE`], its depth by each reader.

mod chevere;
mod codes;
mod envoy;
mod envoy_cluster;
mod features;
mod form;
mod gateway;
mod haproxy;
mod haproxy_lines;
mod headers;
mod istio;
mod istio_shape;
mod istio_traffic;
mod nginx;
mod nginx_next;
mod nginx_syntax;
mod nginx_upstream;
mod noetl;
mod noetl_rules;
mod noetl_when;
mod read;
mod retry_on;
mod review;
mod states;
mod tokens;
mod tower;
mod write;
mod yaml;

#[cfg(test)]
mod tests;

use std::fmt;

use clap::ValueEnum;

use self::form::{Form, MAX_ROUTES};
use self::read::Reading;
use self::write::Writer;
use crate::source::{Diagnostic, Diagnostics, Format, Node, Sources, Span};

/// How many bytes a source may have.
pub const MAX_SOURCE: usize = 1024 * 1024;

/// A system whose policies are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Istio: `VirtualService` and `DestinationRule`, a file with one or several documents
    Istio,
    /// Envoy: routes and clusters, in a bootstrap, a route configuration or a fragment
    Envoy,
    /// Envoy Gateway: `BackendTrafficPolicy`
    EnvoyGateway,
    /// NGINX: `upstream`, `proxy_pass` and `proxy_next_upstream`, in its own syntax
    Nginx,
    /// `HAProxy`: `backend` and `listen` with `retries` and `retry-on`, in its own syntax
    #[value(help = "HAProxy: backend and listen with retries and retry-on, in its own syntax")]
    Haproxy,
    /// AWS Step Functions: `Retry` and `Catch` of tasks, in the Amazon States Language
    StepFunctions,
    /// `NoETL`: tasks with their policy's rules, or with a legacy `retry:`
    #[value(help = "NoETL: tasks with their policy's rules, or with a legacy retry:")]
    Noetl,
    /// Chevere Workflow: jobs and their `withRetry`, PHP code
    Chevere,
    /// tower: the layers of each `ServiceBuilder`, Rust code
    Tower,
}

/// What was written.
#[derive(Debug)]
pub struct Imported {
    /// Our configuration, YAML with comments.
    pub text: String,
    /// What has no equal: line, column and words.
    pub lost: Vec<(usize, usize, String)>,
    /// How many upstreams and routes there are.
    pub counts: (usize, usize),
    /// The names of the warnings of `check`, each of which is a comment.
    pub warnings: Vec<String>,
    /// What `check` refuses: a mistake of the importer.
    pub errors: Vec<String>,
}

/// Why a source cannot be read, with the places.
#[derive(Debug)]
pub struct Refused {
    sources: Sources,
    found: Diagnostics,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sources.render(&self.found))
    }
}

impl std::error::Error for Refused {}

impl Kind {
    /// The system's name.
    pub const fn system(self) -> &'static str {
        match self {
            Self::Istio => "Istio",
            Self::Envoy => "Envoy",
            Self::EnvoyGateway => "Envoy Gateway",
            Self::Nginx => "NGINX",
            Self::Haproxy => "HAProxy",
            Self::StepFunctions => "Step Functions",
            Self::Noetl => "NoETL",
            Self::Chevere => "Chevere",
            Self::Tower => "tower",
        }
    }

    /// Parses and reads `text`.
    fn read(self, sources: &mut Sources, name: &str, text: &str) -> Result<Form, Diagnostics> {
        match self {
            Self::Istio => {
                let documents = sources.parse_documents(name, text)?;
                finish(sources, |reading| istio::read(reading, &documents))
            }
            Self::Envoy => {
                let root = tree(sources, name, text)?;
                finish(sources, |reading| envoy::read(reading, &root))
            }
            Self::EnvoyGateway => {
                let documents = sources.parse_documents(name, text)?;
                finish(sources, |reading| gateway::read(reading, &documents))
            }
            Self::Nginx => {
                let whole = sources.keep(name, text);
                finish(sources, |reading| nginx::read(reading, whole, text))
            }
            Self::Haproxy => {
                let whole = sources.keep(name, text);
                finish(sources, |reading| haproxy::read(reading, whole, text))
            }
            Self::StepFunctions => {
                let root = tree(sources, name, text)?;
                finish(sources, |reading| states::read(reading, &root))
            }
            Self::Noetl => {
                let root = tree(sources, name, text)?;
                finish(sources, |reading| noetl::read(reading, &root))
            }
            Self::Chevere => {
                let whole = sources.keep(name, text);
                finish(sources, |reading| chevere::read(reading, whole, text))
            }
            Self::Tower => {
                let whole = sources.keep(name, text);
                finish(sources, |reading| tower::read(reading, whole, text))
            }
        }
    }
}

/// Reads `text`, the file `name` of this `kind`, and writes our configuration.
///
/// # Errors
/// What makes the file unreadable, or another kind than this, with the places.
pub fn import(kind: Kind, name: &str, text: &str) -> Result<Imported, Box<Refused>> {
    let mut sources = Sources::default();
    let form = if text.len() > MAX_SOURCE {
        let span = sources.keep(name, "");
        let message = format!("the file has {} bytes; at most {MAX_SOURCE} are read", text.len());
        Err(Diagnostic::error("file-too-large", span, message).into())
    } else {
        kind.read(&mut sources, name, text)
    };
    let form = match form {
        Ok(form) => form,
        Err(found) => return Err(Box::new(Refused { sources, found })),
    };
    let head = vec![format!("From {}, by `mwl-proxy import`.", kind.system())];
    let mut writer = Writer::default();
    let written = writer.document(&form, head);
    let counts = (form.upstreams.len(), form.routes.len());
    let lost = writer.lost.into_iter().map(|(at, text)| (at.line, at.column, text));
    let mut lost: Vec<_> = lost.collect();
    lost.sort();
    let reviewed = review::review(&written, kind.system());
    let review::Reviewed { text, warnings, errors } = reviewed;
    Ok(Imported { text, lost, counts, warnings, errors })
}

/// What `read` makes, unless it finds mistakes.
fn finish(sources: &Sources, read: impl FnOnce(&Reading<'_>) -> Form) -> Result<Form, Diagnostics> {
    let reading = Reading::new(sources);
    let mut form = read(&reading);
    let mut found = reading.mistakes();
    if form.routes.is_empty() {
        form.notes.told("The source has no routes: say which requests are for which upstream.");
        form.routes = form.upstreams.iter().map(form::Upstream::route).collect();
    }
    if !found.has_errors() && form.routes.is_empty() {
        let message =
            "nothing of this can be written: there is neither a route nor an upstream in it";
        let lost = form
            .notes
            .0
            .iter()
            .filter(|note| note.lost)
            .map(|note| format!("line {}: {}", note.at.line, note.text));
        let help = lost.collect::<Vec<_>>().join("\n");
        let diagnostic = Diagnostic::error("nothing-to-import", Span::default(), message);
        found.push(if help.is_empty() { diagnostic } else { diagnostic.with_help(help) });
    }
    if !found.has_errors() && form.is_full() {
        let message = format!(
            "the file makes more than {MAX_ROUTES} routes or upstreams, the most that are written"
        );
        found.push(Diagnostic::error("too-many-routes", Span::default(), message));
    }
    if found.has_errors() { Err(found) } else { Ok(form) }
}

/// Parses `text` as one document: JSON by its name, else YAML.
fn tree(sources: &mut Sources, name: &str, text: &str) -> Result<Node, Diagnostics> {
    let json = name == "-" && text.trim_start().starts_with('{');
    sources.parse(name, text, if json { Format::Json } else { Format::of_name(name) })
}
