//! When each endpoint of an upstream is checked.
//!
//! The first check of an endpoint comes after a part of `interval`, drawn at random, and each further one after
//! `interval`, more or less by up to a tenth. So proxies that start together, or that a deployment restarts one after
//! the other, do not check together, and do not fall into step later.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

/// By how much of `interval` a pause may be longer or shorter.
const JITTER: f64 = 0.1;

/// The endpoints of one upstream, each with its next check.
#[derive(Debug, Default)]
pub(super) struct Schedule(HashMap<u64, Planned>);

#[derive(Clone, Copy, Debug)]
struct Planned {
    at: Instant,
    /// Whether the last check has not ended.
    runs: bool,
}

impl Schedule {
    /// Which of `endpoints` are to be checked `now`. Those that are new are planned, and those that are gone are not
    /// any more. `draw` gives numbers from 0 to 1.
    pub(super) fn due(
        &mut self,
        endpoints: &[u64],
        interval: Duration,
        now: Instant,
        mut draw: impl FnMut() -> f64,
    ) -> Vec<u64> {
        let present: HashSet<u64> = endpoints.iter().copied().collect();
        self.0.retain(|id, _| present.contains(id));
        let mut due = Vec::new();
        for id in endpoints {
            let first = interval.mul_f64(draw().clamp(0.0, 1.0));
            let planned =
                self.0.entry(*id).or_insert_with(|| Planned { at: later(now, first), runs: false });
            if planned.runs || planned.at > now {
                continue;
            }
            let factor = 1.0 + JITTER * draw().mul_add(2.0, -1.0);
            *planned = Planned { at: later(now, interval.mul_f64(factor)), runs: true };
            due.push(*id);
        }
        due
    }

    /// A check has ended.
    pub(super) fn ended(&mut self, id: u64) {
        if let Some(planned) = self.0.get_mut(&id) {
            planned.runs = false;
        }
    }

    /// When the next check is due. One that follows a check which has not ended is due with that one's end.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().filter(|planned| !planned.runs).map(|planned| planned.at).min()
    }
}

fn later(now: Instant, after: Duration) -> Instant {
    now.checked_add(after).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    #[test]
    fn an_endpoint_that_comes_is_planned_and_one_that_goes_is_not() {
        let (mut schedule, begun) = (Schedule::default(), Instant::now());
        assert_eq!(schedule.due(&[1, 2], INTERVAL, begun, || 0.5), [0; 0]);
        assert_eq!(schedule.next(), Some(begun + INTERVAL / 2));
        let then = begun + INTERVAL / 2;
        assert_eq!(schedule.due(&[2, 3], INTERVAL, then, || 0.5), [2]);
        assert_eq!(schedule.due(&[2, 3], INTERVAL, then, || 0.5), [0; 0], "it is at work");
        assert_eq!(schedule.next(), Some(then + INTERVAL / 2), "of the new one");
        let late = then + INTERVAL * 3;
        assert_eq!(schedule.due(&[2], INTERVAL, late, || 0.5), [0; 0], "it still is");
        assert_eq!(schedule.next(), None);
        schedule.ended(2);
        schedule.ended(3);
        assert_eq!(schedule.due(&[2], INTERVAL, late, || 0.5), [2]);
    }

    proptest! {
        /// Each pause is within a tenth of the interval, and no endpoint is forgotten.
        #[test]
        fn pauses_are_within_a_tenth(draws in proptest::collection::vec(0.0..1.0_f64, 40)) {
            let (mut schedule, begun) = (Schedule::default(), Instant::now());
            let mut draws = draws.into_iter().cycle();
            let mut now = begun;
            let mut last = None;
            for _ in 0..20 {
                let due = schedule.due(&[7], INTERVAL, now, || draws.next().unwrap());
                if !due.is_empty() {
                    let pause: Option<Duration> = last.map(|last: Instant| now.duration_since(last));
                    let tenth = INTERVAL / 10;
                    prop_assert!(pause.is_none_or(|pause| pause + tenth >= INTERVAL && pause <= INTERVAL + tenth));
                    prop_assert!(last.is_some() || now <= begun + INTERVAL);
                    last = Some(now);
                    schedule.ended(7);
                }
                now = schedule.next().unwrap();
            }
            prop_assert!(last.is_some());
        }
    }
}
