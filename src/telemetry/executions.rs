//! The latest executions, for `/executions`.
//!
//! Failed executions are kept apart from the others, and so are those that a caught failure degraded: a flood of
//! successes never pushes out the failure that somebody looks for. Each worker appends under its own lock, for which only a reader of `/executions` competes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::record::{Execution, Kind};
use super::shard;

/// The kinds, each of which is kept apart.
const KINDS: [Kind; 3] = [Kind::Failure, Kind::Degraded, Kind::Success];

/// The latest executions of the process.
#[derive(Debug)]
pub struct Executions {
    /// How many of each kind are kept.
    keep: AtomicUsize,
    shards: Vec<Shard>,
}

/// The executions of one thread.
#[derive(Debug, Default)]
struct Shard {
    failed: Ring,
    degraded: Ring,
    others: Ring,
}

type Ring = Mutex<VecDeque<Arc<Execution>>>;

/// Selects executions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those of this route.
    pub route: Option<String>,
    /// Only those of this kind.
    pub kind: Option<Kind>,
    /// Only those with this id of the execution.
    pub execution: Option<String>,
    /// Only that of the request with this id.
    pub request: Option<String>,
    /// At most so many, the latest.
    pub limit: Option<usize>,
}

impl Shard {
    const fn ring(&self, kind: Kind) -> &Ring {
        match kind {
            Kind::Failure => &self.failed,
            Kind::Degraded => &self.degraded,
            Kind::Success => &self.others,
        }
    }
}

impl Executions {
    /// Keeps `keep` executions of each kind; 0 keeps none.
    pub fn new(keep: usize) -> Self {
        Self {
            keep: AtomicUsize::new(keep),
            shards: (0..shard::COUNT).map(|_| Shard::default()).collect(),
        }
    }

    /// Changes how many are kept.
    pub fn resize(&self, keep: usize) {
        self.keep.store(keep, Ordering::Relaxed);
        for (shard, kind) in self.shards.iter().flat_map(|shard| KINDS.map(|kind| (shard, kind))) {
            let mut ring = lock(shard.ring(kind));
            while ring.len() > keep {
                ring.pop_front();
            }
        }
    }

    /// How many of each kind are kept.
    pub fn keep(&self) -> usize {
        self.keep.load(Ordering::Relaxed)
    }

    /// Appends an execution and removes the oldest of its kind if there are too many.
    pub fn push(&self, execution: Arc<Execution>) {
        let keep = self.keep();
        let Some(shard) = self.shards.get(shard::of_this_thread()) else {
            return;
        };
        if keep == 0 {
            return;
        }
        let mut ring = lock(shard.ring(execution.kind()));
        while ring.len() >= keep {
            ring.pop_front();
        }
        ring.push_back(execution);
    }

    /// The executions that `filter` selects, latest first, at most as many of each kind as are kept.
    pub fn read(&self, filter: &Filter) -> Vec<Arc<Execution>> {
        let kinds = KINDS.into_iter().filter(|kind| filter.kind.is_none_or(|only| only == *kind));
        let mut all: Vec<_> = kinds.flat_map(|kind| self.kind(kind)).collect();
        let Filter { route, kind: _, execution: id, request: one, limit } = filter;
        all.retain(|execution| {
            let request = &execution.request;
            (route.is_none() || request.route.as_deref() == route.as_deref())
                && id.as_deref().is_none_or(|id| *request.id == *id)
                && one.as_deref().is_none_or(|one| request.request.to_string() == one)
        });
        latest_first(&mut all);
        all.truncate(limit.unwrap_or(usize::MAX));
        all
    }

    fn kind(&self, kind: Kind) -> Vec<Arc<Execution>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard.ring(kind)).iter().cloned());
        }
        latest_first(&mut all);
        all.truncate(self.keep());
        all
    }
}

/// Sorts by the time of their end.
fn latest_first(all: &mut [Arc<Execution>]) {
    let end = |execution: &Execution| execution.answer.began + execution.answer.took;
    all.sort_by_key(|execution| std::cmp::Reverse(end(execution)));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::record::tests::{self, answer, request};
    use tokio::time::Instant;

    fn execution(id: &str, status: u16, millis: u64) -> Arc<Execution> {
        let answer = answer(status, Instant::now(), millis);
        Arc::new(tests::execution(request(id), status != 200, answer, 0))
    }

    fn ids(executions: &Executions, filter: &Filter) -> Vec<String> {
        let read = executions.read(filter);
        read.iter().map(|execution| execution.request.id.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_successes_leaves_the_failures() {
        let executions = Executions::new(2);
        executions.push(execution("bad", 499, 1));
        for number in 2..100 {
            executions.push(execution(&number.to_string(), 200, number));
        }
        assert_eq!(ids(&executions, &Filter::default()), ["99", "98", "bad"]);
        let failed = Filter { kind: Some(Kind::Failure), ..Filter::default() };
        assert_eq!(ids(&executions, &failed), ["bad"]);
        let others =
            Filter { kind: Some(Kind::Success), route: Some("pay".into()), ..Filter::default() };
        assert_eq!(ids(&executions, &others), ["99", "98"]);
        let route = Filter { route: Some("none".into()), ..Filter::default() };
        assert!(ids(&executions, &route).is_empty());
        let one = Filter { execution: Some("98".into()), ..Filter::default() };
        assert_eq!(ids(&executions, &one), ["98"]);
        let latest = Filter { limit: Some(1), ..Filter::default() };
        assert_eq!(ids(&executions, &latest), ["99"]);
    }

    #[tokio::test(start_paused = true)]
    async fn threads_are_read_together_and_the_latest_stay() {
        let executions = Arc::new(Executions::new(3));
        for number in 1..=6 {
            let executions = Arc::clone(&executions);
            let execution = execution(&number.to_string(), 200, number);
            std::thread::spawn(move || executions.push(execution)).join().unwrap();
        }
        assert_eq!(ids(&executions, &Filter::default()), ["6", "5", "4"]);
        executions.resize(1);
        assert_eq!(ids(&executions, &Filter::default()), ["6"]);
        executions.resize(0);
        executions.push(execution("7", 200, 7));
        assert!(ids(&executions, &Filter::default()).is_empty());
    }
}
