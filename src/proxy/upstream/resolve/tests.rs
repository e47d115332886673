use super::*;
use crate::proxy::io::Io;
use crate::proxy::upstream::IdleConnection;
use crate::proxy::upstream::h1::Http1Connection;
use crate::proxy::upstream::shared::UpstreamRegistry;
use crate::proxy::upstream::testing::settings;
use crate::telemetry::metrics::Metrics;

fn addresses(of: &[&str]) -> Addresses {
    of.iter().map(|address| address.parse().unwrap()).collect()
}

/// Whether a connection to `peer` leads to this endpoint.
fn lead(names: &NameCache, endpoint: usize, peer: &str) -> bool {
    names.lead(endpoint, Some(peer.parse().unwrap()))
}

fn names() -> NameCache {
    NameCache::new(Arc::new(System), 2)
}

#[test]
fn families_take_turns_and_an_address_comes_once() {
    let found = addresses(&["[::1]:80", "[::2]:80", "[::1]:80", "[::3]:80", "1.1.1.1:80"]);
    let wanted = addresses(&["[::1]:80", "1.1.1.1:80", "[::2]:80", "[::3]:80"]);
    assert_eq!(in_turn(&found), wanted);
    assert_eq!(in_turn(&[]), addresses(&[]));
}

#[tokio::test(start_paused = true)]
async fn a_connection_leads_astray_once_its_address_is_gone() {
    let names = names();
    let now = Instant::now();
    let (old, new) = (addresses(&["127.0.0.2:80", "[::1]:80"]), addresses(&["127.0.0.3:80"]));
    names.looked_up(0, 1, Some(&old), now);
    assert!(lead(&names, 0, "127.0.0.9"), "nothing has changed yet");
    // The same addresses in another order are no change.
    names.looked_up(0, 1, Some(&addresses(&["[::1]:80", "127.0.0.2:80"])), now);
    assert!(lead(&names, 0, "127.0.0.9"));
    names.looked_up(0, 1, Some(&new), now);
    assert!(!lead(&names, 0, "127.0.0.2"));
    assert!(lead(&names, 0, "127.0.0.3"));
    assert!(names.lead(0, None), "nobody knows where it leads");
    assert!(lead(&names, 1, "127.0.0.2"), "another endpoint's");
    // A failure says nothing about addresses.
    names.looked_up(0, 1, None, now);
    assert!(lead(&names, 0, "127.0.0.3"));
}

#[tokio::test(start_paused = true)]
async fn names_that_were_found_are_looked_up_again_when_they_are_old() {
    let names = names();
    let now = Instant::now();
    assert_eq!(names.due(now), (vec![], None));
    names.looked_up(1, 1, None, now);
    assert_eq!(names.due(now), (vec![], None), "it was never found");
    names.looked_up(0, 1, Some(&addresses(&["127.0.0.2:80"])), now);
    let then = now + FRESH;
    assert_eq!(names.due(now), (vec![], Some(then)));
    assert_eq!(names.due(then), (vec![0], Some(then + FRESH)));
    // A failed lookup counts too.
    names.looked_up(0, 1, None, then);
    assert_eq!(names.due(then), (vec![], Some(then + FRESH)));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_at_the_same_time_share_a_look_up() {
    let (names, now, patience) = (names(), Instant::now(), Duration::from_secs(1));
    let found = addresses(&["127.0.0.2:80"]);
    let seen = Mutex::new(Vec::new());
    let look_up = |endpoint, now| {
        let begin = |number| {
            seen.lock().unwrap().push((endpoint, number));
            std::future::pending().boxed()
        };
        let Waiting { lookups, until, known } = names.look_up(endpoint, (now, patience), begin);
        (lookups.len(), until.map(|until| until - now), known)
    };
    let at = |millis| now + Duration::from_millis(millis);
    let left = |millis| Some(Duration::from_millis(millis));
    assert_eq!(look_up(0, at(0)), (1, left(1000), None));
    assert_eq!(look_up(0, at(900)), (1, left(100), None));
    assert_eq!(look_up(1, at(900)), (1, left(1000), None));
    // One that hangs gets company, but never a third.
    assert_eq!(look_up(0, at(1000)), (2, None, None));
    assert_eq!(look_up(0, at(9000)), (2, None, None));
    assert_eq!(*seen.lock().unwrap(), [(0, 1), (1, 1), (0, 2)]);
    // The second one ends. Its addresses help those who come while the first still hangs.
    names.looked_up(0, 2, Some(&found), at(9000));
    assert_eq!(look_up(0, at(9000)), (2, left(1000), Some(Arc::clone(&found))));
    // What the first finds at last is older.
    names.looked_up(0, 1, Some(&addresses(&["127.0.0.9:80"])), at(9100));
    assert_eq!(look_up(0, at(9100)), (1, left(900), Some(found)));
    assert_eq!(*seen.lock().unwrap(), [(0, 1), (1, 1), (0, 2), (0, 3)]);
}

/// Resolves to what the test sets.
#[derive(Debug)]
struct Scripted(Mutex<Addresses>);

impl Resolve for Scripted {
    fn resolve(&self, _: Arc<str>, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let says = self.0.lock().unwrap().to_vec();
        Box::pin(std::future::ready(Ok(says)))
    }
}

/// Answers lookups after these times in turn, with the lookup's number as the address' last part; `None` never.
#[derive(Debug)]
struct Delayed(Mutex<(u8, Vec<Option<Duration>>)>);

impl Resolve for Delayed {
    fn resolve(&self, _: Arc<str>, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let mut said = self.0.lock().unwrap();
        said.0 += 1;
        let address = SocketAddr::from(([127, 0, 0, said.0], 80));
        let delay = said.1.remove(0);
        Box::pin(async move {
            match delay {
                Some(delay) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
            Ok(vec![address])
        })
    }
}

/// An upstream with one endpoint.
fn resolved_by(resolver: Arc<dyn Resolve>) -> Arc<Upstream> {
    let shared = UpstreamRegistry::default().upstream(settings(&["u.test:80"]), &Metrics::new());
    Arc::new(Upstream::new(shared, resolver, None))
}

/// Which lookup's addresses a connect uses, and after how many milliseconds.
async fn used(upstream: &Arc<Upstream>) -> (u8, u128) {
    let begun = Instant::now();
    let found = upstream.addresses(0, &upstream.settings.endpoints[0]).await.unwrap();
    let IpAddr::V4(address) = found[0].ip() else { panic!("{found:?}") };
    (address.octets()[3], begun.elapsed().as_millis())
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_hangs_gets_company_and_the_last_addresses_serve_meanwhile() {
    let at_once = Some(Duration::ZERO);
    let after = [None, at_once, Some(Duration::from_millis(300)), None, at_once];
    let upstream = resolved_by(Arc::new(Delayed(Mutex::new((0, after.to_vec())))));
    // Nothing is known yet: the second look-up helps after an eighth of the timeout.
    assert_eq!(used(&upstream).await, (2, 1000));
    // The first one still hangs. A slow one is waited for, and a hanging one is not.
    assert_eq!(used(&upstream).await, (3, 300));
    assert_eq!(used(&upstream).await, (3, 1000));
    // Both hang: nobody waits, and no third one begins.
    assert_eq!(used(&upstream).await, (3, 0));
    assert_eq!(used(&upstream).await, (3, 0));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_goes_when_a_later_look_up_leaves_its_address_out() {
    let resolver = Arc::new(Scripted(Mutex::new(addresses(&["127.0.0.2:80", "127.0.0.3:80"]))));
    let upstream = resolved_by(Arc::clone(&resolver) as _);
    upstream.addresses(0, &upstream.settings.endpoints[0]).await.unwrap();
    let mut far = Vec::new();
    for peer in ["127.0.0.2", "127.0.0.3"] {
        let (near, other) = tokio::io::duplex(64);
        far.push(other);
        let conn = Http1Connection::new(Io::Other(Box::new(near)), upstream.settings.heads);
        let peer = Some(peer.parse().unwrap());
        upstream.metrics.opened();
        upstream.park(IdleConnection { conn, endpoint: 0, peer, line: None });
    }
    *resolver.0.lock().unwrap() = addresses(&["127.0.0.3:80"]);
    tokio::time::sleep(FRESH.mul_f64(0.99)).await;
    assert_eq!(upstream.lock().len(), 2);
    tokio::time::sleep(FRESH.mul_f64(0.02)).await;
    assert_eq!(upstream.lock().len(), 1);
    assert!(upstream.at_hand(0, Instant::now()).is_some());
}
