//! `check`: reports every mistake in configurations and definitions, with its place.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::Value as Json;

use super::arguments::{Check, Report as Form};
use super::output::{complain, refuse, say};
use super::variables::Variables;
use crate::app;
use crate::config::{self, ConfigError, Origin};
use crate::language::definition::{SCHEMA_URI, Strictness, compile};
use crate::language::plan::Calls;
use crate::language::provider::Catalog;
use crate::proxy;
use crate::proxy::provider::http::HttpProvider;
use crate::proxy::settings::Paths;
use crate::source::{self, Diagnostics, Kind, Node, Severity, Sources};

/// The findings about one file.
struct Report {
    sources: Sources,
    found: Diagnostics,
    /// What a valid file may cost at most, one line each.
    costs: Vec<String>,
    /// The hash of a valid configuration, as `mwl_config_info` has it.
    hash: Option<String>,
}

pub(super) fn check(check: &Check) -> ExitCode {
    let variables = match check.env_file.as_deref().map(Variables::read).transpose() {
        Ok(variables) => variables.unwrap_or_default(),
        Err(problem) => return refuse(&problem),
    };
    let variable = |name: &str| variables.value(name);
    let origin = Origin { variable: &variable, ..Origin::system() };
    let mut failed = false;
    let mut all = Vec::new();
    for file in &check.files {
        let mut report = of_file(file, app::given_text(file), origin);
        if check.strict {
            report.found.0.iter_mut().for_each(|found| found.severity = Severity::Error);
        }
        failed |= report.found.has_errors();
        match check.format {
            Form::Text => {
                // A reader that has left is not our error.
                let mut out = BufWriter::new(io::stdout().lock());
                report.write(file, &mut out).and_then(|()| out.flush()).ok();
            }
            Form::Json => all.extend(report.to_json()),
            Form::Github => report.to_json().iter().for_each(|found| say(&annotation(found))),
        }
    }
    if check.format == Form::Json {
        say(&format!("{:#}", Json::Array(all)));
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A finding as a command of a GitHub workflow, which shows it beside the line.
fn annotation(found: &Json) -> String {
    let text = |name: &str| found.get(name).and_then(Json::as_str).unwrap_or_default();
    let number = |name: &str| found.get(name).and_then(Json::as_u64).unwrap_or(1);
    let help = match text("help") {
        "" => String::new(),
        help => format!("\nhelp: {help}"),
    };
    let property = |text: &str| escaped(text).replace(':', "%3A").replace(',', "%2C");
    format!(
        "::{} file={},line={},col={},title={}::{}",
        text("severity"),
        property(text("file")),
        number("line"),
        number("column"),
        property(text("code")),
        escaped(&format!("{}{help}", text("message")))
    )
}

/// `text` in the form that a workflow command has for it.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

impl Report {
    fn of(refused: ConfigError) -> Self {
        Self { sources: refused.sources, found: refused.diagnostics, costs: Vec::new(), hash: None }
    }

    fn count(&self, severity: Severity) -> usize {
        self.found.0.iter().filter(|found| found.severity == severity).count()
    }

    /// One object a diagnostic.
    fn to_json(&self) -> Vec<Json> {
        match self.sources.to_json(&self.found) {
            Json::Array(found) => found,
            _ => Vec::new(),
        }
    }

    /// Writes the diagnostics, a line that counts them, and the costs.
    fn write(&self, file: &Path, out: &mut dyn io::Write) -> io::Result<()> {
        let plural = |count, word: &str| match count {
            1 => format!("1 {word}"),
            count => format!("{count} {word}s"),
        };
        let counted = match (self.count(Severity::Error), self.count(Severity::Warning)) {
            (0, 0) => "ok".into(),
            (0, warnings) => format!("ok, {}", plural(warnings, "warning")),
            (errors, 0) => plural(errors, "error"),
            (errors, warnings) => {
                format!("{}, {}", plural(errors, "error"), plural(warnings, "warning"))
            }
        };
        self.sources.write(&self.found, out)?;
        writeln!(out, "{}: {counted}", file.display())?;
        let hash = self.hash.iter().map(|hash| format!("hash {hash}"));
        let lines = self.costs.iter().cloned().chain(hash);
        lines.into_iter().try_for_each(|line| writeln!(out, "  {line}"))
    }
}

/// The worst-case cost of one request, in words.
fn cost(what: &str, calls: Calls) -> String {
    match calls {
        Some(1) => format!("{what}: at most 1 call"),
        Some(calls) => format!("{what}: at most {calls} calls"),
        None => format!(
            "{what}: no limit on its calls (a Loop, a way back, or a fan-out or budget that is computed)"
        ),
    }
}

/// What is found in a text, one object a diagnostic.
pub(super) fn of_text(path: &Path, text: &str) -> Vec<Json> {
    of_file(path, Ok(text.to_owned()), Origin::system()).to_json()
}

/// Checks the `text` of a file as the kind of file that it is.
fn of_file(path: &Path, text: io::Result<String>, origin: Origin<'_>) -> Report {
    let name = path.display().to_string();
    let text: Arc<str> = match text {
        Ok(text) => text.into(),
        Err(error) => return Report::of(*config::unreadable(path, &error)),
    };
    let mut sources = Sources::default();
    let format = source::Format::of_name(&name);
    if let Ok(node) = sources.parse_shared(&name, &text, format)
        && is_definition(&node)
    {
        return definition(sources, &node);
    }
    let refused = match config::parse(path, text, origin) {
        Ok(loaded) => match app::check(loaded) {
            Ok(built) => {
                let costs = built.runtime.most_calls();
                let costs = costs.map(|(route, calls)| cost(&format!("route {route}"), calls));
                let costs = costs.collect();
                let hash = Some(built.runtime.hash().to_owned());
                return Report { sources: built.sources, found: built.warnings, costs, hash };
            }
            Err(refused) => refused,
        },
        Err(refused) => app::complete(refused),
    };
    Report::of(*refused)
}

/// A root Flow is known by its `$schema`, or by keys that only a Flow has.
fn is_definition(node: &Node) -> bool {
    let schema = node.get("$schema").and_then(Node::as_str);
    let flow = node.get("entrypoint").is_some() || node.get("steps").is_some();
    schema.is_some_and(|uri| &**uri == SCHEMA_URI) || flow && node.get("routes").is_none()
}

fn definition(sources: Sources, node: &Node) -> Report {
    let (found, costs) = match compile(node, &catalog(node), Strictness::Load) {
        Ok((plan, warnings)) => (warnings, vec![cost("one execution", plan.most_calls())]),
        Err(found) => (found, Vec::new()),
    };
    Report { sources, found: config::distinct(found), costs, hash: None }
}

/// The providers that a definition may name. Only a configuration knows which upstreams exist, so every
/// name that the definition uses is accepted.
fn catalog(node: &Node) -> Catalog {
    let mut names = HashMap::new();
    names.insert(Arc::from(""), 0);
    upstreams(node, &mut names);
    let mut catalog = proxy::catalog(None);
    if let Err(error) =
        catalog.add_call(Arc::new(HttpProvider::new(Arc::new(names), Some(0), Paths::default())))
    {
        complain(&format!("the http provider is missing: {error}"));
    }
    catalog
}

fn upstreams(node: &Node, names: &mut HashMap<Arc<str>, usize>) {
    match &node.kind {
        Kind::Array(items) => items.iter().for_each(|item| upstreams(item, names)),
        Kind::Object(members) => {
            for member in members.iter() {
                if let ("upstream", Some(name)) = (&*member.key, member.value.as_str()) {
                    let position = names.len();
                    names.entry(Arc::clone(name)).or_insert(position);
                }
                upstreams(&member.value, names);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_annotation_is_one_line() {
        let found = json!({
            "severity": "warning", "code": "no-backoff", "message": "50% off:\nall, of it",
            "file": "a,b.yaml", "line": 7, "column": 3, "help": "wait",
        });
        let wanted = "::warning file=a%2Cb.yaml,line=7,col=3,title=no-backoff::50%25 off:%0Aall, of it%0Ahelp: wait";
        assert_eq!(annotation(&found), wanted);
    }

    fn report(name: &str, text: &str) -> (usize, usize, String) {
        let read = |_: &Path| Ok(text.to_owned());
        let variable = |_: &str| None;
        let origin = Origin { read: &read, variable: &variable, ..Origin::system() };
        let report = of_file(Path::new(name), Ok(text.to_owned()), origin);
        let counts = (report.count(Severity::Error), report.count(Severity::Warning));
        let mut told = Vec::new();
        report.write(Path::new(name), &mut told).unwrap();
        (counts.0, counts.1, String::from_utf8(told).unwrap().trim_end().to_owned())
    }

    #[test]
    fn a_definition_is_told_from_a_configuration() {
        let flow = include_str!("../../config/flows/compose.json");
        let told = "f.json: ok\n  one execution: at most 3 calls";
        assert_eq!(report("f.json", flow), (0, 0, told.into()));
        let config = include_str!("../../config/minimal.yaml");
        let (errors, warnings, text) = report("c.yaml", config);
        let (told, hash) = text.rsplit_once("\n  hash ").unwrap();
        assert_eq!((errors, warnings), (0, 0));
        assert_eq!(told, "c.yaml: ok\n  route everything: at most 1 call");
        let variable = |_: &str| None;
        let origin = Origin { variable: &variable, ..Origin::system() };
        let loaded = config::parse(Path::new("c.yaml"), config, origin).unwrap();
        assert_eq!(hash, &*loaded.settings.hash);
    }

    #[test]
    fn a_cleanup_that_sends_a_client_s_credentials_on_is_warned_of() {
        let http = "provider: mwl:provider.call/mwl-proxy/http/v1, with: { method: POST";
        let flow = format!(
            "flow: {{ entrypoint: t, steps: {{ t: {{ action: Call, call: {{ {http} }} }}, next: e }}, e: {{ action: Return }} }} }}"
        );
        let removed = "  requestHeaders: { remove: [authorization, cookie] }\n";
        for (call, route, warned) in [
            (format!("{http} }}"), "", true),
            (format!("{http}, path: \"{{{{ '/' + execution.id }}}}\" }}"), "", true),
            (format!("{http}, headers: {{ authorization: null }} }}"), "", true),
            (flow.clone(), "", true),
            (format!("input: null, {http} }}"), "", false),
            (format!("input: \"{{{{ middleware.result }}}}\", {flow}"), "", false),
            (format!("{http}, headers: {{ Authorization: null, cookie: null }} }}"), "", false),
            (format!("{http} }}"), removed, false),
        ] {
            let config = format!(
                "listeners: [{{ address: 127.0.0.1:0 }}]\n\
                 upstreams: {{ a: {{ endpoints: [http://a] }} }}\n\
                 routes:\n\
                 - name: r\n\
                 \x20 upstream: a\n\
                 {route}\
                 \x20 middleware:\n\
                 \x20 - provider: mwl:provider.middleware/mwl/finally/v1\n\
                 \x20   onAlways: {{ with: {{ call: {{ {call} }} }} }}\n"
            );
            let (errors, _, text) = report("c.yaml", &config);
            assert_eq!(errors, 0, "{text}");
            assert_eq!(text.contains("cleanup-sends-credentials"), warned, "{text}");
        }
    }

    #[test]
    fn mistakes_of_the_file_and_of_its_definitions_are_shown() {
        let (errors, _, text) = report("f.json", r#"{ "entrypoint": "a", "steps": {} }"#);
        assert!(errors > 0, "{text}");
        let (errors, _, text) = report("c.yaml", "listners: []\n");
        assert_eq!(errors, 2, "{text}");
        assert!(text.ends_with("c.yaml: 2 errors"), "{text}");
        let nowhere = "listeners: [{ address: 127.0.0.1:0 }]\n\
             upstreams: { a: { endpoints: [http://a] } }\n\
             routes:\n\
             - name: r\n\
             \x20 upstream: a\n\
             \x20 catch: [{ match: { codes: ['*'] }, next: nowhere }]\n";
        let (errors, _, text) = report("c.yaml", nowhere);
        assert_eq!(errors, 1, "{text}");
        assert!(text.contains("--> c.yaml:6:"), "{text}");
    }
}
