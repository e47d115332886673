use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use tokio::time::{Instant, advance};

use super::settings::Trips;
use super::*;
use crate::language::clock::Clock;
use crate::language::provider::{InstalledFor, LoadId, Role};
use crate::language::temporal::Timestamp;
use crate::proxy::code;
use crate::proxy::meaning::{self, retry_after};
use crate::proxy::middleware::EntryHost;
use crate::proxy::store::Stores;
use crate::source::{Format, Sources};
use crate::telemetry::metrics::Metrics;

/// What happens next in a schedule.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A run begins.
    Begin,
    /// One of those that run ends.
    End(usize, Ending),
    /// Time passes, in milliseconds.
    Pass(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Success,
    Failure,
    /// It is interrupted, or its result says nothing.
    Dropped,
}

/// A run that was let through, and the time to which it belongs.
#[derive(Debug)]
enum Run {
    Passed,
    Probe(Probe),
}

/// The law: a plain list of what happened, and what follows from it.
struct Model {
    settings: Settings,
    mode: Mode,
    /// Milliseconds.
    now: u64,
    until: u64,
    opened: u32,
    in_a_row: u32,
    /// When runs ended while it was closed, and whether they failed.
    results: Vec<(u64, bool)>,
    /// How often it was half-open.
    times: u64,
    /// Probes of this time that run or have succeeded.
    out: u32,
    succeeded: u32,
}

impl Model {
    fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            mode: Mode::Closed,
            now: 0,
            until: 0,
            opened: 0,
            in_a_row: 0,
            results: Vec::new(),
            times: 0,
            out: 0,
            succeeded: 0,
        }
    }

    /// `None`: refused. Else the time whose probe it is; 0 for none.
    fn begin(&mut self) -> Option<u64> {
        if self.mode == Mode::Open && self.now >= self.until {
            self.mode = Mode::HalfOpen;
            self.times += 1;
            (self.out, self.succeeded) = (0, 0);
        }
        match self.mode {
            Mode::Closed => Some(0),
            Mode::Open => None,
            Mode::HalfOpen => (self.out < self.settings.probes).then(|| {
                self.out += 1;
                self.times
            }),
        }
    }

    fn end(&mut self, time: u64, ending: Ending) {
        if time == 0 {
            if self.mode == Mode::Closed && ending != Ending::Dropped {
                let failed = ending == Ending::Failure;
                self.results.push((self.now, failed));
                self.in_a_row = if failed { self.in_a_row + 1 } else { 0 };
                if failed && self.trips() {
                    self.open();
                }
            }
        } else if self.mode == Mode::HalfOpen && self.times == time {
            match ending {
                Ending::Dropped => self.out -= 1,
                Ending::Failure => self.open(),
                Ending::Success => {
                    self.succeeded += 1;
                    if self.succeeded == self.settings.probes {
                        self.mode = Mode::Closed;
                        (self.opened, self.in_a_row) = (0, 0);
                        self.results.clear();
                    }
                }
            }
        }
    }

    fn trips(&self) -> bool {
        match self.settings.trips {
            Trips::Consecutive(most) => self.in_a_row >= most,
            Trips::Share { share, minimum, window } => {
                let slice = u64::try_from(window.as_millis()).unwrap() / 10;
                let recent = |(at, _): &&(u64, bool)| at / slice + 10 > self.now / slice;
                let recent: Vec<_> = self.results.iter().filter(recent).collect();
                let (all, failed) =
                    (recent.len(), recent.iter().filter(|(_, failed)| *failed).count());
                let (all, failed) = (u32::try_from(all).unwrap(), u32::try_from(failed).unwrap());
                all >= minimum && f64::from(failed) >= share * f64::from(all)
            }
        }
    }

    fn open(&mut self) {
        self.opened += 1;
        self.mode = Mode::Open;
        let open_for = self.settings.open_for(self.opened);
        self.until = self.now + u64::try_from(open_for.as_millis()).unwrap();
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let trips = prop_oneof![
        (1..4_u32).prop_map(Trips::Consecutive),
        (1..=10_u32, 1..6_u32, 1..5_u64).prop_map(|(share, minimum, window)| Trips::Share {
            share: f64::from(share) / 10.0,
            minimum,
            window: Duration::from_millis(window * 100),
        }),
    ];
    (trips, 1..4_u32, 1..4_u32, 1..4_u32).prop_map(|(trips, open_for, longer, probes)| {
        let open_for = Duration::from_millis(100) * open_for;
        let open_for_max = open_for * longer;
        Settings { failures: None, trips, open_for, open_for_max, probes, name: None }
    })
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let ending = prop_oneof![
        2 => Just(Ending::Success),
        4 => Just(Ending::Failure),
        1 => Just(Ending::Dropped),
    ];
    let act = prop_oneof![
        5 => Just(Act::Begin),
        4 => (any::<usize>(), ending).prop_map(|(which, ending)| Act::End(which, ending)),
        2 => (1..250_u64).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 1..80)
}

/// Plays a schedule, and compares each answer and the mode after it with the model's.
async fn play(settings: Settings, acts: Vec<Act>) {
    let mut model = Model::new(&settings);
    let breaker = Arc::new(Breaker::new(settings));
    let mut runs: Vec<(u64, Run)> = Vec::new();
    for act in acts {
        match act {
            Act::Begin => {
                let (admission, _) = breaker.admit();
                let run = match admission {
                    Admission::Passes => Some(Run::Passed),
                    Admission::Probe(probe) => Some(Run::Probe(probe)),
                    Admission::Refused(mode, wait) => {
                        assert_eq!(mode, model.mode_after_begin());
                        assert!(!wait.is_zero());
                        None
                    }
                };
                let wanted = model.begin();
                let seen = run.as_ref().map(|run| matches!(run, Run::Probe(_)));
                assert_eq!(seen, wanted.map(|time| time > 0));
                runs.extend(wanted.zip(run));
            }
            Act::End(which, ending) => {
                if runs.is_empty() {
                    continue;
                }
                let (time, run) = runs.remove(which % runs.len());
                match (run, ending) {
                    (_, Ending::Dropped) => {}
                    (Run::Passed, Ending::Success) => breaker.succeeded(),
                    (Run::Passed, Ending::Failure) => drop(breaker.failed().is_some()),
                    (Run::Probe(mut probe), Ending::Success) => drop(probe.succeeded().is_some()),
                    (Run::Probe(mut probe), Ending::Failure) => drop(probe.failed().is_some()),
                }
                model.end(time, ending);
            }
            Act::Pass(millis) => {
                advance(Duration::from_millis(millis)).await;
                model.now += millis;
            }
        }
        assert_eq!(breaker.mode(), model.mode, "after {act:?}");
    }
}

impl Model {
    /// The mode that a run finds that is refused now.
    fn mode_after_begin(&self) -> Mode {
        if self.mode == Mode::Open && self.now >= self.until { Mode::HalfOpen } else { self.mode }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_does_what_the_model_says((settings, acts) in (settings(), acts())) {
        let mut clock = tokio::runtime::Builder::new_current_thread();
        clock.enable_time().start_paused(true).build().unwrap().block_on(play(settings, acts));
    }
}

fn breaker(with: &serde_json::Value) -> Arc<Breaker> {
    Arc::new(Breaker::new(Settings::read(&Value::from(with.clone())).unwrap()))
}

#[test]
fn half_open_lets_exactly_its_probes_through_whoever_asks() {
    const THREADS: usize = 8;
    for round in 1..50 {
        let probes = u32::try_from(round % 5 + 1).unwrap();
        let with = serde_json::json!({ "consecutive": 1, "openFor": "PT0.001S", "probes": probes });
        let breaker = breaker(&with);
        assert_eq!(breaker.failed(), Some(Mode::Open));
        let (let_through, barrier) = (AtomicUsize::new(0), std::sync::Barrier::new(THREADS));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    let mut mine = Vec::new();
                    let mut refused = 0;
                    while refused < 200 {
                        match breaker.admit().0 {
                            Admission::Probe(probe) => {
                                let_through.fetch_add(1, Ordering::SeqCst);
                                mine.push(probe);
                            }
                            Admission::Refused(Mode::Open, _) => {}
                            Admission::Refused(..) => refused += 1,
                            Admission::Passes => unreachable!(),
                        }
                    }
                    barrier.wait();
                    drop(mine);
                });
            }
        });
        assert_eq!(let_through.load(Ordering::SeqCst), usize::try_from(probes).unwrap());
        // All gave their places back.
        let again = (0..10).filter(|_| matches!(breaker.admit().0, Admission::Probe(_)));
        assert!(again.count() >= 1);
    }
}

#[tokio::test(start_paused = true)]
async fn it_stays_open_for_longer_each_time_and_one_success_closes_it() {
    // What APISIX's `api-breaker` does: 2, 4, 8, at most 30 seconds.
    let with = serde_json::json!({ "consecutive": 3, "openFor": "PT2S", "openForMax": "PT30S" });
    let breaker = breaker(&with);
    let mut periods = Vec::new();
    assert_eq!([(); 3].map(|()| breaker.failed()), [None, None, Some(Mode::Open)]);
    for _ in 0..6 {
        let begun = Instant::now();
        let mut probe = loop {
            match breaker.admit().0 {
                Admission::Probe(probe) => break probe,
                Admission::Refused(_, wait) => tokio::time::sleep(wait).await,
                Admission::Passes => unreachable!(),
            }
        };
        periods.push(begun.elapsed().as_secs());
        assert_eq!(probe.failed(), Some(Mode::Open));
    }
    assert_eq!(periods, [2, 4, 8, 16, 30, 30]);
    advance(Duration::from_secs(30)).await;
    let (Admission::Probe(mut probe), Some(Mode::HalfOpen)) = breaker.admit() else { panic!() };
    assert_eq!(probe.succeeded(), Some(Mode::Closed));
    assert_eq!([(); 3].map(|()| breaker.failed()), [None, None, Some(Mode::Open)]);
    assert_eq!(breaker.open_for(), Duration::from_secs(2));
}

#[test]
fn what_is_no_breaker_is_refused_with_what_is_wanted() {
    let refused = |with: serde_json::Value| {
        Settings::read(&Value::from(with)).unwrap_err().message.unwrap().to_string()
    };
    let with = serde_json::json!({ "consecutive": 3, "share": 0.5 });
    assert_eq!(refused(with), "a breaker opens by `consecutive` or by `share`, not by both");
    let with = serde_json::json!({ "window": "PT5S" });
    assert_eq!(refused(with), "`window` belongs to `share`, which is not there");
    let with = serde_json::json!({ "openFor": "PT5S", "openForMax": "PT2S" });
    let wanted =
        "`openForMax` must be an ISO 8601 duration of at least PT5S; it is string \"PT2S\"";
    assert_eq!(refused(with), wanted);
    let with = serde_json::json!({ "share": 1.5 });
    assert_eq!(refused(with), "`share` must be a number above 0 and at most 1; it is number 1.5");
}

#[test]
fn a_breaker_in_words() {
    let said = |with: serde_json::Value| Settings::read(&Value::from(with)).unwrap().words();
    let with = serde_json::json!({});
    assert_eq!(said(with), "opens for PT30S after 5 failures in a row, then 1 probe");
    let with = serde_json::json!({
        "name": "shop", "share": 0.5, "minimum": 10, "window": "PT20S", "openForMax": "PT2M",
        "probes": 3, "failures": { "codes": ["Shop.*"] },
    });
    assert_eq!(
        said(with),
        "`shop` opens for PT30S, doubling up to PT2M after 50% failures of at least 10 runs within PT20S (Shop.*), then 3 probes"
    );
}

#[test]
fn a_refusal_says_when_to_ask_again() {
    let refused = Refused(Mode::Open, Duration::from_micros(1_500_200)).failure();
    assert_eq!(
        refused.message.as_deref(),
        Some("the circuit breaker is open: ask again in PT1.501S")
    );
    assert_eq!(
        (retry_after(&refused), refused.retryable),
        (Some(Duration::from_millis(1501)), Some(true))
    );
    let meaning = meaning::of(&refused).unwrap();
    assert_eq!(
        (meaning.status.as_u16(), meaning.retry_after),
        (503, Some(Duration::from_millis(1501)))
    );
    assert_eq!(meaning::of(&Failure::error("A.B", "x")), None);
}

/// An entry at `r/0` with these arguments, of a load of its own.
fn installed(
    catalog: &dyn Middleware,
    metrics: &Arc<Metrics>,
    with: &serde_json::Value,
) -> Arc<dyn Middleware> {
    let host = Arc::new(EntryHost::new(metrics, Stores::default(), false));
    let host = InstalledFor { route: "r".into(), host };
    let node = Sources::default().parse("x.json", "{}", Format::Json).unwrap();
    let at = Installation {
        load: LoadId::next(),
        host: Some(&host),
        entry: "r/0",
        cleanup: false,
        span: node.span,
        written: None,
        known: Value::from(with.clone()),
        computed: Vec::new(),
        opaque: false,
    };
    let mut found = Diagnostics::default();
    let own = catalog.installed(&at, &mut found).unwrap();
    assert!(found.0.is_empty());
    own
}

#[test]
fn a_load_that_comes_to_nothing_leaves_the_state_and_its_gauge_as_they_are() {
    let (catalog, metrics) = (make(Draws::of(None)), Metrics::new());
    let state = || {
        let text = metrics.render();
        let line = text.lines().find(|line| line.starts_with("mwl_circuit_breaker_state{"));
        line.and_then(|line| line.rsplit(' ').next()).unwrap().to_owned()
    };
    let asker = Asker {
        host: None,
        role: Role::Step,
        clock: Clock::starting_at(Timestamp::from_nanos(0)),
        input: &Value::Null,
    };
    let fails = |entry: &Arc<dyn Middleware>| {
        let nothing: Prepared = Arc::new(());
        let mut own = EntryState::default();
        let wants = entry.on_entry(&mut own, &nothing, asker).unwrap();
        let lost = Arc::new(Failure::error(code::CONNECTION_CLOSED, "x"));
        entry.on_failure(&mut own, &nothing, &lost, asker).unwrap();
        matches!(wants, Entry::Proceed)
    };
    let with = serde_json::json!({ "consecutive": 1 });
    let served = installed(&*catalog, &metrics, &with);
    assert_eq!((fails(&served), state()), (true, "2".to_owned()));
    // Refused: once with equal settings, once with others.
    drop(installed(&*catalog, &metrics, &with));
    drop(installed(&*catalog, &metrics, &serde_json::json!({ "consecutive": 2 })));
    assert_eq!((fails(&served), state()), (false, "2".to_owned()));
    // Served in its place: the state is the same, and outlives the first.
    let next = installed(&*catalog, &metrics, &with);
    drop(served);
    assert_eq!((fails(&next), state()), (false, "2".to_owned()));
    // With other settings it is another one.
    let other = installed(&*catalog, &metrics, &serde_json::json!({ "consecutive": 2 }));
    drop(next);
    assert_eq!((fails(&other), state()), (true, "0".to_owned()));
}
