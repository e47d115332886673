//! What is read and written on a connection, compared with another server and another client.

mod answers;
mod heads;
mod requests;

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{DuplexStream, duplex};

use super::*;
use crate::proxy::settings::Limits;

/// The limits of a listener in these tests.
pub(super) fn limits() -> Limits {
    Limits {
        cleanup: Duration::MAX,
        head_timeout: Duration::MAX,
        idle_timeout: Duration::MAX,
        body_timeout: Duration::MAX,
        minimum_rate: None,
        tunnel_timeout: Duration::MAX,
        head_size: 64 * 1024,
        target_size: 16 * 1024,
        headers: 100,
        streams: 1,
        connections: 1,
        connections_given: false,
        requests: 1,
        cleanups: 1,
        buffered_bytes: 1 << 20,
        workers: 1,
    }
}

fn listed(fields: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let one = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), value.as_bytes().to_vec())
    };
    let mut all: Vec<_> = fields.iter().map(one).collect();
    // Fields of the same name stay in their order.
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

const NOW: HeaderValue = HeaderValue::from_static("Sat, 28 Nov 2026 10:00:00 GMT");

/// An answer without its body.
fn parts(status: u16, fields: &[(&'static str, &[u8])]) -> Parts {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in fields {
        let (name, value) = (HeaderName::from_static(name), HeaderValue::from_bytes(value));
        response.headers_mut().append(name, value.unwrap());
    }
    response.into_parts().0
}

/// The next head; `None` at the end.
async fn next_head(conn: &ClientConnection) -> Result<Option<Head>, Refusal> {
    poll_fn(|cx| {
        loop {
            let mut wire = conn.lock();
            wire.skip_empty_lines();
            if !wire.is_between() && wire.is_worth_parsing() {
                match head::take(&mut wire, &limits()) {
                    Ok(None) => {}
                    head => return Poll::Ready(head),
                }
            }
            if matches!(ready!(wire.poll_read(cx)), Ok(0) | Err(_)) {
                return Poll::Ready(Ok(None));
            }
        }
    })
    .await
}
