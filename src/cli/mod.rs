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

use self::arguments::{Cli, Command, Flow};

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let Cli { command, run } = Cli::parse();
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
