//! `explain`: shows what a policy would do with a request, without sending it.
//!
//! The request takes its whole way through the proxy in a [`rehearsal`]. This module reads the arguments,
//! points at each mistake in them, and writes what happened as text ([`text`]) or JSON ([`json`]): once, many times
//! ([`runs`]), or with two configurations beside each other ([`compare`]).
//!
//! [`rehearsal`]: crate::proxy::rehearsal

mod argument;
mod ask;
mod compare;
mod json;
mod mix;
mod request;
mod response;
mod runs;
mod script;
mod text;

#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};

use self::argument::{ArgumentError, duration};
pub(super) use self::ask::ask;
use self::response::Labelled;
use self::runs::Tally;
use super::arguments::{ADMIN, Explain, Format, LISTEN};
use super::dev::{self, Faults};
use super::output::{complain, refuse, say};
use super::run;
use crate::admin::routes::RouteDescriptions;
use crate::app::{Built, Input, build_with};
use crate::config::Loaded;
use crate::proxy::rehearsal::{ClientRequest, Rehearsal, Transcript};
use crate::proxy::stage::{Script, Stage};
use crate::proxy::{Runtime, UpstreamRegistry};
use crate::source::{Diagnostic, Diagnostics, Sources};
use crate::telemetry::metrics::Metrics;

/// The address that stands for the quick-start's built-in upstream.
const FLAKY: &str = "flaky:80";

/// How many requests a mix is drawn for, unless `--runs` says it.
const RUNS: u32 = 10_000;

/// Collects the mistakes in the arguments. Each points into its argument.
struct Mistakes<'a> {
    sources: &'a mut Sources,
    found: Diagnostics,
}

/// What the user asks to explain.
#[derive(Debug)]
struct Scenario {
    asked: ClientRequest,
    responses: Vec<Labelled>,
    /// How likely each response is, if each call draws one.
    weights: Option<Vec<f64>>,
    /// How many requests are sent, if it is not just one.
    runs: Option<u32>,
    seed: u64,
}

/// A configuration, ready for rehearsals.
#[derive(Debug)]
struct Policy {
    name: String,
    rehearsal: Rehearsal,
    asked: ClientRequest,
    described: RouteDescriptions,
    warnings: usize,
    /// The texts that it was made of.
    sources: Sources,
}

/// What came of a configuration's requests.
#[derive(Debug)]
enum Told {
    Once(Transcript),
    Often(Tally),
}

/// Everything that the output shows of one configuration.
#[derive(Debug)]
struct Explanation<'a, T> {
    asked: &'a ClientRequest,
    responses: &'a [Labelled],
    /// The routes in plain words.
    described: &'a RouteDescriptions,
    told: &'a T,
}

/// A field as `--header` takes it: `name: value`.
pub(super) fn field(written: &str) -> Result<(HeaderName, HeaderValue), String> {
    request::field(written).map_err(|mistake| mistake.message)
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
        read: impl Fn(&str) -> Result<T, ArgumentError>,
    ) -> Vec<T> {
        let mut values = Vec::new();
        for (place, text) in written.iter().enumerate() {
            // With a number if there are several.
            let number = if written.len() > 1 { format!(" #{}", place + 1) } else { String::new() };
            values.extend(self.keep(read(text), &format!("{name}{number}"), text));
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

/// The number of the configurations' warnings, and the output.
fn explained(explain: &Explain, input: &Input) -> Result<(usize, String), String> {
    let mut sources = Sources::default();
    let scenario = read(explain, &mut sources);
    let mut scenario = scenario.map_err(|found| sources.render(&found))?;
    let mut loaded = vec![(name(explain), load(input)?)];
    if let Some(other) = &explain.against {
        loaded.push((other.display().to_string(), load(&Input::given(other))?));
    }
    let upstreams = loaded.iter().flat_map(|(_, loaded)| &loaded.settings.upstreams);
    let mut known: Vec<_> = upstreams.map(|upstream| Arc::clone(&upstream.name)).collect();
    known.dedup();
    let known: Vec<&str> = known.iter().map(|name| &**name).collect();
    let found = unknown(&scenario.responses, &known, &mut sources);
    if found.has_errors() {
        return Err(sources.render(&found));
    }
    if let Some(file) = &explain.script {
        scenario.responses = script::read(file, &known)?;
    }
    let policies = loaded
        .into_iter()
        .map(|(name, loaded)| Policy::of(name, loaded, &scenario, Stage::new(scenario.script())));
    let policies = policies.collect::<Result<Vec<_>, _>>()?;
    let told: Vec<Told> = policies.iter().map(|policy| policy.play(&scenario)).collect();
    let warnings = policies.iter().map(|policy| policy.warnings).sum();
    Ok((warnings, render(explain, &scenario, &policies, &told)))
}

fn load(input: &Input) -> Result<Loaded, String> {
    input.load().map_err(|refused| refused.to_string())
}

/// What the first configuration is called beside another one.
fn name(explain: &Explain) -> String {
    match (&explain.config, &explain.upstream) {
        (Some(file), _) => file.display().to_string(),
        (None, Some(_)) => "--upstream".to_owned(),
        (None, None) => "quick-start".to_owned(),
    }
}

fn render(explain: &Explain, scenario: &Scenario, policies: &[Policy], told: &[Told]) -> String {
    let machine = explain.json || explain.format == Format::Json;
    if let ([first, second], [one, other]) = (policies, told) {
        let sides = [(first, one), (second, other)];
        return if machine {
            format!("{:#}", compare::json(&sides, scenario))
        } else {
            compare::text(&sides, scenario)
        };
    }
    let all = policies.iter().zip(told);
    let all = all.map(|(policy, told)| {
        if machine {
            format!("{:#}", policy.json(scenario, told))
        } else {
            policy.text(scenario, told)
        }
    });
    all.collect()
}

impl Scenario {
    fn script(&self) -> Script {
        let planned = self.responses.iter().map(|labelled| labelled.response.planned.clone());
        if let Some(weights) = &self.weights {
            return Script::mixed(planned.zip(weights.iter().copied()).collect(), self.seed);
        }
        let times = self.responses.iter().map(|labelled| labelled.response.times);
        Script::in_order(planned.zip(times).collect(), self.seed)
    }
}

impl Policy {
    fn of(
        name: String,
        loaded: Loaded,
        scenario: &Scenario,
        stage: Arc<Stage>,
    ) -> Result<Self, String> {
        let mut asked = scenario.asked.clone();
        if let Some(listener) = loaded.settings.listeners.first() {
            let host = HeaderValue::try_from(listener.address.to_string());
            let host = host.map_err(|error| error.to_string())?;
            asked.headers.entry(header::HOST).or_insert(host);
        }
        let built = build_with(loaded, |settings| {
            let catalog = crate::proxy::catalog(Some(scenario.seed));
            let known = UpstreamRegistry::default();
            Runtime::build_on(settings, &catalog, &Metrics::new(), &known, Some(Arc::clone(&stage)))
        });
        let Built { runtime, warnings, shown, sources, .. } =
            built.map_err(|refused| refused.to_string())?;
        let rehearsal = Rehearsal::new(runtime, stage);
        let rehearsal =
            rehearsal.map_err(|error| format!("the system gives no runtime: {error}"))?;
        let (described, warnings) = (shown.routes, warnings.0.len());
        Ok(Self { name, rehearsal, asked, described, warnings, sources })
    }

    fn play(&self, scenario: &Scenario) -> Told {
        match scenario.runs {
            None => Told::Once(self.rehearsal.play(&self.asked, scenario.seed)),
            Some(runs) => Told::Often(Tally::of(self, runs, scenario.seed)),
        }
    }

    fn explanation<'a, T>(&'a self, scenario: &'a Scenario, told: &'a T) -> Explanation<'a, T> {
        let Self { asked, described, .. } = self;
        Explanation { asked, responses: &scenario.responses, described, told }
    }

    fn text(&self, scenario: &Scenario, told: &Told) -> String {
        match told {
            Told::Once(told) => text::render(&self.explanation(scenario, told)),
            Told::Often(told) => runs::text(&self.explanation(scenario, told)),
        }
    }

    fn json(&self, scenario: &Scenario, told: &Told) -> serde_json::Value {
        match told {
            Told::Once(told) => json::render(&self.explanation(scenario, told)),
            Told::Often(told) => runs::json(&self.explanation(scenario, told)),
        }
    }
}

fn input(explain: &Explain) -> Result<Input, String> {
    match (&explain.config, &explain.upstream) {
        (Some(file), _) => Ok(Input::given(file)),
        (None, Some(upstream)) => {
            let listen = LISTEN.parse().map_err(|_| format!("{LISTEN} is no address"))?;
            Ok(dev::before(upstream, listen, None, &Faults::default()))
        }
        (None, None) => Ok(run::quickstart_before(FLAKY, LISTEN.to_owned(), ADMIN.to_owned())),
    }
}

/// Reads the arguments and reports every mistake in them at once.
fn read(explain: &Explain, sources: &mut Sources) -> Result<Scenario, Diagnostics> {
    let mut mistakes = Mistakes { sources, found: Diagnostics::default() };
    let asked = mistakes.keep(request::line(&explain.request), "--request", &explain.request);
    let fields = mistakes.each("--header", &explain.headers, request::field);
    let body = mistakes.optional("--body", explain.body.as_deref(), request::body);
    let responses = mistakes.each("--respond", &explain.responses, response::read);
    let mix = mistakes.optional("--mix", explain.mix.as_deref(), mix::read);
    let patience = explain.client_timeout.as_deref();
    let patience = mistakes.optional("--client-timeout", patience, duration);
    let certificate = explain.client_certificate.as_deref();
    let certificate = mistakes.optional("--client-certificate", certificate, request::certificate);
    let Some(mut asked) = asked.filter(|_| !mistakes.found.has_errors()) else {
        return Err(mistakes.found);
    };
    for (name, value) in fields {
        asked.headers.append(name, value);
    }
    asked.body = body.unwrap_or_default();
    asked.patience = patience;
    asked.certificate = certificate;
    let given = responses.into_iter().zip(&explain.responses).zip(1..);
    let given = given.map(|((response, written), number)| Labelled {
        at: format!("--respond #{number}"),
        written: written.clone(),
        response,
    });
    let (responses, weights) = match mix {
        Some(mix) => mix.into_iter().unzip(),
        None => (given.collect(), Vec::new()),
    };
    let mixed = explain.mix.is_some();
    Ok(Scenario {
        asked,
        responses,
        weights: mixed.then_some(weights),
        runs: explain.runs.or_else(|| mixed.then_some(RUNS)),
        seed: explain.seed,
    })
}

/// Reports responses for upstreams that do not exist.
fn unknown(responses: &[Labelled], known: &[&str], sources: &mut Sources) -> Diagnostics {
    let mut mistakes = Mistakes { sources, found: Diagnostics::default() };
    let alone = responses.len() == 1;
    for Labelled { at, written, response } in responses {
        let named = response.planned.upstream.as_deref();
        if let Some(name) = named.filter(|name| !known.contains(name)) {
            let all = known.join("`, `");
            let message = format!("there is no upstream `{name}`; there is `{all}`");
            let wrong = ArgumentError::at(response.upstream_at, message);
            let at = if alone { at.trim_end_matches(" #1") } else { at };
            mistakes.keep(Err::<(), _>(wrong), at, written);
        }
    }
    mistakes.found
}
