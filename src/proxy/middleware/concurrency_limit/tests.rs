use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::future::BoxFuture;
use futures_util::poll;
use proptest::prelude::*;
use tokio::time::advance;

use super::*;
use crate::proxy::meaning;

fn places(with: &serde_json::Value) -> Arc<Places> {
    let settings = Settings::read(&Value::from(with.clone()), false).unwrap();
    Arc::new(Places::new(&settings))
}

/// What happens next in a schedule.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A run asks for a place.
    Ask,
    /// One that has a place ends.
    End(usize),
    /// One that waits is interrupted.
    Leave(usize),
    /// Time passes, in milliseconds.
    Pass(u64),
}

/// The law: who has a place, and who waits since when, in the order of arrival.
#[derive(Default)]
struct Model {
    now: u64,
    held: Vec<usize>,
    waiting: VecDeque<(usize, u64)>,
}

impl Model {
    fn hand_on(&mut self, max: usize) {
        while self.held.len() < max
            && let Some((run, _)) = self.waiting.pop_front()
        {
            self.held.push(run);
        }
    }
}

const WAIT: u64 = 100;

async fn play(max: usize, queue: usize, acts: Vec<Act>) {
    let with = serde_json::json!({ "max": max, "queue": queue, "wait": "PT0.1S" });
    let places = places(&with);
    let mut model = Model::default();
    let mut held: Vec<(usize, Place)> = Vec::new();
    let mut waiting: Vec<Waits> = Vec::new();
    for (run, act) in acts.into_iter().enumerate() {
        match act {
            Act::Ask => match places.ask() {
                Admission::Place(place) => {
                    assert!(model.held.len() < max && model.waiting.is_empty());
                    model.held.push(run);
                    held.push((run, place));
                }
                Admission::Queued(waits) => {
                    assert!(model.held.len() == max && model.waiting.len() < queue);
                    model.waiting.push_back((run, model.now));
                    waiting.push((run, Box::pin(waits.place())));
                }
                Admission::Full => {
                    assert!(model.held.len() == max && model.waiting.len() == queue);
                }
            },
            Act::End(which) if !held.is_empty() => {
                let (run, _place) = held.remove(which % held.len());
                model.held.retain(|held| *held != run);
                model.hand_on(max);
            }
            Act::Leave(which) if !waiting.is_empty() => {
                let (run, left) = waiting.remove(which % waiting.len());
                drop(left);
                model.waiting.retain(|(waiting, _)| *waiting != run);
                model.held.retain(|held| *held != run);
                model.hand_on(max);
            }
            Act::Pass(millis) => {
                advance(Duration::from_millis(millis)).await;
                model.now += millis;
            }
            Act::End(_) | Act::Leave(_) => {}
        }
        waiting = settle(waiting, &mut held, &mut model).await;
        assert_eq!((places.taken(), places.waiting()), (model.held.len(), model.waiting.len()));
        assert!(places.taken() <= max && places.waiting() <= queue);
    }
    drop((held, waiting));
    assert!(places.is_idle());
}

/// A run that waits for a place.
type Waits = (usize, BoxFuture<'static, Option<Place>>);

/// A place that is handed on is taken at the next poll; a wait that is over ends then. Returns those that still wait.
async fn settle(
    waiting: Vec<Waits>,
    held: &mut Vec<(usize, Place)>,
    model: &mut Model,
) -> Vec<Waits> {
    let mut still = Vec::new();
    let mut over = Vec::new();
    for (run, mut waits) in waiting {
        match poll!(&mut waits) {
            Poll::Ready(Some(place)) => {
                assert!(model.held.contains(&run), "{run} was not next");
                held.push((run, place));
            }
            Poll::Ready(None) => over.push(run),
            Poll::Pending => still.push((run, waits)),
        }
    }
    let due = |since: u64| model.now >= since + WAIT;
    let late: Vec<_> =
        model.waiting.iter().filter(|(_, since)| due(*since)).map(|(run, _)| *run).collect();
    assert_eq!(over, late);
    model.waiting.retain(|(run, _)| !late.contains(run));
    still
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        5 => Just(Act::Ask),
        3 => any::<usize>().prop_map(Act::End),
        1 => any::<usize>().prop_map(Act::Leave),
        1 => (1..80_u64).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_is_first_in_first_out_and_bounded(
        (max, queue, acts) in (1..4_usize, 0..4_usize, acts()),
    ) {
        let mut clock = tokio::runtime::Builder::new_current_thread();
        clock.enable_time().start_paused(true).build().unwrap().block_on(play(max, queue, acts));
    }
}

#[test]
fn many_threads_never_have_more_places_than_there_are() {
    const THREADS: usize = 4;
    let places = places(&serde_json::json!({ "max": 2, "queue": 100, "wait": "PT1M" }));
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let clock = tokio::runtime::Builder::new_current_thread().enable_all().build();
                clock.unwrap().block_on(async {
                    for _ in 0..500 {
                        let place = match places.ask() {
                            Admission::Place(place) => place,
                            Admission::Queued(waits) => waits.place().await.unwrap(),
                            Admission::Full => unreachable!(),
                        };
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        now.fetch_sub(1, Ordering::SeqCst);
                        drop(place);
                    }
                });
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 2);
    assert!(places.is_idle());
}

#[test]
fn what_is_no_limit_is_refused_with_what_is_wanted() {
    let refused = |with: serde_json::Value| {
        Settings::read(&Value::from(with), false).unwrap_err().message.unwrap().to_string()
    };
    let nothing = serde_json::json!({});
    assert_eq!(refused(nothing), "a limit needs a `max`, or `adaptive: {}`");
    let both = serde_json::json!({ "max": 5, "adaptive": {} });
    assert_eq!(refused(both), "a limit is a `max` or `adaptive`, not both");
    let beyond = serde_json::json!({ "adaptive": { "initial": 20, "max": 10 } });
    let wanted = "`initial` must be from `min` (1) to `max` (10); it is number 20";
    assert_eq!(refused(beyond), wanted);
    let wait = serde_json::json!({ "max": 5, "wait": "soon" });
    let wanted = "`wait` must be an ISO 8601 duration of at least PT0S; it is string \"soon\"";
    assert_eq!(refused(wait), wanted);
}

#[test]
fn a_limit_in_words() {
    let said =
        |with: serde_json::Value, keyed| Settings::read(&Value::from(with), keyed).unwrap().words();
    assert_eq!(said(serde_json::json!({ "max": 10 }), false), "10 at once");
    let queue = serde_json::json!({ "max": 10, "queue": 20, "wait": "PT2S" });
    assert_eq!(said(queue, true), "10 at once for each key, 20 more wait up to PT2S");
    let adaptive = serde_json::json!({ "adaptive": { "max": 50 } });
    assert_eq!(said(adaptive, false), "as many at once as go well, 1 to 50");
}

#[test]
fn a_refusal_says_what_is_full() {
    let said = |refused: Refused| match refused.entry() {
        Entry::Substitute(outcome) => {
            let failure = outcome.failure().unwrap();
            assert_eq!(meaning::of(failure).unwrap().status.as_u16(), 503);
            failure.message.as_deref().unwrap().to_owned()
        }
        other => panic!("{other:?}"),
    };
    let refused = |waiting, waited| Refused { limit: 2, waiting, waited };
    assert_eq!(said(refused(0, None)), "2 at once is the limit");
    assert_eq!(said(refused(3, None)), "2 at once is the limit, and 3 wait");
    let late = refused(3, Some(Duration::from_secs(1)));
    assert_eq!(said(late), "2 at once is the limit, and no place became free within PT1S");
}
