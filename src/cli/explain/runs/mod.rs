//! What came of many requests, one after the other: the rate of success, percentiles, and the load of the upstreams.

mod render;

use std::collections::BTreeMap;
use std::time::Duration;

pub(super) use self::render::{json, rows, text};
use super::Policy;
use crate::proxy::rehearsal::{RehearsalEnd, Transcript};
use crate::proxy::stage::record::{EventKind, GivenResponse};
use crate::telemetry::record::Call;

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The routes of the first request.
    routes: Vec<(std::sync::Arc<str>, Option<String>)>,
    runs: u32,
    /// Those whose Result is a success, and those of them on whose way a failure was caught.
    successes: u32,
    degraded: u32,
    /// What the clients got: a status, or why none.
    answers: BTreeMap<String, u32>,
    /// How long each took that came to an end. Sorted.
    latencies: Vec<Duration>,
    /// The Steps' attempts of each. Sorted.
    attempts: Vec<u32>,
    /// By upstream.
    loads: BTreeMap<String, Load>,
    /// Re-runs that a Retry decided, by the code that each took.
    retries: BTreeMap<String, u64>,
    /// Retries that gave up, bounds that fired, failures that a `catch` took.
    gave_up: u64,
    bounds: u64,
    caught: u64,
    /// Cleanups that failed.
    cleanups_failed: u64,
    /// Why the rest was not played: a request comes to no end.
    stopped: Option<&'static str>,
}

/// What one upstream gets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Requests that reached it.
    requests: u64,
    /// Those of them that were not the first of their kind: retries, and what was lost on a stale connection.
    again: u64,
    /// Connections that it refused.
    refused: u64,
}

impl Tally {
    /// What comes of `runs` requests to `policy`.
    pub(super) fn of(policy: &Policy, runs: u32, seed: u64) -> Self {
        let mut tally = Self::default();
        for run in 0..runs {
            let told = policy.rehearsal.play(&policy.asked, seed.wrapping_add(run.into()));
            tally.add(told);
            if tally.stopped.is_some() {
                break;
            }
        }
        tally.latencies.sort_unstable();
        tally.attempts.sort_unstable();
        tally
    }

    fn add(&mut self, told: Transcript) {
        let Transcript { routes, events, result, end, took, unused: _ } = told;
        if self.runs == 0 {
            self.routes = routes;
        }
        self.runs += 1;
        let (mut attempts, mut caught) = (0, 0_u64);
        for event in events {
            match event.what {
                EventKind::Started { call } => attempts += u32::from(!call.cleanup),
                EventKind::Requested { call, sent, given: GivenResponse { .. } } => {
                    let load = self.loads.entry(sent.upstream).or_default();
                    load.requests += 1;
                    load.again += u64::from(sent.resent || again(&call));
                }
                EventKind::Refused { upstream, .. } => {
                    self.loads.entry(upstream).or_default().refused += 1;
                }
                EventKind::Retry(rerun) if rerun.policy.is_some() => {
                    *self.retries.entry(rerun.code).or_default() += 1;
                }
                EventKind::Exhausted { .. } => self.gave_up += 1,
                EventKind::Bound { .. } => self.bounds += 1,
                EventKind::Caught { .. } => caught += 1,
                EventKind::Cleaned { failure, .. } => {
                    self.cleanups_failed += u64::from(failure.is_some());
                }
                EventKind::Retry(_)
                | EventKind::Done { .. }
                | EventKind::Failed { .. }
                | EventKind::Interrupted { .. }
                | EventKind::Decided { .. }
                | EventKind::Passed { .. }
                | EventKind::Faulted { .. } => {}
            }
        }
        self.attempts.push(attempts);
        self.caught += caught;
        let success =
            result.is_some_and(|result| result.get("type").is_some_and(|ty| ty == "success"));
        self.successes += u32::from(success);
        self.degraded += u32::from(success && caught > 0);
        self.ended(&end, took.0);
    }

    fn ended(&mut self, end: &RehearsalEnd, took: Duration) {
        let answer = match end {
            RehearsalEnd::Answered { status, broken: false, .. } => status.as_u16().to_string(),
            RehearsalEnd::Answered { status, broken: true, .. } => {
                format!("{} broken off", status.as_u16())
            }
            RehearsalEnd::Dropped => "closed unanswered".to_owned(),
            RehearsalEnd::Left => "the client left".to_owned(),
            RehearsalEnd::Forever => "waits for ever".to_owned(),
            RehearsalEnd::Endless => "goes on and on".to_owned(),
            RehearsalEnd::Busy => "never waits".to_owned(),
        };
        match end {
            RehearsalEnd::Forever => {}
            RehearsalEnd::Endless => self.stopped = Some("a request goes on and on"),
            RehearsalEnd::Busy => self.stopped = Some("a request loops without a call or a wait"),
            _ => self.latencies.push(took),
        }
        *self.answers.entry(answer).or_default() += 1;
    }
}

fn again(call: &Call) -> bool {
    call.number > 1
}

/// The item that a share of `sorted` does not exceed.
fn percentile<T: Copy + Default>(sorted: &[T], share: f64) -> T {
    let count = u32::try_from(sorted.len()).unwrap_or(u32::MAX);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a count")]
    let place = (f64::from(count) * share).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_an_item_that_so_many_do_not_exceed() {
        let sorted: Vec<u32> = (1..=1000).collect();
        let found = [0.5, 0.9, 0.99, 0.999, 1.0].map(|share| percentile(&sorted, share));
        assert_eq!(found, [500, 900, 990, 999, 1000]);
        assert_eq!((percentile(&[7_u32], 0.5), percentile::<u32>(&[], 0.5)), (7, 0));
    }
}
