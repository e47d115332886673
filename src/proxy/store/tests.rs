use std::net::Ipv4Addr;
use std::time::Duration;

use super::*;
use crate::telemetry::metrics::Metrics;

const TIMEOUT: Duration = Duration::from_millis(50);

/// A store at this port, whose decisions may take so long.
fn store(port: u16) -> Arc<Store> {
    let settings = settings::store::Store {
        name: "fleet".into(),
        host: Ipv4Addr::LOCALHOST.to_string().into(),
        port,
        tls: None,
        database: 0,
        user: None,
        password: None,
        timeout: TIMEOUT,
        on_error: OnError::Deny,
        prefix: "mwl".into(),
    };
    Store::of(settings, &Metrics::new())
}

/// The system accepts the connection, and nobody ever reads from it.
#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_the_timeout() {
    let silent = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let store = store(silent.local_addr().unwrap().port());
    let (begun, mut errors) = (Instant::now(), Vec::new());
    while begun.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        let decided = store.ask::<i64>(Script::ALL[0], "key", &[]).await;
        let took = asked.elapsed();
        match decided.unwrap_err() {
            StoreError::Late => assert!((TIMEOUT..TIMEOUT + TIMEOUT / 10).contains(&took)),
            // Once it is known to be gone, nobody waits at all.
            StoreError::Down(reason) => {
                assert_eq!((&*reason, took), ("connecting took too long", Duration::ZERO));
                sleep(TIMEOUT).await;
                errors.push("down");
                continue;
            }
            other => panic!("{other}"),
        }
        errors.push("late");
    }
    let late = errors.iter().take_while(|error| **error == "late").count();
    assert!((15..=20).contains(&late), "{errors:?}");
    assert!(errors[late..].iter().all(|error| *error == "down"), "{errors:?}");
}
