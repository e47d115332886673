//! Random schedules in virtual time, against a model that only keeps what has happened.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::proxy::settings::health::{Question, Share};

const SECOND: Duration = Duration::from_secs(1);

fn ejection(failures: u32, base: u64, max: u64, share: f64) -> Ejection {
    Ejection {
        consecutive_failures: failures,
        base_time: SECOND * u32::try_from(base).unwrap(),
        max_time: SECOND * u32::try_from(max).unwrap(),
        max_share: Share::new(share),
    }
}

fn health(healthy_after: u32, unhealthy_after: u32) -> Health {
    let question = Question::Grpc { service: "".into() };
    Health { question, interval: SECOND, timeout: SECOND, healthy_after, unhealthy_after }
}

fn group(health: Option<&Health>, ejection: Option<Ejection>) -> Arc<EndpointGroup> {
    EndpointGroup::new("u".into(), health, ejection, &Metrics::new())
}

fn members(group: &Arc<EndpointGroup>, count: usize) -> Vec<Arc<Condition>> {
    (0..count).map(|number| Condition::new(&number.to_string().into(), group)).collect()
}

/// Something that happens to an endpoint.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Succeeds,
    Fails,
    CheckIs(bool),
    Drain,
    Restore,
}

fn happens() -> impl Strategy<Value = Happens> {
    use Happens::{CheckIs, Drain, Fails, Restore, Succeeds};
    prop_oneof![
        2 => Just(Succeeds),
        6 => Just(Fails),
        4 => any::<bool>().prop_map(CheckIs),
        1 => Just(Drain),
        1 => Just(Restore),
    ]
}

/// One of several endpoints, what happens to it, and how many milliseconds pass first.
fn schedule(endpoints: usize) -> impl Strategy<Value = Vec<(usize, Happens, u64)>> {
    vec((0..endpoints, happens(), 0..1500_u64), 1..120)
}

fn happen(condition: &Condition, happens: Happens, now: Instant) {
    match happens {
        Happens::Succeeds => condition.report(Reported::Success, now),
        Happens::Fails => condition.report(Reported::Failure(Cause::Status), now),
        Happens::CheckIs(true) => condition.checked(Ok(()), now),
        Happens::CheckIs(false) => condition.checked(Err("bad".into()), now),
        Happens::Drain => condition.drain(now),
        Happens::Restore => condition.restore(now),
    }
}

/// All that has happened to an endpoint, each with its time. What it is follows from that anew each time.
#[derive(Debug, Default)]
struct Model {
    checks: Vec<bool>,
    drained: bool,
    /// The failures in a row.
    failures: u32,
    /// When each ejection began and ended.
    ejections: Vec<(Instant, Instant)>,
}

impl Model {
    /// Healthy until as many bad checks follow each other as it takes, and so on.
    fn healthy(&self, rules: &Health) -> bool {
        let (mut healthy, mut from) = (true, 0);
        for at in 0..self.checks.len() {
            let needed = if healthy { rules.unhealthy_after } else { rules.healthy_after } as usize;
            let last = &self.checks[from..=at];
            if last.len() >= needed && last[last.len() - needed..].iter().all(|ok| *ok != healthy) {
                (healthy, from) = (!healthy, at + 1);
            }
        }
        healthy
    }

    fn ejected(&self, now: Instant) -> bool {
        self.ejections.last().is_some_and(|(_, until)| *until > now)
    }

    fn well(&self, rules: &Health, now: Instant) -> bool {
        self.healthy(rules) && !self.drained && !self.ejected(now)
    }

    /// How often it was ejected, the next included, without a pause of `maxTime`.
    fn in_succession(&self, now: Instant, rules: Ejection) -> u32 {
        let mut next = now;
        let mut count = 1;
        for (begun, until) in self.ejections.iter().rev() {
            if next.duration_since(*until) >= rules.max_time {
                break;
            }
            (next, count) = (*begun, count + 1);
        }
        count
    }
}

proptest! {
    /// One endpoint of many others is what the model says, whatever happens.
    #[test]
    fn an_endpoint_is_what_has_happened_to_it(
        schedule in schedule(1), healthy in 1..4_u32, unhealthy in 1..4_u32,
        failures in 1..4_u32, base in 1..4_u64, max in 4..9_u64,
    ) {
        let (health, rules) = (health(healthy, unhealthy), ejection(failures, base, max, 1.0));
        let group = group(Some(&health), Some(rules));
        let all = members(&group, 3);
        let (condition, mut model) = (&all[0], Model::default());
        let mut now = Instant::now();
        for (_, happens, passes) in schedule {
            now += Duration::from_millis(passes);
            let was_well = model.well(&health, now);
            prop_assert_eq!(condition.is_well_at(now), was_well, "before {:?}", happens);
            happen(condition, happens, now);
            match happens {
                Happens::Succeeds => model.failures = 0,
                Happens::Fails if was_well => {
                    model.failures += 1;
                    if model.failures == failures {
                        let time = rules.base_time * model.in_succession(now, rules);
                        model.ejections.push((now, now + time.min(rules.max_time)));
                        model.failures = 0;
                    }
                }
                Happens::Fails => {}
                Happens::CheckIs(good) => model.checks.push(good),
                Happens::Drain => model.drained = true,
                Happens::Restore => model.drained = false,
            }
            prop_assert_eq!(condition.is_well_at(now), model.well(&health, now), "after {:?}", happens);
            let state = condition.state(now);
            let unhealthy = condition.lock().machine.is_unhealthy();
            prop_assert_eq!(unhealthy, !model.healthy(&health));
            prop_assert_eq!(condition.is_drained(), model.drained);
            let (good, bad) = state.checks;
            prop_assert_eq!(good + bad, model.checks.len() as u64);
            prop_assert_eq!(state.ejected.is_some(), model.ejected(now));
            prop_assert_eq!(state.failures, model.failures);
            prop_assert_eq!(state.standing == Standing::Up, model.well(&health, now));
        }
    }

    /// However attempts fail, no more are ejected than may be, and never the last that is well.
    #[test]
    fn some_endpoint_stays(
        schedule in schedule(5), endpoints in 1..6_usize, share in 0.0..1.0_f64,
    ) {
        let (health, rules) = (health(1, 1), ejection(1, 2, 6, share));
        let group = group(Some(&health), Some(rules));
        let all = members(&group, endpoints);
        let most = Share::new(share).of(endpoints).max(1).min(endpoints - 1);
        let mut now = Instant::now();
        for (endpoint, happens, passes) in schedule {
            now += Duration::from_millis(passes);
            let Some(condition) = all.get(endpoint) else { continue };
            let well = all.iter().filter(|condition| condition.is_well_at(now)).count();
            happen(condition, happens, now);
            let ejected = all.iter().filter(|condition| condition.is_ejected(now)).count();
            prop_assert!(ejected <= most, "{} of {} at {}", ejected, endpoints, share);
            let left = all.iter().filter(|condition| condition.is_well_at(now)).count();
            if matches!(happens, Happens::Fails) {
                prop_assert!(left > 0 || well == 0);
            }
        }
    }
}

#[test]
fn each_ejection_lasts_longer_until_it_has_stayed_in_for_long() {
    let group = group(None, Some(ejection(2, 10, 25, 0.5)));
    let all = members(&group, 2);
    let mut now = Instant::now();
    let mut times = Vec::new();
    for pause in [0, 1, 1, 1, 25] {
        now += SECOND * pause;
        all[0].report(Reported::Failure(Cause::Status), now);
        assert!(all[0].is_well_at(now), "one failure is not two");
        all[0].report(Reported::Failure(Cause::ResponseTimeout), now);
        let state = all[0].state(now);
        let (left, cause) = state.ejected.unwrap();
        assert_eq!((state.standing, cause), (Standing::Ejected, Cause::ResponseTimeout));
        times.push(left.as_secs());
        assert_eq!(group.settle(now), Some(now + left));
        now += left;
        assert!(all[0].is_well_at(now));
        assert_eq!(group.settle(now), None);
    }
    assert_eq!(times, [10, 20, 25, 25, 10]);
}

#[test]
fn a_success_between_failures_counts_from_the_beginning() {
    let group = group(None, Some(ejection(3, 1, 1, 0.5)));
    let all = members(&group, 2);
    let now = Instant::now();
    let failed = Reported::Failure(Cause::ConnectionClosed);
    for reported in [failed, failed, Reported::Success, failed, failed] {
        all[0].report(reported, now);
    }
    assert!(all[0].is_well_at(now));
    assert_eq!(all[0].state(now).failures, 2);
    all[0].report(failed, now);
    assert!(!all[0].is_well_at(now));
}

#[test]
fn without_the_rule_nothing_is_ejected_and_alone_neither() {
    let now = Instant::now();
    for (rule, count) in [(None, 2), (Some(ejection(1, 1, 1, 1.0)), 1)] {
        let group = group(None, rule);
        let all = members(&group, count);
        for _ in 0..9 {
            all[0].report(Reported::Failure(Cause::ConnectionFailed), now);
        }
        assert!(all[0].is_well_at(now), "{count}");
    }
}

#[test]
fn one_that_returns_gets_more_and_more() {
    let group = group(None, Some(ejection(1, 30, 30, 0.5)));
    let all = members(&group, 2);
    let now = Instant::now();
    assert!((all[0].share(now) - 1.0).abs() < f64::EPSILON);
    all[0].report(Reported::Failure(Cause::Status), now);
    let back = now + SECOND * 30;
    let shares = [0, 1, 5, 10, 99].map(|after| all[0].share(back + SECOND * after));
    assert_eq!(shares.map(|share| format!("{share:.2}")), ["0.10", "0.10", "0.50", "1.00", "1.00"]);
    // An operator's drain is no different.
    all[1].drain(back);
    all[1].drain(back + SECOND);
    assert!(all[1].is_drained() && !all[1].is_well_at(back + SECOND * 99));
    all[1].restore(back + SECOND * 99);
    assert!((all[1].share(back + SECOND * 101) - 0.2).abs() < 1e-9);
}

#[test]
fn an_endpoint_that_is_gone_is_not_counted() {
    let group = group(None, Some(ejection(1, 30, 30, 0.5)));
    let mut all = members(&group, 3);
    let now = Instant::now();
    let failed = Reported::Failure(Cause::Status);
    all[0].report(failed, now);
    all[1].report(failed, now);
    assert!(!all[0].is_well_at(now) && all[1].is_well_at(now), "half of three is one");
    all.remove(0);
    all[0].report(failed, now);
    assert!(!all[0].is_well_at(now));
}

#[test]
fn many_threads_eject_no_more_than_may_be() {
    for _ in 0..50 {
        let group = group(None, Some(ejection(1, 30, 30, 0.5)));
        let all = members(&group, 4);
        let now = Instant::now();
        std::thread::scope(|scope| {
            for condition in &all {
                scope.spawn(|| condition.report(Reported::Failure(Cause::Status), now));
            }
        });
        assert_eq!(all.iter().filter(|condition| condition.is_well_at(now)).count(), 2);
    }
}

#[test]
fn what_happens_is_counted_and_shown() {
    let metrics = Metrics::new();
    let health = health(1, 2);
    let rules = Some(ejection(1, 30, 30, 0.5));
    let group = EndpointGroup::new("u".into(), Some(&health), rules, &metrics);
    let all = members(&group, 2);
    let shows = |line: &str| metrics.render().contains(line);
    let now = Instant::now();
    assert!(shows(r#"mwl_endpoint_up{endpoint="0",upstream="u"} 1"#));
    assert!(shows(r#"mwl_endpoint_ejections_total{cause="status",endpoint="0",upstream="u"} 0"#));
    all[0].report(Reported::Failure(Cause::ResponseTimeout), now);
    assert!(shows(r#"mwl_endpoint_up{endpoint="0",upstream="u"} 0"#));
    assert!(shows(
        r#"mwl_endpoint_ejections_total{cause="responseTimeout",endpoint="0",upstream="u"} 1"#
    ));
    group.settle(now + SECOND * 30);
    assert!(shows(r#"mwl_endpoint_up{endpoint="0",upstream="u"} 1"#));
    for _ in 0..2 {
        all[1].checked(Err("answered 500".into()), now);
    }
    assert!(shows(
        r#"mwl_endpoint_ejections_total{cause="healthCheck",endpoint="1",upstream="u"} 1"#
    ));
    let state = all[1].state(now);
    assert_eq!((state.found.as_deref(), state.checks), (Some("answered 500"), (0, 2)));
    // It has another name, and is what it was.
    all[1].rename(&"x".into());
    assert!(shows(r#"mwl_endpoint_up{endpoint="x",upstream="u"} 0"#));
}

#[test]
fn who_was_drained_before_it_was_there_is_drained() {
    let metrics = Metrics::new();
    let group = EndpointGroup::new("u".into(), None, None, &metrics);
    metrics.switches().set(SwitchKind::Drain, &group.switch("1"), None);
    let drained: Vec<_> = members(&group, 3).iter().map(|one| one.is_drained()).collect();
    assert_eq!(drained, [false, true, false]);
}
