//! The last minutes of each route and each upstream in small numbers, for the dashboard's pictures (`/history`).
//!
//! Every few seconds the admin address's thread reads the counters that there are anyway, and keeps what was added to them.
//! Workers take no part in this. What has counted nothing for the whole time takes no room.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use super::metrics::{AttemptCounts, Counts, RouteCounts};
use crate::language::clock::Clock;

/// How often a sample is taken.
pub const EVERY: Duration = Duration::from_secs(5);

/// How many samples are kept: a quarter of an hour.
const KEPT: usize = 180;

/// How many routes, and as many upstreams, have samples of their own. One sample takes 20 bytes.
const SERIES: usize = 1024;

/// The numbers of a sample of a route, and of all routes.
const ROUTE: Fields = ["requests", "failures", "caught", "attempts"];

/// The numbers of a sample of an upstream: the requests of the routes that used it, all attempts at it, those that failed,
/// and those that no cleanup made.
const UPSTREAM: Fields = ["requests", "failures", "all", "attempts"];

type Fields = [&'static str; 4];

type Numbers = [u64; 4];

/// The last samples.
#[derive(Debug)]
pub struct History(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    /// Tells this process from the one before.
    began: String,
    /// How many samples were taken.
    taken: u64,
    /// The counters at the last sample.
    before: Counts,
    total: Ring,
    routes: Series,
    upstreams: Series,
}

/// The samples of all routes, or of all upstreams.
#[derive(Debug, Default)]
struct Series {
    rings: HashMap<String, Ring>,
    /// How many had no room in the last sample.
    left_out: usize,
}

/// The samples of one of them, the latest last.
#[derive(Debug, Default)]
struct Ring {
    samples: VecDeque<[u32; 4]>,
    /// How many of the last ones are zero.
    quiet: usize,
}

impl Default for History {
    fn default() -> Self {
        Self(Mutex::new(Kept {
            began: Clock::system().now().to_string(),
            taken: 0,
            before: Counts::default(),
            total: Ring::default(),
            routes: Series::default(),
            upstreams: Series::default(),
        }))
    }
}

impl History {
    /// Takes a sample: what was counted since the last one.
    pub fn sample(&self, now: Counts) {
        self.lock().sample(now);
    }

    /// The samples after the one with the number `since`, as far as they are kept. `since` 0 is before the first.
    pub fn read(&self, since: u64) -> Json {
        self.lock().read(since)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn sample(&mut self, now: Counts) {
        let before = std::mem::replace(&mut self.before, now);
        let (mut routes, mut upstreams) = (BTreeMap::new(), BTreeMap::new());
        for (name, counts) in &self.before.routes {
            let RouteCounts { requests, failures, caught } = *counts;
            let last = before.routes.get(name).copied().unwrap_or_default();
            let then = [last.requests, last.failures, last.caught, 0];
            routes.insert(name.as_str(), added([requests, failures, caught, 0], then));
        }
        for ((route, upstream), counts) in &self.before.attempts {
            let last = before.attempts.get(&(route.clone(), upstream.clone()));
            let [all, failures, cleanups, _] =
                added(numbers(*counts), last.copied().map(numbers).unwrap_or_default());
            let own = all.saturating_sub(cleanups);
            let [requests, _, _, attempts] = routes.entry(route.as_str()).or_default();
            *attempts += own;
            let requests = if own > 0 { *requests } else { 0 };
            let at: &mut Numbers = upstreams.entry(upstream.as_str()).or_default();
            *at = sum(*at, [requests, failures, all, own]);
        }
        self.taken += 1;
        self.total.push(routes.values().copied().fold(Numbers::default(), sum));
        self.routes.sample(routes);
        self.upstreams.sample(upstreams);
    }

    fn read(&self, since: u64) -> Json {
        // Another process may have given the number.
        let since = if since > self.taken { 0 } else { since };
        let wanted = usize::try_from(self.taken - since).unwrap_or(KEPT).min(KEPT);
        json!({
            "began": self.began,
            "every": EVERY.as_secs(),
            "kept": KEPT,
            "taken": self.taken,
            "samples": wanted,
            "total": self.total.read(&ROUTE, wanted),
            "routes": self.routes.read(&ROUTE, wanted),
            "upstreams": self.upstreams.read(&UPSTREAM, wanted),
            "leftOut": self.routes.left_out + self.upstreams.left_out,
        })
    }
}

impl Series {
    /// One sample for each that has samples or needs them now.
    fn sample(&mut self, mut now: BTreeMap<&str, Numbers>) {
        for (name, ring) in &mut self.rings {
            ring.push(now.remove(name.as_str()).unwrap_or_default());
        }
        self.rings.retain(|_, ring| ring.quiet < KEPT);
        self.left_out = 0;
        for (name, numbers) in now.into_iter().filter(|(_, numbers)| *numbers != Numbers::default())
        {
            if self.rings.len() >= SERIES {
                self.left_out += 1;
                continue;
            }
            self.rings.entry(name.to_owned()).or_default().push(numbers);
        }
    }

    /// Those that have counted something, by their names.
    fn read(&self, fields: &Fields, wanted: usize) -> Json {
        let busy = self.rings.iter().filter(|(_, ring)| ring.quiet < wanted);
        Json::Object(busy.map(|(name, ring)| (name.clone(), ring.read(fields, wanted))).collect())
    }
}

impl Ring {
    fn push(&mut self, numbers: Numbers) {
        self.quiet = if numbers == Numbers::default() { self.quiet + 1 } else { 0 };
        if self.samples.len() >= KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(numbers.map(|number| u32::try_from(number).unwrap_or(u32::MAX)));
    }

    /// The last samples, by field. There may be fewer than are wanted: before them there was nothing. A field in which all
    /// are zero is left out.
    fn read(&self, fields: &Fields, wanted: usize) -> Json {
        let first = self.samples.len().saturating_sub(wanted);
        let mut all = Map::new();
        for (place, field) in fields.iter().enumerate() {
            let numbers = self.samples.iter().skip(first).filter_map(|sample| sample.get(place));
            let numbers: Vec<u32> = numbers.copied().collect();
            if numbers.iter().any(|number| *number > 0) {
                all.insert((*field).to_owned(), numbers.into());
            }
        }
        Json::Object(all)
    }
}

fn numbers(AttemptCounts { all, failures, cleanups }: AttemptCounts) -> Numbers {
    [all, failures, cleanups, 0]
}

/// What was added. A counter that is lower than before has begun anew.
fn added(now: Numbers, before: Numbers) -> Numbers {
    let mut added = now;
    for (added, before) in added.iter_mut().zip(before) {
        *added = added.checked_sub(before).unwrap_or(*added);
    }
    added
}

fn sum(one: Numbers, other: Numbers) -> Numbers {
    let mut sum = one;
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum += other;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Routes with their requests, failures and caught failures; attempts with their route, upstream, and all, failed and
    /// cleanups' ones.
    fn counts(routes: &[(&str, [u64; 3])], attempts: &[(&str, &str, [u64; 3])]) -> Counts {
        let route = |&(name, [requests, failures, caught]): &(&str, [u64; 3])| {
            (name.to_owned(), RouteCounts { requests, failures, caught })
        };
        let attempt = |&(route, upstream, [all, failures, cleanups]): &(&str, &str, [u64; 3])| {
            ((route.to_owned(), upstream.to_owned()), AttemptCounts { all, failures, cleanups })
        };
        Counts {
            routes: routes.iter().map(route).collect(),
            attempts: attempts.iter().map(attempt).collect(),
        }
    }

    #[test]
    fn a_sample_is_what_was_added() {
        let history = History::default();
        history.sample(counts(
            &[("pay", [10, 1, 2])],
            &[("pay", "billing", [12, 3, 0]), ("pay", "audit", [10, 0, 10])],
        ));
        history.sample(counts(
            &[("pay", [10, 1, 2])],
            &[("pay", "billing", [12, 3, 0]), ("pay", "audit", [10, 0, 10])],
        ));
        // A request to a route that never used `billing` does not count there; the other route begins anew.
        history.sample(counts(
            &[("other", [4, 0, 0]), ("pay", [3, 0, 0])],
            &[("pay", "billing", [5, 2, 0])],
        ));
        let read = history.read(0);
        assert_eq!(read["taken"], 3);
        assert_eq!(
            read["total"],
            json!({ "requests": [10, 0, 7], "failures": [1, 0, 0], "caught": [2, 0, 0], "attempts": [12, 0, 5] })
        );
        assert_eq!(read["routes"]["other"], json!({ "requests": [4] }));
        assert_eq!(
            read["routes"]["pay"]["attempts"],
            json!([12, 0, 5]),
            "those of cleanups are not among them"
        );
        assert_eq!(
            read["upstreams"],
            json!({
                "billing": { "requests": [10, 0, 3], "failures": [3, 0, 2], "all": [12, 0, 5], "attempts": [12, 0, 5] },
                "audit": { "all": [10, 0, 0] },
            })
        );
    }

    #[test]
    fn only_what_is_new_is_read_again() {
        let history = History::default();
        for requests in 1..=3 {
            history.sample(counts(&[("pay", [requests, 0, 0]), ("quiet", [1, 0, 0])], &[]));
        }
        let read = history.read(2);
        assert_eq!((&read["samples"], &read["total"]), (&json!(1), &json!({ "requests": [1] })));
        assert_eq!(read["routes"], json!({ "pay": { "requests": [1] } }));
        assert_eq!(history.read(3)["routes"], json!({}));
        assert_eq!(history.read(999)["samples"], 3, "of a process before this one");
    }

    #[test]
    fn samples_and_names_are_bounded_and_what_is_quiet_goes() {
        let history = History::default();
        let all: Vec<String> = (0..SERIES + 5).map(|number| format!("r{number}")).collect();
        let busy: Vec<(&str, [u64; 3])> =
            all.iter().map(|name| (name.as_str(), [1, 0, 0])).collect();
        history.sample(counts(&busy, &[]));
        assert_eq!(history.lock().routes.rings.len(), SERIES);
        assert_eq!(history.read(0)["leftOut"], 5);
        for _ in 0..KEPT {
            history.sample(counts(&busy, &[]));
        }
        let kept = history.lock();
        assert_eq!((kept.routes.rings.len(), kept.total.samples.len()), (0, KEPT));
        drop(kept);
        assert_eq!(history.read(0)["samples"], KEPT);
    }
}
