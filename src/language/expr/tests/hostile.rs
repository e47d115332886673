//! Expressions written to block a worker or to fill its memory: each is refused or fails soon.
//!
//! `cargo test hostile -- --nocapture` prints how long each takes.

#![expect(clippy::print_stdout, reason = "says how long each took")]

use std::time::Duration;

use tokio::time::Instant;

use super::hostile_table::{End, hostile, vars};
use super::*;

/// The processor time that each may take, in a debug build too.
const LIMIT: Duration = Duration::from_millis(100);

/// The processor time of this thread, if the system tells it: the other work of a shared machine does not
/// count.
fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = stat.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Compiles and evaluates `body`.
fn ends(body: &str, vars: &Value) -> End {
    match compile::compile(body, Names::Roots(EVERY)) {
        Err(errors) => {
            assert!(errors.iter().all(|error| !error.message.is_empty()));
            End::Refused
        }
        Ok(compiled) => {
            let fixture = Fixture(Value::object([("vars", vars.clone())]));
            match Program::of(body, compiled).evaluate(&fixture) {
                Ok(_) => End::Value,
                Err(_) => End::Failed,
            }
        }
    }
}

/// How `body` ends, and the processor time that it takes: the least of three runs, since other work on the
/// machine slows each of them down.
fn measured(body: &str, vars: &Value) -> (End, Duration) {
    let runs = (0..3).map(|_| {
        let (began, before) = (Instant::now(), processor_time());
        let end = ends(body, vars);
        let wall = began.elapsed();
        (end, processor_time().zip(before).map_or(wall, |(now, then)| now.saturating_sub(then)))
    });
    runs.min_by_key(|(_, took)| *took).unwrap()
}

#[test]
fn each_ends_soon() {
    let vars = Value::from(vars());
    let mut wrong = Vec::new();
    for (what, body, wanted) in hostile() {
        let (end, took) = measured(&body, &vars);
        println!("{:>8.1} ms  {end:<7?}  {what}", took.as_secs_f64() * 1e3);
        if end != wanted || took > LIMIT {
            wrong.push(format!("{what}: {end:?} after {took:?}, not {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
