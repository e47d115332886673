use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::proxy::io::Io;
use crate::proxy::upstream::endpoints::Tried;
use crate::proxy::upstream::h1::Http1Connection;
use crate::proxy::upstream::name_cache::FRESH;
use crate::proxy::upstream::shared::UpstreamRegistry;
use crate::proxy::upstream::testing::settings;
use crate::proxy::upstream::{IdleConnection, Wanted};
use crate::telemetry::metrics::Metrics;

fn addresses(of: &[&str]) -> Addresses {
    of.iter().map(|address| address.parse().unwrap()).collect()
}

#[test]
fn families_take_turns_and_an_address_comes_once() {
    let found = addresses(&["[::1]:80", "[::2]:80", "[::1]:80", "[::3]:80", "1.1.1.1:80"]);
    let wanted = addresses(&["[::1]:80", "1.1.1.1:80", "[::2]:80", "[::3]:80"]);
    assert_eq!(in_turn(&found), wanted);
    assert_eq!(in_turn(&[]), addresses(&[]));
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
    let found = upstream.addresses(0).await.unwrap();
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
    upstream.addresses(0).await.unwrap();
    let mut far = Vec::new();
    for peer in ["127.0.0.2:80", "127.0.0.3:80"] {
        let (near, other) = tokio::io::duplex(64);
        far.push(other);
        let conn = Http1Connection::new(Io::Other(Box::new(near)), upstream.settings.heads);
        let peer: SocketAddr = peer.parse().unwrap();
        let endpoint = upstream.at(&upstream.pick(&Tried::default(), None).unwrap(), peer);
        upstream.metrics.opened();
        upstream.park(IdleConnection {
            conn,
            endpoint,
            ends: None,
            peer: Some(peer.ip()),
            line: None,
        });
    }
    *resolver.0.lock().unwrap() = addresses(&["127.0.0.3:80"]);
    tokio::time::sleep(FRESH.mul_f64(0.99)).await;
    assert_eq!(upstream.lock().len(), 2);
    tokio::time::sleep(FRESH.mul_f64(0.02)).await;
    assert_eq!(upstream.lock().len(), 1);
    let left = upstream.pick(&Tried::default(), None).unwrap();
    assert_eq!(&**left.name(), "u.test:80");
    assert!(
        upstream
            .at_hand(
                Wanted { endpoint: &left, ends: None, waits: &AtomicBool::new(false) },
                Instant::now()
            )
            .is_some()
    );
}

/// What is known about endpoints stays when their name is not found, and is shared by the workers.
#[tokio::test(start_paused = true)]
async fn a_failed_look_up_leaves_the_endpoints() {
    let resolver = Arc::new(Scripted(Mutex::new(addresses(&["127.0.0.2:80", "127.0.0.3:80"]))));
    let upstream = resolved_by(Arc::clone(&resolver) as _);
    let other =
        Arc::new(Upstream::new(Arc::clone(&upstream.common), Arc::clone(&resolver) as _, None));
    let first = upstream.pick(&Tried::default(), None).unwrap();
    assert!(first.address.is_none());
    upstream.look(&first).await.unwrap();
    *resolver.0.lock().unwrap() = addresses(&[]);
    let chosen = other.pick(&Tried::default(), None).unwrap();
    assert!(chosen.address.is_some());
    other.look(&chosen).await.unwrap();
    assert_eq!(upstream.common.endpoints.present().len(), 2);
    assert!(!chosen.is_gone() && first.is_gone());
}

#[tokio::test(start_paused = true)]
async fn a_name_has_a_thousand_endpoints_at_most() {
    let address = |at: u32| SocketAddr::from((std::net::Ipv4Addr::from_bits(at), 80));
    let found = (0x0a00_0000..0x0a00_07d0).map(address);
    let upstream = resolved_by(Arc::new(Scripted(Mutex::new(found.collect()))));
    upstream.addresses(0).await.unwrap();
    assert_eq!(upstream.common.endpoints.present().len(), MOST_ADDRESSES);
}
