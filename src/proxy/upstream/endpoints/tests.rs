use super::*;
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
