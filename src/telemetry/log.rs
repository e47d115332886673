//! The log: readable lines on a terminal, JSON elsewhere, always on standard error.
//!
//! `MWL_LOG` selects what is written, as a `tracing` filter: `debug`, `mwl_proxy=debug,info`, or
//! `info,mwl::execution=info`, which turns on the execution events. A thread writes, so a stalled terminal or
//! pipe does not stall requests.

use std::io::{self, IsTerminal, Write, stderr};
use std::sync::OnceLock;
use std::time::Duration;

use prometheus::IntCounter;
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use super::events;
use super::write_queue::{Loss, WriteQueue};

/// The default filter.
const DEFAULT: &str = "info,mwl::execution=off,notify=off";

/// What is off unless the filter names it: execution events, and each event of the watch on files, among which the log
/// itself may be.
const OFF: [&str; 2] = ["mwl::execution", "notify"];

/// How long the last lines may take at the end of the process.
const LAST: Duration = Duration::from_secs(2);

/// The queue of lines; `None` if the system provided no thread for it.
static LINES: OnceLock<Option<WriteQueue<Vec<u8>>>> = OnceLock::new();

/// Puts each line of the log into the queue.
struct Writer(WriteQueue<Vec<u8>>);

/// Starts the log of the process. `filter` is the value of `MWL_LOG`. A second call has no effect.
///
/// # Errors
/// When `filter` is invalid; the log then uses its default. The error is a sentence for the user.
pub fn start(filter: Option<&str>) -> Result<(), String> {
    let (filter, problem) = parse(filter);
    let lines = LINES.get_or_init(|| {
        let dropped = IntCounter::new("dropped", "Lines that were lost.").ok()?;
        let write = |line: &Vec<u8>, out: &mut Vec<u8>| out.extend(line);
        // Its own losses it cannot tell.
        WriteQueue::start("log", Loss::counted(dropped), stderr(), write).ok()
    });
    let writer = match lines.clone() {
        Some(lines) => BoxMakeWriter::new(move || Writer(lines.clone())),
        None => BoxMakeWriter::new(stderr),
    };
    let terminal = stderr().is_terminal();
    let subscriber = fmt().with_env_filter(filter).with_ansi(terminal).with_writer(writer);
    // An error means that the log already runs.
    if terminal {
        subscriber.with_target(false).try_init().ok();
    } else {
        let json = subscriber.json().flatten_event(true);
        json.with_current_span(false).with_span_list(false).try_init().ok();
    }
    events::logged(tracing::enabled!(target: "mwl::execution", Level::INFO));
    problem.map_or(Ok(()), Err)
}

/// How many lines were lost since the start.
pub fn dropped() -> u64 {
    lines().map_or(0, WriteQueue::dropped)
}

/// Waits a short time for the last lines to be written, at the end of the process.
pub fn flush() {
    if let Some(lines) = lines() {
        lines.flush(LAST);
    }
}

fn lines() -> Option<&'static WriteQueue<Vec<u8>>> {
    LINES.get()?.as_ref()
}

/// The subscriber writes each line with a single call.
impl Write for Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The filter, and what is wrong with the requested one.
fn parse(asked: Option<&str>) -> (EnvFilter, Option<String>) {
    let text = asked.map_or_else(
        || DEFAULT.to_owned(),
        |asked| {
            let unnamed = OFF.iter().filter(|target| !asked.contains(**target));
            unnamed.fold(asked.to_owned(), |filter, target| format!("{target}=off,{filter}"))
        },
    );
    match EnvFilter::try_new(&text) {
        Ok(filter) => (filter, None),
        Err(error) => {
            let asked = asked.unwrap_or_default();
            let problem = format!(
                "MWL_LOG is `{asked}`, which is no filter ({error}); write for example `info` or `mwl_proxy=debug`"
            );
            (EnvFilter::new(DEFAULT), Some(problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn execution_events_and_what_a_library_repeats_are_off_unless_named() {
        for (asked, wanted) in [
            (None, "mwl::execution=off,notify=off,info"),
            (Some("debug"), "mwl::execution=off,notify=off,debug"),
            (Some("warn,mwl::execution=info"), "mwl::execution=info,notify=off,warn"),
        ] {
            let (filter, problem) = parse(asked);
            assert_eq!((filter.to_string().as_str(), problem), (wanted, None));
        }
    }

    #[test]
    fn a_bad_filter_is_named_and_the_default_holds() {
        let (filter, problem) = parse(Some("a=b=c"));
        assert_eq!(filter.to_string(), "mwl::execution=off,notify=off,info");
        assert!(problem.unwrap().starts_with("MWL_LOG is `a=b=c`, which is no filter"));
    }
}
