//! Each page, its methods, and who may read it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http_body_util::Empty;

use super::pages::PAGES;
use super::*;

/// Gives fixed answers.
#[derive(Default)]
pub(super) struct FixedBackend {
    ready: bool,
    token: Option<Arc<str>>,
    reload: Mutex<Option<Json>>,
    pub(super) missed: AtomicU64,
    samples: AtomicU64,
}

impl Backend for FixedBackend {
    fn metrics(&self) -> String {
        "mwl_requests_total 1\n".into()
    }

    fn is_ready(&self) -> bool {
        self.ready
    }

    fn token(&self) -> Option<Arc<str>> {
        self.token.clone()
    }

    fn routes(&self) -> Json {
        json!([{ "name": "pay" }])
    }

    fn upstreams(&self) -> Json {
        json!({ "upstreams": [] })
    }

    fn drain(&self, upstream: &str, endpoint: &str, drains: bool) -> Result<Json, String> {
        let found = (upstream, endpoint) == ("pay", "unix:/run/a.sock");
        if found { Ok(json!(drains)) } else { Err("there is none\n".into()) }
    }

    fn sample(&self) {
        self.samples.fetch_add(1, Ordering::Relaxed);
    }

    fn history(&self, since: u64) -> Json {
        json!({ "since": since })
    }

    fn explain(&self, question: &[u8], stop: &CancellationToken) -> Result<Json, String> {
        match question {
            b"" => Ok(json!({})),
            b"wait" => {
                while !stop.is_cancelled() {
                    std::thread::yield_now();
                }
                Ok(json!({}))
            }
            _ => Err("this is no question\n".into()),
        }
    }

    fn executions(&self, filter: &Filter) -> Json {
        json!([filter.route, format!("{:?}", filter.kind), filter.execution, filter.limit])
    }

    fn config(&self) -> Json {
        json!({ "hash": "abc" })
    }

    fn reload(&self) -> Reloading<'_> {
        let refused = self.reload.lock().unwrap().clone();
        Box::pin(async { refused.map_or_else(|| Ok("abc".into()), Err) })
    }

    fn switch_retries(&self, route: &str, wanted: RetriesState) -> Option<Json> {
        (route == "pay").then(|| json!(format!("{wanted:?}")))
    }

    fn recordings(&self) -> Option<&Recordings> {
        None
    }

    fn missed(&self, events: u64) {
        self.missed.fetch_add(events, Ordering::Relaxed);
    }
}

fn server(fixed: FixedBackend) -> AdminServer {
    AdminServer::new(Arc::new(fixed), IpAddr::from([127, 0, 0, 1]))
}

async fn answer(server: &AdminServer, method: Method, path: &str, auth: &str) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(path).header(HOST, "localhost:9900");
    if !auth.is_empty() {
        request = request.header(AUTHORIZATION, auth);
    }
    server.answer(request.body(Empty::<Bytes>::new()).unwrap()).await
}

async fn ask(server: &AdminServer, method: Method, path: &str) -> (u16, String, String) {
    let (head, body) = answer(server, method, path, "").await.into_parts();
    let header = |name| head.headers.get(name).map_or("", |v: &HeaderValue| v.to_str().unwrap());
    let allow = header(ALLOW);
    let kind = if allow.is_empty() { header(CONTENT_TYPE) } else { allow };
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), kind.to_owned(), String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn each_page_answers_its_methods() {
    let server = server(FixedBackend { ready: true, ..FixedBackend::default() });
    for (method, path, status, kind) in [
        (Method::GET, "/metrics", 200, metrics::CONTENT_TYPE),
        (Method::HEAD, "/metrics", 200, metrics::CONTENT_TYPE),
        (Method::GET, "/livez", 200, "text/plain; charset=utf-8"),
        (Method::GET, "/readyz", 200, "text/plain; charset=utf-8"),
        (Method::GET, "/routes", 200, "application/json"),
        (Method::GET, "/config", 200, "application/json"),
        (Method::GET, "/executions", 200, "application/json"),
        (Method::GET, "/executions?outcome=failure&route=pay", 200, "application/json"),
        (Method::GET, "/executions?outcome=maybe", 400, "text/plain; charset=utf-8"),
        (Method::GET, "/executions?rute=pay", 400, "text/plain; charset=utf-8"),
        (Method::GET, "/executions?limit=0", 400, "text/plain; charset=utf-8"),
        (Method::GET, "/history", 200, "application/json"),
        (Method::GET, "/history?since=7", 200, "application/json"),
        (Method::GET, "/history?since=x", 400, "text/plain; charset=utf-8"),
        (Method::POST, "/explain", 200, "application/json"),
        (Method::GET, "/explain", 405, "POST"),
        (Method::GET, "/tap?rute=pay", 400, "text/plain; charset=utf-8"),
        (Method::HEAD, "/tap", 200, "text/event-stream"),
        (Method::GET, "/", 200, "text/html; charset=utf-8"),
        (Method::POST, "/reload", 200, "application/json"),
        (Method::POST, "/routes/pay/retries?state=off", 200, "application/json"),
        (Method::POST, "/routes/pay/retries", 400, "text/plain; charset=utf-8"),
        (Method::POST, "/routes/other/retries?state=on", 404, "text/plain; charset=utf-8"),
        (Method::GET, "/routes/pay/retries?state=off", 405, "POST"),
        (Method::GET, "/upstreams", 200, "application/json"),
        (Method::GET, "/recordings", 404, "text/plain; charset=utf-8"),
        (Method::GET, "/recordings/a", 404, "text/plain; charset=utf-8"),
        (Method::POST, "/recordings/a/replay", 404, "text/plain; charset=utf-8"),
        (Method::GET, "/recordings/a/replay", 405, "POST"),
        (
            Method::POST,
            "/upstreams/pay/endpoints/unix:%2Frun%2Fa.sock/drain",
            200,
            "application/json",
        ),
        (Method::POST, "/upstreams/app/endpoints/a:1/restore", 404, "text/plain; charset=utf-8"),
        (Method::GET, "/upstreams/app/endpoints/a:1/drain", 405, "POST"),
        (Method::POST, "/upstreams/app/endpoints/a:1/remove", 404, "text/plain; charset=utf-8"),
        (Method::GET, "/reload", 405, "POST"),
        (Method::HEAD, "/reload", 405, "POST"),
        (Method::POST, "/metrics", 405, "GET, HEAD"),
        (Method::DELETE, "/tap", 405, "GET, HEAD"),
        (Method::GET, "/none", 404, "text/plain; charset=utf-8"),
        (Method::GET, "/metrics/", 404, "text/plain; charset=utf-8"),
    ] {
        let (found, seen, _) = ask(&server, method.clone(), path).await;
        assert_eq!((found, seen.as_str()), (status, kind), "{method} {path}");
    }
    let (.., metrics) = ask(&server, Method::GET, "/metrics").await;
    assert_eq!(metrics, "mwl_requests_total 1\n");
    let (.., filter) =
        ask(&server, Method::GET, "/executions?outcome=degraded&route=a%20b&execution=x&limit=9")
            .await;
    assert_eq!(
        serde_json::from_str::<Json>(&filter).unwrap(),
        json!(["a b", "Some(Degraded)", "x", 9])
    );
    let (.., index) = ask(&server, Method::GET, "/none").await;
    assert!(PAGES.iter().all(|page| index.contains(page.path) && index.contains(page.summary)));
    assert!(index.contains("\nGET  /metrics     Prometheus metrics.\n"), "{index}");
}

#[tokio::test]
async fn readiness_and_refusals_show() {
    let found = json!([{ "code": "unknown-key", "line": 7 }]);
    let server =
        server(FixedBackend { reload: Mutex::new(Some(found)), ..FixedBackend::default() });
    let (status, _, body) = ask(&server, Method::GET, "/readyz").await;
    assert_eq!((status, body.as_str()), (503, "not ready\n"));
    assert_eq!(ask(&server, Method::GET, "/livez").await.0, 200);
    let (status, _, body) = ask(&server, Method::POST, "/reload").await;
    let body: Json = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 422);
    assert_eq!(body, json!({ "diagnostics": [{ "code": "unknown-key", "line": 7 }] }));
}

/// A request for `page` that it answers.
fn asked(page: &Page) -> String {
    let query = if page.path.contains("NAME") { "?state=on" } else { "" };
    page.path.replace("NAME", "pay").replace("ADDRESS", "unix:%2Frun%2Fa.sock") + query
}

/// The status of a page for whoever may read it. Nothing is recorded here.
fn of_a_reader(page: &Page) -> u16 {
    if page.path.starts_with("/recordings") { 404 } else { 200 }
}

#[tokio::test]
async fn a_token_opens_all_but_the_probes_and_the_empty_page() {
    let server = server(FixedBackend {
        token: Some("s3cret".into()),
        ready: true,
        ..FixedBackend::default()
    });
    for page in &PAGES {
        let status = async |auth: &str| {
            answer(&server, page.method.clone(), &asked(page), auth).await.status().as_u16()
        };
        let wanted = if page.open { 200 } else { 401 };
        for wrong in
            ["", "Bearer wrong", "Bearer s3cre", "Bearer s3crets", "Basic s3cret", "s3cret"]
        {
            assert_eq!(status(wrong).await, wanted, "{} with `{wrong}`", page.path);
        }
        for right in ["Bearer s3cret", "bearer s3cret"] {
            assert_eq!(status(right).await, of_a_reader(page), "{} with `{right}`", page.path);
        }
    }
    let refused = answer(&server, Method::GET, "/config", "").await;
    assert_eq!(refused.headers()["www-authenticate"], "Bearer realm=\"mwl-proxy\"");
}

/// What a stranger's page can send from an operator's browser: a name of its own, or its origin.
#[tokio::test]
async fn pages_of_strangers_get_the_probes_alone() {
    let strange = async |token: Option<&str>, page: &Page, (name, value)| {
        let fixed =
            FixedBackend { ready: true, token: token.map(Into::into), ..FixedBackend::default() };
        let request = Request::builder().method(page.method.clone()).uri(asked(page));
        let mut request = request.header(HOST, "localhost").body(Empty::<Bytes>::new()).unwrap();
        request.headers_mut().insert(name, HeaderValue::from_static(value));
        let auth = token.map(|token| format!("Bearer {token}").parse().unwrap());
        request.headers_mut().extend(auth.map(|auth| (AUTHORIZATION, auth)));
        server(fixed).answer(request).await.status().as_u16()
    };
    for page in &PAGES {
        let rebound = || (HOST, "rebound.test");
        assert_eq!(strange(None, page, rebound()).await, if page.probe { 200 } else { 421 });
        assert_eq!(
            strange(Some("known"), page, rebound()).await,
            of_a_reader(page),
            "{}",
            page.path
        );
        for token in [None, Some("known")] {
            let wanted = if page.method == Method::POST { 403 } else { of_a_reader(page) };
            let elsewhere = (ORIGIN, "http://elsewhere.test");
            assert_eq!(strange(token, page, elsewhere).await, wanted, "{}", page.path);
        }
    }
}

async fn explained(server: &AdminServer, question: impl Into<Bytes>) -> u16 {
    let request = Request::builder().method(Method::POST).uri("/explain").header(HOST, "localhost");
    server.answer(request.body(Full::new(question.into())).unwrap()).await.status().as_u16()
}

#[tokio::test]
async fn a_question_is_bounded_and_its_mistakes_are_told() {
    let server = server(FixedBackend::default());
    assert_eq!(explained(&server, "").await, 200);
    assert_eq!(explained(&server, "no question").await, 400);
    assert_eq!(explained(&server, vec![b'x'; 16 * 1024 + 1]).await, 413);
}

#[tokio::test(start_paused = true)]
async fn one_explanation_is_worked_out_at_a_time_and_one_that_takes_long_is_stopped() {
    let server = server(FixedBackend::default());
    let busy = Arc::clone(&server.explanations).try_acquire_owned().unwrap();
    assert_eq!(explained(&server, "").await, 503);
    drop(busy);
    let late = async {
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_secs(10)).await;
    };
    let (status, ()) = tokio::join!(explained(&server, "wait"), late);
    assert_eq!(status, 503);
    // Its place is free again once its thread has noticed.
    drop(server.explanations.acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn samples_are_taken_every_few_seconds() {
    let backend = FixedBackend::default();
    tokio::select! {
        () = sample(&backend) => {}
        () = tokio::time::sleep(Duration::from_secs(61)) => {}
    }
    assert_eq!(backend.samples.load(Ordering::Relaxed), 12);
}

/// The page loads everything from its own address.
#[test]
fn the_dashboard_refers_to_nothing_outside() {
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!DASHBOARD.contains(outside), "{outside}");
    }
    for page in ["routes", "executions", "config", "readyz"] {
        assert!(DASHBOARD.contains(&format!("\"{page}")), "{page}");
    }
    // What a client sent is inserted as text only, never as HTML.
    assert!(!DASHBOARD.contains("innerHTML"));
}
