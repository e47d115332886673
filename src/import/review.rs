//! Reviews what was written: each warning of `check` becomes a comment above its line.

use std::collections::BTreeMap;
use std::path::Path;

use super::yaml::wrapped;
use crate::app;
use crate::config::{self, Origin};
use crate::source::{Diagnostics, Severity, Sources};

/// A configuration after its review.
#[derive(Debug)]
pub(super) struct Reviewed {
    pub(super) text: String,
    /// The name of each warning.
    pub(super) warnings: Vec<String>,
    /// What is refused.
    pub(super) errors: Vec<String>,
}

/// Reviews `text`, which keeps the choices of `who`.
pub(super) fn review(text: &str, who: &str) -> Reviewed {
    let variable = |_: &str| None;
    let read = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let origin = Origin { variable: &variable, read: &read, ..Origin::system() };
    let loaded = config::parse(Path::new("imported.yaml"), text, origin);
    match loaded.map_err(app::complete).and_then(app::check) {
        Ok(built) => annotated(text, who, &built.sources, &built.warnings),
        Err(refused) => {
            let errors = refused.diagnostics.0.iter();
            let errors = errors.filter(|found| found.severity == Severity::Error);
            let errors = errors.map(|found| {
                let (line, column) = refused.sources.position(found.span);
                format!("{line}:{column}: {}", found.message)
            });
            Reviewed { text: text.to_owned(), warnings: Vec::new(), errors: errors.collect() }
        }
    }
}

fn annotated(
    text: &str,
    who: &str,
    sources: &Sources,
    Diagnostics(found): &Diagnostics,
) -> Reviewed {
    let mut comments: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for warning in found {
        let (line, _) = sources.position(sources.place(warning));
        let reason = reason(warning.code, &warning.message, who);
        let comment = format!("`check` warns (`{}`): {reason}", warning.code);
        let here = comments.entry(line).or_default();
        if !here.contains(&comment) {
            here.push(comment);
        }
    }
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        for comment in comments.get(&(number + 1)).into_iter().flatten() {
            lines.extend(wrapped(comment).into_iter().map(|comment| format!("{indent}{comment}")));
        }
        lines.push(line.to_owned());
    }
    let warnings = found.iter().map(|warning| warning.code.to_owned()).collect();
    Reviewed { text: lines.join("\n") + "\n", warnings, errors: Vec::new() }
}

/// Why what is warned of is written all the same.
fn reason(code: &str, message: &str, who: &str) -> String {
    match code {
        "unsafe-retry" => format!("{who} does so, and this keeps that."),
        "no-backoff" => format!("{who} does not wait between these attempts."),
        "unbounded-call" => format!("{who} waits for a response without a bound, too."),
        "idle-bound" => format!("{who} has this bound, although one around it is shorter."),
        "unreachable-route" => format!("{who} has this route behind one that takes its requests."),
        _ => format!("{message}. {who}'s own choice is kept."),
    }
}
