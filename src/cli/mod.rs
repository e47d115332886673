//! The command line. Each command has its own file; [`arguments`] parses, and nothing runs yet.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 success, 1 the
//! command's own "no", 2 it could not run (also clap's code for arguments that it cannot parse).

mod addresses;
mod arguments;
mod check;
mod dev;
mod eval;
mod explain;
mod flow;
mod flow_test;
mod import;
mod list;
mod lsp;
mod manual;
mod output;
mod probe;
mod replay;
mod resolve;
mod run;
mod variables;

use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};

use self::arguments::{Cli, Command, Flow};

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let Cli { command, run } = Cli::try_parse().unwrap_or_else(|error| with_tip(error).exit());
    match command.unwrap_or(Command::Run(run)) {
        Command::Run(run) => run::run(&run),
        Command::Check(check) => check::check(&check),
        Command::Config(resolve) => resolve::resolve(&resolve),
        Command::Flow(Flow::Run(run)) => flow::run(&run),
        Command::Flow(Flow::Test(test)) => flow_test::test(&test),
        Command::Eval(eval) => eval::eval(&eval),
        Command::Explain(explain) => explain::explain(&explain),
        Command::Import(import) => import::import(&import),
        Command::Replay(replay) => replay::replay(&replay),
        Command::Lsp => lsp::lsp(),
        Command::Schema => list::schema(),
        Command::Catalog => list::catalog(),
        Command::Conformance => list::conformance(),
        Command::Probe(probe) => probe::probe(probe.admin),
        Command::Completions(completions) => manual::completions(completions.shell),
        Command::Man(man) => manual::page(&man.command),
    }
}

/// Says of a file that stands alone how a configuration is named.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let wrong = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let wrong = wrong.iter().find_map(|kind| match error.get(*kind) {
        Some(ContextValue::String(wrong)) => Some(wrong.clone()),
        _ => None,
    });
    let ends = |wrong: &String| [".yaml", ".yml", ".json"].iter().any(|end| wrong.ends_with(end));
    if let Some(file) = wrong.filter(ends) {
        let tip = format!("a configuration is named with -c: `-c {file}`");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_stands_alone_is_told_how_it_is_named() {
        for line in [&["mwl-proxy", "a.yaml"][..], &["mwl-proxy", "run", "a.yaml"]] {
            let told = with_tip(Cli::try_parse_from(line).unwrap_err()).to_string();
            assert!(told.contains("tip: a configuration is named with -c: `-c a.yaml`"), "{told}");
        }
        let told = with_tip(Cli::try_parse_from(["mwl-proxy", "runn"]).unwrap_err()).to_string();
        assert!(told.contains("'run'") && !told.contains("-c:"), "{told}");
    }
}
