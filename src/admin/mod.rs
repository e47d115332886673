//! The operators' address: health, metrics, what is configured, reload.
//!
//! It has a thread and a runtime of its own, so that it answers while the workers are busy, and so that
//! nobody who asks it can slow a request down. It knows the process only as something [`Operated`].

pub mod routes;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::Future;
use std::io;
use std::net::TcpListener as StdListener;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::telemetry::metrics;

/// How many connections are served at once.
const CONNECTIONS: usize = 64;

/// How long a head may take to arrive, also on a connection that was kept.
const HEAD: Duration = Duration::from_secs(30);

/// A reload under way: the hash of what was applied, or the diagnostics of what was refused.
pub type Reloading<'a> = Pin<Box<dyn Future<Output = Result<Arc<str>, Json>> + Send + 'a>>;

/// What the operators' address operates.
pub trait Operated: Send + Sync {
    /// The text exposition of all metrics.
    fn metrics(&self) -> String;

    /// Whether requests are wanted.
    fn is_ready(&self) -> bool;

    /// The routes, in order.
    fn routes(&self) -> Json;

    /// The configuration as it was loaded, without the values of variables.
    fn config(&self) -> Json;

    /// Loads the configuration anew.
    fn reload(&self) -> Reloading<'_>;
}

/// One page.
struct Page {
    path: &'static str,
    method: Method,
    says: &'static str,
}

/// All pages, as the index lists them.
static PAGES: [Page; 7] = [
    Page::read("/metrics", "Prometheus metrics."),
    Page::read("/livez", "200 as long as the process runs."),
    Page::read("/readyz", "200 while requests are wanted, 503 once it is stopping."),
    Page::read("/routes", "The routes in order, with what their stacks do."),
    Page::read("/config", "The configuration as it was loaded; values of variables are not shown."),
    Page {
        path: "/reload",
        method: Method::POST,
        says: "Loads the configuration anew. 200 with its hash, or 422 with what is wrong with it.",
    },
    Page::read("/", "This page."),
];

impl Page {
    const fn read(path: &'static str, says: &'static str) -> Self {
        Self { path, method: Method::GET, says }
    }

    fn allow(&self) -> &'static str {
        if self.method == Method::GET { "GET, HEAD" } else { "POST" }
    }
}

/// Serves `operated` on `listener`, on a thread of its own, as long as the process lives.
///
/// # Errors
/// Where the system gives no thread or no runtime.
pub fn start(listener: StdListener, operated: Arc<dyn Operated>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let driver = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = driver.enter();
        TcpListener::from_std(listener)?
    };
    std::thread::Builder::new()
        .name("admin".into())
        .spawn(move || driver.block_on(accept(listener, operated)))?;
    Ok(())
}

async fn accept(listener: TcpListener, operated: Arc<dyn Operated>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: give the process time to close some.
                tracing::warn!(%error, "The admin address cannot accept.");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let operated = Arc::clone(&operated);
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let operated = Arc::clone(&operated);
            async move {
                let answer = answer(&*operated, request.method(), request.uri().path()).await;
                Ok::<_, Infallible>(answer)
            }
        });
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD);
            let ended = http.serve_connection(TokioIo::new(stream), service).await;
            if let Err(error) = ended {
                tracing::debug!(%error, "An admin connection ended early.");
            }
            drop(permit);
        });
    }
}

/// The answer to one request. What it sends with a body is not read.
async fn answer(operated: &dyn Operated, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let Some(page) = PAGES.iter().find(|page| page.path == path) else {
        return text(StatusCode::NOT_FOUND, "no such page; `/` lists them\n".into());
    };
    let head = method == Method::HEAD && page.method == Method::GET;
    if !head && *method != page.method {
        let mut response = text(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{path} is asked with {}\n", page.allow()),
        );
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(page.allow()));
        return response;
    }
    // The HTTP library sends the length of a HEAD's body, and no body.
    match path {
        "/metrics" => body(StatusCode::OK, metrics::CONTENT_TYPE, operated.metrics()),
        "/livez" => text(StatusCode::OK, "live\n".into()),
        "/readyz" if operated.is_ready() => text(StatusCode::OK, "ready\n".into()),
        "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n".into()),
        "/routes" => json(StatusCode::OK, &operated.routes()),
        "/config" => json(StatusCode::OK, &operated.config()),
        "/reload" => match operated.reload().await {
            Ok(hash) => json(StatusCode::OK, &json!({ "hash": *hash })),
            Err(found) => json(StatusCode::UNPROCESSABLE_ENTITY, &json!({ "diagnostics": found })),
        },
        _ => body(StatusCode::OK, "text/html; charset=utf-8", index()),
    }
}

fn index() -> String {
    let mut rows = String::new();
    for Page { path, method, says } in &PAGES {
        let name = match *method {
            Method::GET => format!("<a href=\"{path}\">{path}</a>"),
            _ => format!("{method} {path}"),
        };
        // Writing to a string does not fail.
        writeln!(rows, "<tr><td>{name}</td><td>{says}</td></tr>").ok();
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>mwl-proxy</title></head>\n\
         <body><h1>mwl-proxy {}</h1>\n<table>\n{rows}</table>\n</body></html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    body(status, "text/plain; charset=utf-8", text)
}

fn json(status: StatusCode, value: &Json) -> Response<Full<Bytes>> {
    body(status, "application/json", format!("{value:#}\n"))
}

fn body(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::sync::Mutex;

    /// Gives fixed answers.
    struct Fixed {
        ready: bool,
        reload: Mutex<Result<Arc<str>, Json>>,
    }

    impl Operated for Fixed {
        fn metrics(&self) -> String {
            "mwl_requests_total 1\n".into()
        }

        fn is_ready(&self) -> bool {
            self.ready
        }

        fn routes(&self) -> Json {
            json!([{ "name": "pay" }])
        }

        fn config(&self) -> Json {
            json!({ "hash": "abc" })
        }

        fn reload(&self) -> Reloading<'_> {
            let result = self.reload.lock().unwrap().clone();
            Box::pin(async { result })
        }
    }

    async fn ask(fixed: &Fixed, method: Method, path: &str) -> (u16, String, String) {
        let response = answer(fixed, &method, path).await;
        let (head, body) = response.into_parts();
        let header =
            |name| head.headers.get(name).map_or("", |v: &HeaderValue| v.to_str().unwrap());
        let allow = header(ALLOW);
        let kind = if allow.is_empty() { header(CONTENT_TYPE) } else { allow };
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), kind.to_owned(), String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn each_page_answers_its_methods() {
        let fixed = Fixed { ready: true, reload: Mutex::new(Ok("abc".into())) };
        for (method, path, status, kind) in [
            (Method::GET, "/metrics", 200, metrics::CONTENT_TYPE),
            (Method::HEAD, "/metrics", 200, metrics::CONTENT_TYPE),
            (Method::GET, "/livez", 200, "text/plain; charset=utf-8"),
            (Method::GET, "/readyz", 200, "text/plain; charset=utf-8"),
            (Method::GET, "/routes", 200, "application/json"),
            (Method::GET, "/config", 200, "application/json"),
            (Method::GET, "/", 200, "text/html; charset=utf-8"),
            (Method::POST, "/reload", 200, "application/json"),
            (Method::GET, "/reload", 405, "POST"),
            (Method::HEAD, "/reload", 405, "POST"),
            (Method::POST, "/metrics", 405, "GET, HEAD"),
            (Method::GET, "/none", 404, "text/plain; charset=utf-8"),
            (Method::GET, "/metrics/", 404, "text/plain; charset=utf-8"),
        ] {
            let (found, seen, _) = ask(&fixed, method.clone(), path).await;
            assert_eq!((found, seen.as_str()), (status, kind), "{method} {path}");
        }
        let (.., metrics) = ask(&fixed, Method::GET, "/metrics").await;
        assert_eq!(metrics, "mwl_requests_total 1\n");
        let (.., index) = ask(&fixed, Method::GET, "/").await;
        assert!(PAGES.iter().all(|page| index.contains(page.path) && index.contains(page.says)));
    }

    #[tokio::test]
    async fn readiness_and_refusals_show() {
        let found = json!([{ "code": "unknown-key", "line": 7 }]);
        let fixed = Fixed { ready: false, reload: Mutex::new(Err(found)) };
        let (status, _, body) = ask(&fixed, Method::GET, "/readyz").await;
        assert_eq!((status, body.as_str()), (503, "not ready\n"));
        assert_eq!(ask(&fixed, Method::GET, "/livez").await.0, 200);
        let (status, _, body) = ask(&fixed, Method::POST, "/reload").await;
        let body: Json = serde_json::from_str(&body).unwrap();
        assert_eq!(status, 422);
        assert_eq!(body, json!({ "diagnostics": [{ "code": "unknown-key", "line": 7 }] }));
    }
}
