use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

const SERVICE: u64 = 50_000;

/// After how many tenths of a second a limit has settled.
const SETTLED: usize = 150;

/// An upstream of so many servers with one queue. Twice as many requests arrive as it can serve; those that find no
/// place are refused. All times are in microseconds.
struct Upstream {
    servers: usize,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    queue: VecDeque<u64>,
    busy: usize,
    in_flight: usize,
    random: SmallRng,
    served: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    /// Of the request that arrived then.
    End(u64),
}

/// A fixed limit, or what finds one.
enum Limiter {
    Fixed(usize),
    Found(Box<Gradient>, usize),
}

impl Limiter {
    const fn limit(&self) -> usize {
        match self {
            Self::Fixed(limit) | Self::Found(_, limit) => *limit,
        }
    }
}

impl Upstream {
    fn new(servers: usize, seed: u64) -> Self {
        Self {
            servers,
            events: BinaryHeap::from([Reverse((0, Event::Arrival))]),
            queue: VecDeque::new(),
            busy: 0,
            in_flight: 0,
            random: SmallRng::seed_from_u64(seed),
            served: 0,
        }
    }

    /// Goes on until this second. Returns the limits at the end of each of its tenths of a second.
    fn run(&mut self, until: u64, every: u64, limiter: &mut Limiter) -> Vec<usize> {
        let mut limits = Vec::new();
        let mut next = None;
        while let Some(Reverse((at, event))) = self.events.pop() {
            let tick = next.get_or_insert(at + 100_000);
            if at >= *tick {
                limits.push(limiter.limit());
                *tick += 100_000;
            }
            match event {
                Event::Arrival => {
                    let gap = self.random.random_range(0..=2 * every);
                    self.events.push(Reverse((at + gap, Event::Arrival)));
                    if self.in_flight < limiter.limit() {
                        self.in_flight += 1;
                        if let Limiter::Found(gradient, _) = limiter {
                            gradient.begins(self.in_flight, Instant::now());
                        }
                        self.queue.push_back(at);
                    }
                }
                Event::End(begun) => {
                    (self.in_flight, self.busy) = (self.in_flight - 1, self.busy - 1);
                    self.served += 1;
                    if let Limiter::Found(gradient, limit) = limiter {
                        let (now, took) = (1_000 * at, 1_000 * (at - begun));
                        *limit = gradient.ended_at(now, took, Went::Well).unwrap_or(*limit);
                    }
                }
            }
            while self.busy < self.servers
                && let Some(arrived) = self.queue.pop_front()
            {
                self.busy += 1;
                let service = SERVICE * self.random.random_range(80..=120) / 100;
                self.events.push(Reverse((at + service, Event::End(arrived))));
            }
            if at >= until * 1_000_000 {
                break;
            }
        }
        limits
    }
}

/// The smallest fixed limit that serves as much as any.
fn best(servers: usize) -> usize {
    let every = SERVICE / (servers as u64 * 2);
    let served = |limit: usize| {
        let mut upstream = Upstream::new(servers, 1);
        upstream.run(20, every, &mut Limiter::Fixed(limit));
        upstream.served
    };
    let most = served(servers * 2);
    // More places serve no less, so it is searched for by halves.
    let limits: Vec<_> = (1..=servers * 2).collect();
    limits[limits.partition_point(|limit| served(*limit) * 100 < most * 99)]
}

fn within(limits: &[usize], best: usize) -> bool {
    limits.iter().all(|limit| limit.abs_diff(best) * 5 <= best)
}

/// Within fifteen seconds after the upstream has lost half its servers, the limit is within a fifth of the best fixed one,
/// and it stays there: all but the windows in which it measures.
#[test]
fn it_settles_within_a_fifth_of_the_best_limit_when_capacity_is_halved() {
    for (servers, seed) in [(20, 1), (40, 2), (100, 3), (200, 4)] {
        let every = SERVICE / (servers as u64 * 2);
        let mut upstream = Upstream::new(servers, seed);
        let range = Range { initial: 20, min: 1, max: 1_000 };
        let mut limiter = Limiter::Found(Box::new(Gradient::new(range)), 20);
        let before = upstream.run(60, every, &mut limiter);
        let best_before = best(servers);
        let settled = before.iter().skip(100).filter(|limit| within(&[**limit], best_before));
        let share = settled.count() * 100 / (before.len() - 100);
        assert!(share >= 90, "{servers}: {share}% near {best_before}: {before:?}");
        upstream.servers = servers / 2;
        let after = upstream.run(120, every, &mut limiter);
        let best = best(servers / 2);
        let measuring = |limit: usize| limit * 2 <= best * 6 / 5 && limit * 3 >= best;
        let late: Vec<_> = after.iter().copied().skip(SETTLED).collect();
        let near = late.iter().filter(|limit| within(&[**limit], best)).count();
        let measured =
            late.iter().filter(|limit| !within(&[**limit], best) && measuring(**limit)).count();
        assert_eq!(near + measured, late.len(), "{servers}: best {best}: {late:?}");
        assert!(measured * 15 <= late.len(), "{servers}: {measured} of {}", late.len());
    }
}

#[test]
fn a_light_load_keeps_its_places_and_failures_take_some() {
    let mut upstream = Upstream::new(40, 7);
    let range = Range { initial: 20, min: 2, max: 50 };
    let mut limiter = Limiter::Found(Box::new(Gradient::new(range)), 20);
    // A quarter of what it can serve.
    let limits = upstream.run(60, SERVICE / 10, &mut limiter);
    assert!(limits.iter().all(|limit| *limit >= 8), "{limits:?}");
    let Limiter::Found(gradient, _) = limiter else { unreachable!() };
    let fails =
        |at: u64| gradient.ended_at(60_000_000_000 + 1_000_000 * at, 1_000_000, Went::Badly);
    let last = (0..20_000).filter_map(fails).last().unwrap();
    assert_eq!(last, 2);
}
