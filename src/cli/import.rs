//! `import`: writes the policies of another system as our configuration.

use std::process::ExitCode;

use super::arguments::Import;
use super::output::{complain, fail, refuse, say};
use crate::app::given_text;
use crate::import::{Imported, import as imported};

pub(super) fn import(import: &Import) -> ExitCode {
    let name = import.file.display().to_string();
    let text = match given_text(&import.file) {
        Ok(text) => text,
        Err(error) => return refuse(&format!("{name} cannot be read: {error}")),
    };
    match imported(import.kind, &name, &text) {
        Ok(imported) => {
            say(imported.text.trim_end());
            complain(&summary(&name, &imported));
            if imported.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(refused) => fail(&refused.to_string()),
    }
}

/// What was written, and what was not.
fn summary(name: &str, imported: &Imported) -> String {
    let Imported { lost, counts: (upstreams, routes), warnings, errors, .. } = imported;
    let plural = |count: usize, word: &str| match count {
        1 => format!("1 {word}"),
        count => format!("{count} {word}s"),
    };
    let mut lines =
        vec![format!("{name}: {}, {}.", plural(*upstreams, "upstream"), plural(*routes, "route"))];
    if lost.is_empty() {
        lines.push("Everything has an equal.".to_owned());
    } else {
        lines.push(format!(
            "{} no equal:",
            match lost.len() {
                1 => "1 thing has".to_owned(),
                count => format!("{count} things have"),
            }
        ));
        lines.extend(
            lost.iter().map(|(line, column, text)| format!("  {name}:{line}:{column}: {text}")),
        );
    }
    if !warnings.is_empty() {
        let count = plural(warnings.len(), "warning");
        lines.push(format!("`check` has {count}, each a comment: {}.", warnings.join(", ")));
    }
    if !errors.is_empty() {
        lines.push("This is a mistake of `import`, please report it; `check` refuses:".to_owned());
        lines.extend(errors.iter().map(|error| format!("  {error}")));
    }
    lines.join("\n")
}
