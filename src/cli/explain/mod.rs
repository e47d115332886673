//! `explain`: shows what a policy would do with a request, without sending it.
//!
//! The request takes its whole way through the proxy in a [`rehearsal`]. This module reads the arguments,
//! points at each mistake in them, and writes what happened as text ([`text`]) or JSON ([`json`]).
//!
//! [`rehearsal`]: crate::proxy::rehearsal

mod json;
mod request;
mod response;
mod text;

#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;

use http::header::{self, HeaderValue};

use self::response::Response;
use super::arguments::{ADMIN, Explain, Format, LISTEN};
use super::output::{complain, refuse, say};
use super::run;
use crate::admin::routes::RouteDescriptions;
use crate::app::{Built, Input, build_with};
use crate::language::temporal::Span;
use crate::proxy::rehearsal::{ClientRequest, Transcript, rehearse};
use crate::proxy::stage::Stage;
use crate::proxy::{Runtime, UpstreamRegistry};
use crate::source::{Diagnostic, Diagnostics, Sources};
use crate::telemetry::metrics::Metrics;

/// The address that stands for the quick-start's built-in upstream.
const FLAKY: &str = "flaky:80";

/// A mistake in an argument: its byte offset, and what was found and expected.
#[derive(Debug)]
struct ArgumentError {
    offset: usize,
    message: String,
}

/// Collects the mistakes in the arguments. Each points into its argument.
struct Mistakes<'a> {
    sources: &'a mut Sources,
    found: Diagnostics,
}

/// What the user asks to explain.
#[derive(Debug)]
struct Scenario {
    asked: ClientRequest,
    responses: Vec<Response>,
}

/// Everything that the output shows.
#[derive(Debug)]
struct Explanation<'a> {
    asked: &'a ClientRequest,
    /// The responses as the user wrote them.
    responses: &'a [String],
    /// The routes in plain words.
    described: &'a RouteDescriptions,
    told: Transcript,
}

impl ArgumentError {
    fn at(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: message.into() }
    }
}

impl Mistakes<'_> {
    /// The value that was read; `None` after a mistake.
    fn keep<T>(&mut self, read: Result<T, ArgumentError>, name: &str, written: &str) -> Option<T> {
        let noted = |ArgumentError { offset, message }| {
            let before = written.get(..offset).unwrap_or(written).chars().count();
            let span = self.sources.keep(name, written);
            let mistake = Diagnostic::error("invalid-argument", span, message);
            self.found.push(mistake.with_offset(before));
        };
        read.map_err(noted).ok()
    }

    /// An option that may be absent.
    fn optional<T>(
        &mut self,
        name: &str,
        written: Option<&str>,
        read: fn(&str) -> Result<T, ArgumentError>,
    ) -> Option<T> {
        let written = written?;
        self.keep(read(written), name, written)
    }

    /// An option that may be given several times.
    fn each<T>(
        &mut self,
        name: &str,
        written: &[String],
        read: impl Fn(usize, &str) -> Result<T, ArgumentError>,
    ) -> Vec<T> {
        let mut values = Vec::new();
        for (place, text) in written.iter().enumerate() {
            // With a number if there are several.
            let number = if written.len() > 1 { format!(" #{}", place + 1) } else { String::new() };
            values.extend(self.keep(read(place, text), &format!("{name}{number}"), text));
        }
        values
    }
}

pub(super) fn explain(explain: &Explain) -> ExitCode {
    match input(explain).and_then(|input| explained(explain, &input)) {
        Ok((warnings, told)) => {
            if warnings > 0 {
                let plural = if warnings == 1 { "" } else { "s" };
                complain(&format!("{warnings} warning{plural}: `mwl-proxy check` shows them."));
            }
            say(&told);
            ExitCode::SUCCESS
        }
        Err(message) => refuse(&message),
    }
}

/// The number of the configuration's warnings, and the output.
fn explained(explain: &Explain, input: &Input) -> Result<(usize, String), String> {
    let mut sources = Sources::default();
    let wanted = read(explain, &mut sources);
    let Scenario { mut asked, responses } = wanted.map_err(|found| sources.render(&found))?;
    let loaded = input.load().map_err(|refused| refused.to_string())?;
    let known: Vec<&str> = loaded.settings.upstreams.iter().map(|u| u.name.as_ref()).collect();
    let found = unknown(&responses, &known, explain, &mut sources);
    if found.has_errors() {
        return Err(sources.render(&found));
    }
    if let Some(listener) = loaded.settings.listeners.first() {
        let host = HeaderValue::try_from(listener.address.to_string());
        let host = host.map_err(|error| error.to_string())?;
        asked.headers.entry(header::HOST).or_insert(host);
    }
    let stage = Stage::new(responses.into_iter().map(|response| response.planned).collect());
    let built = build_with(loaded, |settings| {
        let catalog = crate::proxy::catalog(Some(explain.seed));
        let known = UpstreamRegistry::default();
        Runtime::build_on(settings, &catalog, &Metrics::new(), &known, Some(Arc::clone(&stage)))
    });
    let Built { runtime, warnings, shown, .. } = built.map_err(|refused| refused.to_string())?;
    let told = rehearse(&runtime, &stage, &asked, explain.seed);
    let told = told.map_err(|error| format!("the system gives no runtime: {error}"))?;
    let explained = Explanation {
        asked: &asked,
        responses: &explain.responses,
        described: &shown.routes,
        told,
    };
    let said = match explain.format {
        Format::Text => text::render(&explained),
        Format::Json => format!("{:#}", json::render(&explained)),
    };
    Ok((warnings.0.len(), said))
}

fn input(explain: &Explain) -> Result<Input, String> {
    match (&explain.config, &explain.upstream) {
        (Some(file), _) => Ok(Input::given(file)),
        (None, Some(upstream)) => {
            let listen = LISTEN.parse().map_err(|_| format!("{LISTEN} is no address"))?;
            Ok(run::before(upstream, listen, None))
        }
        (None, None) => Ok(run::quickstart_before(FLAKY, LISTEN.to_owned(), ADMIN.to_owned())),
    }
}

/// Reads the arguments and reports every mistake in them at once.
fn read(explain: &Explain, sources: &mut Sources) -> Result<Scenario, Diagnostics> {
    let mut mistakes = Mistakes { sources, found: Diagnostics::default() };
    let asked = mistakes.keep(request::line(&explain.request), "--request", &explain.request);
    let fields = mistakes.each("--header", &explain.headers, |_, text| request::field(text));
    let body = mistakes.optional("--body", explain.body.as_deref(), request::body);
    let responses = mistakes.each("--respond", &explain.responses, |_, text| response::read(text));
    let patience = explain.client_timeout.as_deref();
    let patience = mistakes.optional("--client-timeout", patience, duration);
    let certificate = explain.client_certificate.as_deref();
    let certificate = mistakes.optional("--client-certificate", certificate, request::certificate);
    match asked {
        Some(mut asked) if !mistakes.found.has_errors() => {
            for (name, value) in fields {
                asked.headers.append(name, value);
            }
            asked.body = body.unwrap_or_default();
            asked.patience = patience;
            asked.certificate = certificate;
            Ok(Scenario { asked, responses })
        }
        _ => Err(mistakes.found),
    }
}

/// A duration greater than zero.
fn duration(text: &str) -> Result<std::time::Duration, ArgumentError> {
    let span = Span::parse(text).filter(|span| *span > Span::ZERO);
    let message = || format!("`{text}` is no duration above zero, such as PT5S or PT0.5S");
    span.map(Span::to_duration).ok_or_else(|| ArgumentError::at(0, message()))
}

/// Reports responses for upstreams that do not exist.
fn unknown(
    responses: &[Response],
    known: &[&str],
    explain: &Explain,
    sources: &mut Sources,
) -> Diagnostics {
    let mut mistakes = Mistakes { sources, found: Diagnostics::default() };
    mistakes.each("--respond", &explain.responses, |place, _| {
        let Some(response) = responses.get(place) else { return Ok(()) };
        let named = response.planned.upstream.as_deref();
        let Some(name) = named.filter(|name| !known.contains(name)) else {
            return Ok(());
        };
        let all = known.join("`, `");
        let message = format!("there is no upstream `{name}`; there is `{all}`");
        Err(ArgumentError::at(response.upstream_at, message))
    });
    mistakes.found
}
