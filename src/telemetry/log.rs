//! The log: lines for people on a terminal, JSON for machines elsewhere, always on standard error.
//!
//! `MWL_LOG` says what is written, in the language of `tracing`'s filters: `debug`,
//! `mwl_proxy=debug,info`, `info,mwl::execution=info` (which turns the execution events on). A thread
//! writes: a terminal or a pipe that stalls does not stall requests.

use std::io::{self, IsTerminal, Write, stderr};
use std::sync::OnceLock;
use std::time::Duration;

use prometheus::IntCounter;
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use super::events;
use super::lines::Lines;

/// What is written where nothing else is asked for. Execution events are off.
const DEFAULT: &str = "info,mwl::execution=off";

/// How long the last lines may take to leave at the end of the process.
const LAST: Duration = Duration::from_secs(2);

/// The lines on their way; `None` where the system gave no thread for them.
static LINES: OnceLock<Option<Lines<Vec<u8>>>> = OnceLock::new();

/// Hands each line of the log over.
struct Writer(Lines<Vec<u8>>);

/// Starts the log of the process. `filter`: the value of `MWL_LOG`. A second call changes nothing.
///
/// # Errors
/// A sentence that says what is wrong with `filter`; the log then runs by its default.
pub fn start(filter: Option<&str>) -> Result<(), String> {
    let (filter, problem) = parse(filter);
    let lines = LINES.get_or_init(|| {
        let dropped = IntCounter::new("dropped", "Lines that were lost.").ok()?;
        Lines::start("log", dropped, stderr(), |line: &Vec<u8>, out| out.extend(line)).ok()
    });
    let writer = match lines.clone() {
        Some(lines) => BoxMakeWriter::new(move || Writer(lines.clone())),
        None => BoxMakeWriter::new(stderr),
    };
    let terminal = stderr().is_terminal();
    let subscriber = fmt().with_env_filter(filter).with_ansi(terminal).with_writer(writer);
    // An error means that the log runs already.
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
    lines().map_or(0, Lines::dropped)
}

/// Waits until the last lines are written, a short while at most: for the end of the process.
pub fn flush() {
    if let Some(lines) = lines() {
        lines.flush(LAST);
    }
}

fn lines() -> Option<&'static Lines<Vec<u8>>> {
    LINES.get()?.as_ref()
}

/// The subscriber writes a line at once.
impl Write for Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The filter, and what is wrong with the one that was asked for.
fn parse(asked: Option<&str>) -> (EnvFilter, Option<String>) {
    let text = asked.map_or_else(
        || DEFAULT.to_owned(),
        |asked| {
            // What is said of execution events comes last and so decides; what is not said is off.
            if asked.contains("mwl::execution") {
                asked.to_owned()
            } else {
                format!("mwl::execution=off,{asked}")
            }
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
    fn execution_events_are_off_unless_named() {
        for (asked, wanted) in [
            (None, "mwl::execution=off,info"),
            (Some("debug"), "mwl::execution=off,debug"),
            (Some("warn,mwl::execution=info"), "mwl::execution=info,warn"),
        ] {
            let (filter, problem) = parse(asked);
            assert_eq!((filter.to_string().as_str(), problem), (wanted, None));
        }
    }

    #[test]
    fn a_bad_filter_is_named_and_the_default_holds() {
        let (filter, problem) = parse(Some("a=b=c"));
        assert_eq!(filter.to_string(), "mwl::execution=off,info");
        assert!(problem.unwrap().starts_with("MWL_LOG is `a=b=c`, which is no filter"));
    }
}
