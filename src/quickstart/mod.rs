//! The built-in upstream of the quick-start. It fails on purpose, in the same way each time, and
//! remembers the audits posted to `/audit`.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;

/// How many audits are remembered.
const REMEMBERED: usize = 20;

/// The largest audit, in bytes.
const MAX_AUDIT: usize = 16 * 1024;

/// How long `/slow` takes.
const SLOW_DELAY: Duration = Duration::from_secs(10);

/// What the upstream remembers.
#[derive(Debug, Default)]
pub struct Flaky {
    /// How many requests `/flaky` has received.
    tries: AtomicU64,
    /// How many `/throttled` has received.
    throttled: AtomicU64,
    audits: Mutex<Vec<Json>>,
}

/// Starts the upstream on a loopback port that the system chooses. Its thread lives as long as the process.
///
/// # Errors
/// When the system provides no port or no thread.
pub fn start() -> io::Result<SocketAddr> {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let driver = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = driver.enter();
        TcpListener::from_std(listener)?
    };
    std::thread::Builder::new()
        .name("quickstart".into())
        .spawn(move || driver.block_on(accept(listener)))?;
    Ok(address)
}

async fn accept(listener: TcpListener) {
    let flaky = Arc::new(Flaky::default());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let flaky = Arc::clone(&flaky);
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let flaky = Arc::clone(&flaky);
            async move { Ok::<_, Infallible>(flaky.answer(request).await) }
        });
        tokio::spawn(async move {
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if let Err(error) = served.await {
                tracing::debug!(%error, "A connection to the built-in upstream ended early.");
            }
        });
    }
}

impl Flaky {
    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        match (&head.method, head.uri.path()) {
            (_, "/flaky") => self.flaky(),
            (_, "/throttled") => self.throttled(),
            (_, "/slow") => {
                tokio::time::sleep(SLOW_DELAY).await;
                answer(StatusCode::OK, &json!({ "message": "late" }))
            }
            (_, "/charge") => {
                answer(StatusCode::PAYMENT_REQUIRED, &json!({ "upstream": "declined" }))
            }
            (&Method::POST, "/audit") => {
                let body = Limited::new(body, MAX_AUDIT).collect().await;
                let bytes = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                self.remember(&bytes)
            }
            (_, "/audit") => answer(StatusCode::OK, &self.audits().clone().into()),
            (method, path) => {
                let message = format!("{method} {path} reached the upstream");
                answer(StatusCode::OK, &json!({ "message": message }))
            }
        }
    }

    /// 503 twice, then 200; then again from the start.
    fn flaky(&self) -> Response<Full<Bytes>> {
        let seen = self.tries.fetch_add(1, Ordering::Relaxed) + 1;
        if seen.is_multiple_of(3) {
            return answer(StatusCode::OK, &json!({ "message": "the third try", "seen": seen }));
        }
        answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": "try again", "seen": seen }))
    }

    /// 429 with `Retry-After: 2`, then 200; then again from the start.
    fn throttled(&self) -> Response<Full<Bytes>> {
        let seen = self.throttled.fetch_add(1, Ordering::Relaxed) + 1;
        if seen.is_multiple_of(2) {
            return answer(
                StatusCode::OK,
                &json!({ "message": "thanks for waiting", "seen": seen }),
            );
        }
        let body = json!({ "error": "too many requests", "seen": seen });
        let mut response = answer(StatusCode::TOO_MANY_REQUESTS, &body);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("2"));
        response
    }

    fn remember(&self, audit: &[u8]) -> Response<Full<Bytes>> {
        let Ok(audit) = serde_json::from_slice(audit) else {
            let error = json!({ "error": "an audit is JSON" });
            return answer(StatusCode::BAD_REQUEST, &error);
        };
        let mut audits = self.audits();
        audits.push(audit);
        if audits.len() > REMEMBERED {
            audits.remove(0);
        }
        answer(StatusCode::CREATED, &json!({ "remembered": true }))
    }

    fn audits(&self) -> MutexGuard<'_, Vec<Json>> {
        self.audits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer(status: StatusCode, body: &Json) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{body}\n")));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(flaky: &Flaky, method: Method, path: &str, body: &str) -> (u16, Json) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Full::<Bytes>::from(body.to_owned()))
            .unwrap();
        let response = flaky.answer(request).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn it_fails_the_same_way_each_time() {
        let flaky = Flaky::default();
        let mut statuses = Vec::new();
        for path in
            ["/flaky"; 6].iter().chain(&["/throttled"; 4]).chain(&["/charge", "/slow", "/x"])
        {
            statuses.push(ask(&flaky, Method::GET, path, "").await.0);
        }
        let expected = [503, 503, 200, 503, 503, 200, 429, 200, 429, 200, 402, 200, 200];
        assert_eq!(statuses, expected);
    }

    #[tokio::test]
    async fn it_remembers_the_last_audits() {
        let flaky = Flaky::default();
        assert_eq!(ask(&flaky, Method::GET, "/audit", "").await.1, json!([]));
        for n in 0..25 {
            let told = ask(&flaky, Method::POST, "/audit", &format!("{{\"n\":{n}}}")).await;
            assert_eq!(told.0, 201);
        }
        assert_eq!(ask(&flaky, Method::POST, "/audit", "no json").await.0, 400);
        let (_, audits) = ask(&flaky, Method::GET, "/audit", "").await;
        let audits = audits.as_array().unwrap();
        assert_eq!((audits.len(), &audits[0]["n"], &audits[19]["n"]), (20, &json!(5), &json!(24)));
    }
}
