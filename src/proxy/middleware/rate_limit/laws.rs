//! The counters against a small model, for thousands of random schedules.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::bucket::{Bucket, Pace, Took};
use super::buckets::Buckets;

/// A bucket of tokens: holds `burst`, and gains one in each interval.
struct Model {
    pace: Pace,
    /// What it holds, in nanoseconds of gaining.
    credit: u64,
    at: u64,
}

impl Model {
    fn new(pace: Pace) -> Self {
        Self { pace, credit: pace.ahead + pace.interval, at: 0 }
    }

    fn takes(&mut self, now: u64) -> bool {
        let most = self.pace.ahead + self.pace.interval;
        self.credit = most.min(self.credit + now - self.at);
        self.at = now;
        let takes = self.credit >= self.pace.interval;
        self.credit -= if takes { self.pace.interval } else { 0 };
        takes
    }
}

fn pace(random: &mut SmallRng) -> (Pace, u64) {
    let (interval, burst) = (random.random_range(1..1000), random.random_range(1..20));
    (Pace { interval, ahead: interval * (burst - 1) }, burst)
}

/// No window from one of `turns` to another holds more than the burst and what is due in its time.
fn assert_bounded(turns: &mut [u64], pace: Pace, burst: u64) {
    turns.sort_unstable();
    for (first, from) in turns.iter().enumerate() {
        for (last, to) in turns.iter().enumerate().skip(first) {
            let count = (last - first + 1) as u64;
            let most = burst + (to - from) / pace.interval;
            assert!(count <= most, "{count} from {from} to {to}: {turns:?}, {pace:?}");
        }
    }
}

#[test]
fn who_does_not_wait_gets_just_what_a_bucket_of_tokens_gives() {
    let mut random = SmallRng::seed_from_u64(1);
    for _ in 0..5_000 {
        let (pace, burst) = pace(&mut random);
        let (bucket, mut model, mut now) = (Bucket::default(), Model::new(pace), 0);
        let (short, mut turns) = (Bucket::default(), Vec::new());
        for _ in 0..60 {
            now += random.random_range(0..pace.interval * 2);
            let took = bucket.take(now, pace, 0);
            let left = |took| if let Took::Turn { left, .. } = took { Some(left) } else { None };
            assert_eq!(short.take_now(now, pace), left(took), "the short way, at {now}");
            assert_eq!(matches!(took, Took::Turn { .. }), model.takes(now), "{took:?} at {now}");
            match took {
                Took::Turn { at, left } => {
                    assert_eq!(at, now);
                    assert_eq!(u64::from(left), model.credit / pace.interval);
                    turns.push(at);
                }
                Took::Nothing { again } => {
                    assert_eq!(again, pace.interval - model.credit, "at {now}");
                }
            }
        }
        assert_bounded(&mut turns, pace, burst);
    }
}

#[test]
fn however_many_wait_and_leave_no_window_gets_more_than_it_holds() {
    let mut random = SmallRng::seed_from_u64(2);
    let mut reused = 0;
    for _ in 0..5_000 {
        let (pace, burst) = pace(&mut random);
        let (bucket, mut now) = (Bucket::default(), 0);
        let (mut turns, mut waiting): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut latest = 0;
        for _ in 0..80 {
            now += random.random_range(0..pace.interval);
            let (due, later): (Vec<u64>, Vec<u64>) = waiting.iter().partition(|at| **at <= now);
            turns.extend(due);
            waiting = later;
            if !waiting.is_empty() && random.random_bool(0.3) {
                let at = waiting.swap_remove(random.random_range(0..waiting.len()));
                bucket.give_back(at, pace);
                continue;
            }
            let patience = random.random_range(0..pace.interval * 5);
            match bucket.take(now, pace, patience) {
                Took::Turn { at, .. } if at == now => turns.push(at),
                Took::Turn { at, .. } => {
                    assert!(at > now && at - now <= patience);
                    reused += usize::from(at <= latest);
                    latest = latest.max(at);
                    assert!(!waiting.contains(&at), "one turn for two");
                    waiting.push(at);
                }
                Took::Nothing { again } => assert!(again > patience),
            }
        }
        turns.extend(waiting);
        assert_bounded(&mut turns, pace, burst);
    }
    assert!(reused > 1_000, "turns that were given back were used: {reused}");
}

#[test]
fn however_many_threads_take_at_once_none_gets_a_turn_that_is_not_there() {
    for burst in [1, 7, 1000] {
        let pace = Pace { interval: 1000, ahead: 1000 * (burst - 1) };
        let (bucket, clock) = (Arc::new(Bucket::default()), Arc::new(AtomicU64::new(0)));
        let taking = (0..4).map(|_| {
            let (bucket, clock) = (Arc::clone(&bucket), Arc::clone(&clock));
            thread::spawn(move || {
                let mut turns = Vec::new();
                for _ in 0..20_000 {
                    let now = clock.fetch_add(10, Ordering::SeqCst);
                    if let Took::Turn { at, .. } = bucket.take(now, pace, 0) {
                        turns.push(at);
                    }
                }
                turns
            })
        });
        let taking: Vec<_> = taking.collect();
        let taken: usize = taking.into_iter().map(|one| one.join().unwrap().len()).sum();
        let most = usize::try_from(burst + clock.load(Ordering::SeqCst) / pace.interval).unwrap();
        assert!(taken <= most && taken + 2 >= most, "{taken} of {most}");
    }
}

#[test]
fn keys_that_come_by_the_million_make_no_limit_be_forgotten() {
    let pace = Pace { interval: 1_000_000_000, ahead: 0 };
    let buckets = Buckets::new();
    let takes =
        |key: &str, now: u64| matches!(buckets.of(key, now).take(now, pace, 0), Took::Turn { .. });
    assert!(takes("victim", 0) && !takes("victim", 1));
    let passed = (0..200_000).filter(|n| takes(&format!("key-{n}"), 2)).count();
    // Each key has a limit of its own while there is room, and beyond that one for each of 64 shards.
    assert!((65_000..=65_536 + 64).contains(&passed), "{passed}");
    assert_eq!(buckets.len(), 65_536);
    assert!(!takes("victim", 3), "it was forgotten");
    // A second later all limits are unused, and so can be forgotten.
    let now = 2_000_000_000;
    assert!(takes("victim", now) && takes("new", now));
    assert!(buckets.len() < 65_536);
}
