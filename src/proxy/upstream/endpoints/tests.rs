use proptest::prelude::*;

use super::*;
use crate::proxy::settings::Balance;
use crate::proxy::upstream::condition::SLOW_START;
use crate::proxy::upstream::testing::settings;

fn endpoints(authorities: &[&str]) -> (Endpoints, settings::Upstream) {
    let settings = settings(authorities);
    (Endpoints::new(&settings, &Metrics::new()), settings)
}

fn addresses(of: &[&str]) -> Vec<SocketAddr> {
    of.iter().map(|address| address.parse().unwrap()).collect()
}

/// Each endpoint's name and id.
fn listed(endpoints: &Endpoints) -> Vec<(String, u64)> {
    let present = endpoints.present();
    present.iter().map(|state| (state.name().to_string(), state.id)).collect()
}

fn names(endpoints: &Endpoints) -> Vec<String> {
    listed(endpoints).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn each_address_of_a_name_is_an_endpoint() {
    let (endpoints, settings) = endpoints(&["127.0.0.1:80", "a.test:80", "127.0.0.9:80"]);
    let at = (1, &settings.endpoints[1]);
    let before = endpoints.present();
    assert_eq!(names(&endpoints), ["127.0.0.1:80", "a.test:80", "127.0.0.9:80"]);
    assert!(before[1].address.is_none() && before[0].address.is_some());
    endpoints.found(at, &addresses(&["10.0.0.2:80"]));
    // A name with one address keeps its name.
    assert_eq!(names(&endpoints), ["127.0.0.1:80", "a.test:80", "127.0.0.9:80"]);
    assert!(before[1].is_gone(), "it had no address");
    let one = endpoints.present();
    endpoints.found(at, &addresses(&["10.0.0.3:80", "10.0.0.2:80"]));
    let two = listed(&endpoints);
    assert_eq!(names(&endpoints), ["127.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "127.0.0.9:80"]);
    assert_eq!(two[1].1, one[1].id, "what is known about an address that stays is kept");
    assert!(!one[1].is_gone());
    endpoints.found(at, &addresses(&["10.0.0.3:80"]));
    assert_eq!(listed(&endpoints)[1], ("a.test:80".to_owned(), two[2].1));
    assert!(one[1].is_gone());
    // One that comes back is another one.
    endpoints.found(at, &addresses(&["10.0.0.2:80"]));
    assert!(listed(&endpoints)[1].1 > two[2].1);
}

/// A worker that has nothing to do does not keep its series and its condition.
#[test]
fn nobody_keeps_an_endpoint_that_is_gone() {
    let (endpoints, settings) = endpoints(&["a.test:80"]);
    let at = (0, &settings.endpoints[0]);
    let view = Arc::new(Mutex::new(View::new()));
    endpoints.shown_by(&view);
    endpoints.found(at, &addresses(&["10.0.0.2:80", "10.0.0.3:80"]));
    view.lock().unwrap().refresh(&endpoints);
    let left = Arc::downgrade(&endpoints.present()[1]);
    endpoints.found(at, &addresses(&["10.0.0.2:80"]));
    assert!(left.upgrade().is_none());
}

#[test]
fn what_is_known_outlives_another_name() {
    let (endpoints, settings) = endpoints(&["a.test:80"]);
    let at = (0, &settings.endpoints[0]);
    endpoints.found(at, &addresses(&["10.0.0.2:80"]));
    endpoints.present()[0].condition().drain(Instant::now());
    endpoints.found(at, &addresses(&["10.0.0.2:80", "10.0.0.3:80"]));
    let drained: Vec<bool> =
        endpoints.present().iter().map(|state| state.condition().is_drained()).collect();
    assert_eq!(drained, [true, false]);
}

#[test]
fn a_name_s_endpoints_are_of_one_family() {
    let of = |found: &[&str]| chosen(&addresses(found));
    // As many of each: the family that the resolver puts first.
    assert_eq!(of(&["[::1]:80", "127.0.0.1:80"]), addresses(&["[::1]:80"]));
    assert_eq!(of(&["127.0.0.1:80", "[::1]:80"]), addresses(&["127.0.0.1:80"]));
    let more = ["[::1]:80", "127.0.0.9:80", "127.0.0.1:80", "127.0.0.9:80"];
    assert_eq!(of(&more), addresses(&["127.0.0.1:80", "127.0.0.9:80"]));
}

/// Endpoints with these weights, a view of them, and draws.
fn weighted(weights: &[u32]) -> (Endpoints, View, Draws) {
    let names: Vec<_> = (1..=weights.len()).map(|host| format!("127.0.0.{host}:80")).collect();
    let mut settings = settings(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for (at, weight) in settings.endpoints.iter_mut().zip(weights) {
        at.weight = *weight;
    }
    let (endpoints, mut view) = (Endpoints::new(&settings, &Metrics::new()), View::new());
    view.refresh(&endpoints);
    (endpoints, view, Draws::seeded(7))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Where all endpoints are well, not all of them are looked at. The choices are the same.
    #[test]
    fn the_short_way_chooses_as_the_long_one(
        weights in prop::collection::vec(1_u32..3, 2..6),
        kind in 0..3,
        loads in prop::collection::vec(0_usize..6, 40),
    ) {
        let balance = match kind {
            0 => Balance::LeastRequest,
            1 => Balance::RoundRobin,
            _ => Balance::Random,
        };
        let (short, long) = (weighted(&weights), weighted(&weights));
        let tried = Tried::default();
        for load in loads {
            let choose = |(endpoints, view, draws): &(Endpoints, View, Draws), long: bool| {
                for (place, state) in endpoints.present().iter().enumerate() {
                    state.kept.in_flight.store(load * place % 5, Ordering::Relaxed);
                }
                let choice = Choice { balance: &balance, tried: &tried, key: None, draws };
                prop_assert!(endpoints.group.is_steady());
                let chosen = if long {
                    view.weigh(endpoints, choice).map(Arc::clone)
                } else {
                    view.choose(endpoints, choice)
                };
                Ok(chosen.map(|chosen| chosen.place))
            };
            prop_assert_eq!(choose(&short, false)?, choose(&long, true)?);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn endpoints_are_steady_while_none_is_out_or_has_just_returned() {
    let (endpoints, settings) = endpoints(&["127.0.0.1:80", "a.test:80"]);
    let (group, now) = (Arc::clone(&endpoints.group), Instant::now);
    endpoints.found((1, &settings.endpoints[1]), &addresses(&["10.0.0.2:80", "10.0.0.3:80"]));
    let present = endpoints.present();
    assert!(group.is_steady());
    present[0].condition().drain(now());
    present[0].condition().drain(now());
    present[1].condition().drain(now());
    present[0].condition().restore(now());
    assert!(!group.is_steady(), "another one is out");
    drop(present);
    endpoints.found((1, &settings.endpoints[1]), &addresses(&["10.0.0.3:80"]));
    assert!(!group.is_steady(), "the first one has only just returned");
    tokio::time::advance(SLOW_START).await;
    assert!(group.is_steady(), "and one that is gone does not count");
}

#[test]
fn an_attempt_that_goes_on_is_only_held_against_those_beside_it() {
    let (endpoints, view, _) = weighted(&[1, 1]);
    let picked = |shared: &SharedTried, beside| {
        let mut seen = None;
        let chosen = shared.pick(beside, |tried: &Tried| {
            seen = tried.last(false, |_| true);
            view.first()
        });
        assert!(chosen.is_some());
        seen
    };
    let id = endpoints.present()[0].id;
    let (apart, beside) = (SharedTried::default(), SharedTried::default());
    assert_eq!([picked(&apart, false), picked(&apart, false)], [None, None]);
    apart.fail(id);
    assert_eq!(picked(&apart, false), Some(id));
    apart.forget(id);
    assert_eq!(picked(&apart, false), None);
    assert_eq!([picked(&beside, true), picked(&beside, true)], [None, Some(id)]);
    beside.forget(id);
    assert_eq!(picked(&beside, true), None);
}
