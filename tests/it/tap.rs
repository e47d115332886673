//! A listener of `/tap` that does not keep up: it is told, it is counted, and nobody waits for it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mwl_proxy::admin::switches::RetriesState;
use mwl_proxy::admin::{self, Backend, Reloading};
use mwl_proxy::telemetry::events::Events;
use mwl_proxy::telemetry::executions::Filter;
use mwl_proxy::telemetry::recordings::Recordings;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::support::law::subject;
use crate::support::watched::PATIENCE;

/// A process that only counts what was missed.
#[derive(Default)]
struct Counting(AtomicU64);

impl Backend for Counting {
    fn metrics(&self) -> String {
        String::new()
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn token(&self) -> Option<Arc<str>> {
        None
    }

    fn routes(&self) -> Value {
        Value::Null
    }

    fn upstreams(&self) -> Value {
        Value::Null
    }

    fn drain(&self, _: &str, _: &str, _: bool) -> Result<Value, String> {
        Err(String::new())
    }

    fn sample(&self) {}

    fn history(&self, _: u64) -> Value {
        Value::Null
    }

    fn explain(&self, _: &[u8], _: &CancellationToken) -> Result<Value, String> {
        Err(String::new())
    }

    fn executions(&self, _: &Filter) -> Value {
        Value::Null
    }

    fn config(&self) -> Value {
        Value::Null
    }

    fn reload(&self) -> Reloading<'_> {
        Box::pin(async { Err(Value::Null) })
    }

    fn recordings(&self) -> Option<&Recordings> {
        None
    }

    fn switch_retries(&self, _: &str, _: RetriesState) -> Option<Value> {
        None
    }

    fn missed(&self, events: u64) {
        self.0.fetch_add(events, Ordering::Relaxed);
    }
}

#[test]
fn a_listener_that_lags_is_told_how_much_it_missed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let counting = Arc::new(Counting::default());
    admin::start(listener, Arc::clone(&counting) as Arc<dyn Backend>).unwrap();
    let mut lazy = TcpStream::connect(address).unwrap();
    lazy.set_read_timeout(Some(PATIENCE)).unwrap();
    lazy.write_all(b"GET /tap HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    let mut until = |before: &str, after: &str| loop {
        let found = text.split_once(before).and_then(|(_, rest)| rest.split_once(after));
        if let Some((between, _)) = found {
            return between.to_owned();
        }
        let mut piece = [0; 8192];
        let read = lazy.read(&mut piece).expect(before);
        assert!(read > 0, "no {before}");
        text = format!("{}{}", tail(&text), String::from_utf8_lossy(&piece[..read]));
    };
    until(": listening", "\n");
    // More than the sockets between us and the queue before them can hold, whatever their size.
    let route = Arc::from("lagging");
    for number in 0..100_000 {
        let id = number.to_string();
        drop(Events::begin(|| (subject(&id), "GET", "/"), &route));
    }
    let told = until("event: missed\ndata: ", "\n");
    let missed = serde_json::from_str::<Value>(&told).unwrap()["missed"].as_u64().unwrap();
    assert!(missed > 0);
    assert!(counting.0.load(Ordering::Relaxed) >= missed);
}

/// What may be the beginning of what is waited for.
fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(1024);
    (from..=text.len()).find_map(|from| text.get(from..)).unwrap_or_default()
}
