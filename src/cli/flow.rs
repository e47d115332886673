//! `flow run`: runs a definition to its Result.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use super::arguments::FlowRun;
use super::output::{refuse, say};
use crate::language::clock::unless_endless;
use crate::language::definition::{Strictness, compile};
use crate::language::engine::{self, Start};
use crate::language::outcome::Outcome;
use crate::language::provider::Catalog;
use crate::language::value::Value;
use crate::reload::{Signal, Signals};
use crate::source::{Format, MAX_BYTES, Node, Sources};
use crate::system::file;

/// How often a run may be polled. A graph yields once every 64 Steps, and a re-run each time: a run that only waits for
/// something never comes to that.
const ENDLESS: u32 = 1_000_000;

pub(super) fn run(run: &FlowRun) -> ExitCode {
    match outcome(run) {
        Ok(outcome) => {
            say(&format!("{:#}", outcome.to_value().to_json()));
            if outcome.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(message) => refuse(&message),
    }
}

fn outcome(run: &FlowRun) -> Result<Outcome, String> {
    let mut sources = Sources::default();
    let definition = read(&mut sources, &run.definition)?;
    let input = optional(&mut sources, run.input.as_ref())?.unwrap_or_default();
    let arguments = optional(&mut sources, run.arguments.as_ref())?;
    let arguments = arguments.unwrap_or_else(Value::empty_object);
    let catalog = Catalog::spec_defined(None);
    let (plan, _) = compile(&definition, &catalog, Strictness::Runtime)
        .map_err(|diagnostics| sources.render(&diagnostics))?;
    let driver = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the system gives no runtime: {error}"))?;
    let outcome = driver.block_on(async {
        let cancel = CancellationToken::new();
        let id = uuid::Uuid::now_v7().to_string();
        let mut start = Start { cancel: Some(cancel.clone()), ..Start::new(&id) };
        // A signal cancels the execution: its cleanups run, and its Result is printed.
        tokio::spawn(async move {
            if let Ok(mut signals) = Signals::new() {
                while signals.next().await != Signal::Stop {}
                cancel.cancel();
            }
        });
        unless_endless(engine::run(&plan, &mut start, arguments, input), ENDLESS).await
    });
    outcome.ok_or_else(|| {
        let name = run.definition.display();
        format!(
            "{name}: gave up after {ENDLESS} rounds: it goes round and round and comes to no end"
        )
    })
}

fn optional(sources: &mut Sources, path: Option<&PathBuf>) -> Result<Option<Value>, String> {
    let node = path.map(|path| read(sources, path)).transpose()?;
    Ok(node.map(|node| Value::from(node.to_json())))
}

/// Parses the file at `path`.
///
/// # Errors
/// When the file cannot be read or is not a document, with the places of the mistakes.
pub(super) fn read(sources: &mut Sources, path: &Path) -> Result<Node, String> {
    let name = path.display().to_string();
    let text = file::read_given_text(path, MAX_BYTES)
        .map_err(|error| format!("{name} cannot be read: {error}"))?;
    let parsed = sources.parse(&name, &text, Format::of_name(&name));
    parsed.map_err(|diagnostics| sources.render(&diagnostics))
}
