//! The log: lines for people on a terminal, JSON for machines elsewhere, always on standard error.
//!
//! `MWL_LOG` says what is written, in the language of `tracing`'s filters: `debug`,
//! `mwl_proxy=debug,info`, `info,mwl::execution=info` (which turns the execution events on).

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// What is written where nothing else is asked for. Execution events are off.
const DEFAULT: &str = "info,mwl::execution=off";

/// Starts the log of the process. `filter`: the value of `MWL_LOG`. A second call changes nothing.
///
/// # Errors
/// A sentence that says what is wrong with `filter`; the log then runs by its default.
pub fn start(filter: Option<&str>) -> Result<(), String> {
    let (filter, problem) = parse(filter);
    let subscriber = fmt().with_env_filter(filter).with_writer(stderr);
    // An error means that the log runs already.
    if stderr().is_terminal() {
        subscriber.with_target(false).try_init().ok();
    } else {
        let json = subscriber.json().flatten_event(true);
        json.with_current_span(false).with_span_list(false).try_init().ok();
    }
    problem.map_or(Ok(()), Err)
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
