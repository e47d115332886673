//! The admin address: health, metrics, the configuration, recent executions, reload.
//!
//! It has its own thread and runtime, so that it answers while the workers are busy and never slows a
//! request down. It knows the process only through [`Backend`]. When the configuration sets a token,
//! only the probes and the dashboard's page are served without it; that page holds no data itself. The probes and the
//! metrics are answered whatever else fills the address ([`places`]).

mod access;
mod pages;
mod places;
mod queries;
mod recordings;
pub mod routes;
pub mod switches;
mod tap;
mod what_if;
mod write_timeout;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value as Json, json};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use self::pages::{Names, Page};
use self::places::{PlaceState, Places, Reserve};
use self::switches::RetriesState;
use self::write_timeout::WriteTimeout;
use crate::telemetry::executions::Filter;
use crate::telemetry::history;
use crate::telemetry::metrics;
use crate::telemetry::recordings::Recordings;

/// How many connections may listen to `/tap`, so that probes and scrapes always find room.
const MAX_LISTENERS: usize = 16;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 4096;

/// How long a request's head may take to arrive, on a kept connection too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The dashboard: one file with no external references.
const DASHBOARD: &str = include_str!("dashboard.html");

/// The dashboard's content security policy: it may run its own script and call this address.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The body of every response.
type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A running reload: the hash of what was applied, or the diagnostics of what was refused.
pub type Reloading<'a> = Pin<Box<dyn Future<Output = Result<Arc<str>, Json>> + Send + 'a>>;

/// The part of the process that the admin address shows and controls.
pub trait Backend: Send + Sync {
    /// All metrics in the text exposition format.
    fn metrics(&self) -> String;

    /// Whether the process wants requests.
    fn is_ready(&self) -> bool;

    /// The token that a request must carry, if the configuration sets one.
    fn token(&self) -> Option<Arc<str>>;

    /// The routes, in order, with their counters.
    fn routes(&self) -> Json;

    /// The upstreams, in order, with their endpoints.
    fn upstreams(&self) -> Json;

    /// Drains an endpoint of an upstream, or restores it. Returns the upstream.
    ///
    /// # Errors
    /// When there is none of this name. The error says so.
    fn drain(&self, upstream: &str, endpoint: &str, drains: bool) -> Result<Json, String>;

    /// Takes a sample of the counters. Called every [`history::EVERY`].
    fn sample(&self);

    /// The samples after the one with the number `since`.
    fn history(&self, since: u64) -> Json;

    /// What the configuration that is served would do with the request of a question, a JSON object. It may take long, and
    /// ends soon after `stop` is cancelled.
    ///
    /// # Errors
    /// What is wrong with the question, for its author.
    fn explain(&self, question: &[u8], stop: &CancellationToken) -> Result<Json, String>;

    /// The latest executions that `filter` accepts.
    fn executions(&self, filter: &Filter) -> Json;

    /// The configuration as loaded, without the values of variables and without secrets.
    fn config(&self) -> Json;

    /// Loads the configuration again.
    fn reload(&self) -> Reloading<'_>;

    /// Switches the retries of a route. `None`: no route has this name.
    fn switch_retries(&self, route: &str, wanted: RetriesState) -> Option<Json>;

    /// The exchanges that are kept, if any are.
    fn recordings(&self) -> Option<&Recordings>;

    /// Counts events that a listener of `/tap` missed because it was too slow.
    fn missed(&self, events: u64);
}

/// Shared by all connections.
struct AdminServer {
    backend: Arc<dyn Backend>,
    taps: Arc<Semaphore>,
    explanations: Arc<Semaphore>,
    replays: Semaphore,
    places: Places,
    /// The address that is listened on.
    own: IpAddr,
    /// Cancelled when another process has the address.
    leaves: CancellationToken,
}

/// The running admin address.
#[derive(Debug)]
pub struct Running {
    listener: StdListener,
    leaves: CancellationToken,
}

/// Listens on `address`. Many may wait to be accepted: whoever connects when the queue is full tries again only a second
/// later, and a probe does not wait that long.
///
/// # Errors
/// When the address is not available.
pub fn listen(address: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Serves `backend` on `listener`. The thread lives as long as the process.
///
/// # Errors
/// When the system provides no thread or no runtime.
pub fn start(listener: StdListener, backend: Arc<dyn Backend>) -> io::Result<Running> {
    listener.set_nonblocking(true)?;
    let reserve = Reserve::of(&listener)?;
    let own = listener.local_addr()?.ip();
    let kept = listener.try_clone()?;
    let driver = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = driver.enter();
        TcpListener::from_std(listener)?
    };
    let server = Arc::new(AdminServer::new(backend, own));
    let leaves = server.leaves.clone();
    std::thread::Builder::new().name("admin".into()).spawn(move || {
        driver.block_on(async {
            tokio::join!(accept(listener, reserve, Arc::clone(&server)), sample(&*server.backend));
        });
    })?;
    Ok(Running { listener: kept, leaves })
}

impl Running {
    /// A further descriptor of the listening socket.
    ///
    /// # Errors
    /// When there is none left.
    pub fn socket(&self) -> io::Result<StdListener> {
        self.listener.try_clone()
    }

    /// Leaves the address to another process: accepts no connection any more, and closes those that are open, the busy ones
    /// after their answer. An open `/tap` goes on as long as this process.
    pub fn leave(self) {
        self.leaves.cancel();
    }
}

async fn accept(listener: TcpListener, mut reserve: Reserve, server: Arc<AdminServer>) {
    loop {
        let stream = tokio::select! {
            biased;
            () = server.leaves.cancelled() => break,
            stream = reserve.accept(&listener, &server.places) => stream,
        };
        let (state, serving) = (PlaceState::new(), Arc::clone(&server));
        server.places.take(Arc::clone(&state), |key| {
            let task = tokio::spawn(async move {
                serve(stream, &serving, &state).await;
                serving.places.leave(key);
            });
            task.abort_handle()
        });
    }
    drop((listener, reserve));
    server.places.close_idle();
    // Those that are busy go on, as long as the process.
    std::future::pending::<()>().await;
}

/// Takes samples for `/history`, as long as the process.
async fn sample(backend: &dyn Backend) {
    let mut ticks = interval_at(Instant::now() + history::EVERY, history::EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        backend.sample();
    }
}

/// Serves one connection.
async fn serve(stream: TcpStream, server: &Arc<AdminServer>, state: &Arc<PlaceState>) {
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let (server, state) = (Arc::clone(server), Arc::clone(state));
        async move {
            state.set_busy(true);
            let mut response = server.answer(request).await;
            if server.leaves.is_cancelled() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            // A tap is answered as long as it is open.
            state.set_busy(tap::is_open(&response));
            Ok::<_, Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let io = TokioIo::new(WriteTimeout::new(stream));
    if let Err(error) = http.serve_connection(io, service).await {
        tracing::debug!(%error, "An admin connection ended early.");
    }
}

impl AdminServer {
    fn new(backend: Arc<dyn Backend>, own: IpAddr) -> Self {
        let taps = Arc::new(Semaphore::new(MAX_LISTENERS));
        let explanations = what_if::places();
        let (places, leaves) = (Places::default(), CancellationToken::new());
        let replays = Semaphore::new(recordings::MAX_REPLAYS);
        Self { backend, taps, explanations, replays, places, own, leaves }
    }

    /// The response to one request. Only the body of a question is read.
    async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let request = &Request::from_parts(head, ());
        let (method, path) = (request.method(), request.uri().path());
        let Some((page, names)) = pages::find(path) else {
            return text(StatusCode::NOT_FOUND, pages::index());
        };
        let head = method == Method::HEAD && page.method == Method::GET;
        if !head && *method != page.method {
            let allow = page.allow();
            let mut response =
                text(StatusCode::METHOD_NOT_ALLOWED, format!("{path} is asked with {allow}\n"));
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
            return response;
        }
        if let Err(refusal) = self.admit(page, request) {
            return *refusal;
        }
        if page.path == "/explain" {
            return what_if::answer(&self.backend, &self.explanations, body).await;
        }
        self.page((page, names), head, request.uri().query().unwrap_or_default()).await
    }

    /// Checks whether a request may have `page`.
    fn admit<B>(&self, page: &Page, request: &Request<B>) -> Result<(), Box<Response<Body>>> {
        match self.backend.token() {
            Some(token) if !page.open => access::token(&token, request.headers())?,
            None if !page.probe => access::host(self.own, request)?,
            _ => {}
        }
        access::origin(request)
    }

    async fn page(
        &self,
        (page, names): (&Page, Names<'_>),
        head: bool,
        query: &str,
    ) -> Response<Body> {
        let backend = &self.backend;
        // The HTTP library answers a HEAD with the body's length and no body.
        match page.path {
            "/metrics" => whole(StatusCode::OK, metrics::CONTENT_TYPE, backend.metrics()),
            "/livez" => text(StatusCode::OK, "live\n".into()),
            "/readyz" if backend.is_ready() => text(StatusCode::OK, "ready\n".into()),
            "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n".into()),
            "/routes" => json(StatusCode::OK, &backend.routes()),
            "/upstreams" => json(StatusCode::OK, &backend.upstreams()),
            "/upstreams/NAME/endpoints/ADDRESS/drain" => self.drain(&names, true),
            "/upstreams/NAME/endpoints/ADDRESS/restore" => self.drain(&names, false),
            "/config" => json(StatusCode::OK, &backend.config()),
            "/history" => match queries::since(query) {
                Ok(since) => compact(&backend.history(since)),
                Err(problem) => text(StatusCode::BAD_REQUEST, problem),
            },
            "/executions" => match queries::executions(query) {
                Ok(filter) => json(StatusCode::OK, &backend.executions(&filter)),
                Err(problem) => text(StatusCode::BAD_REQUEST, problem),
            },
            "/tap" => match tap::filter(query) {
                Ok(filter) => tap::open(filter, backend, &self.taps, head),
                Err(problem) => text(StatusCode::BAD_REQUEST, problem),
            },
            "/reload" => match backend.reload().await {
                Ok(hash) => json(StatusCode::OK, &json!({ "hash": *hash })),
                Err(found) => {
                    json(StatusCode::UNPROCESSABLE_ENTITY, &json!({ "diagnostics": found }))
                }
            },
            "/recordings" => self.recordings(query),
            "/recordings/ID" => self.recording(&names),
            "/recordings/ID/replay" => self.replay(&names).await,
            "/routes/NAME/retries" => {
                self.retries(names.first().map(AsRef::as_ref).unwrap_or_default(), query)
            }
            _ => dashboard(),
        }
    }

    fn drain(&self, names: &Names<'_>, drains: bool) -> Response<Body> {
        let name = |place: usize| names.get(place).map(AsRef::as_ref).unwrap_or_default();
        match self.backend.drain(name(0), name(1), drains) {
            Ok(upstream) => json(StatusCode::OK, &upstream),
            Err(unknown) => text(StatusCode::NOT_FOUND, unknown),
        }
    }

    fn retries(&self, route: &str, query: &str) -> Response<Body> {
        match switches::retries(query) {
            Ok(wanted) => match self.backend.switch_retries(route, wanted) {
                Some(state) => json(StatusCode::OK, &state),
                None => text(StatusCode::NOT_FOUND, format!("no route is called `{route}`\n")),
            },
            Err(problem) => text(StatusCode::BAD_REQUEST, problem),
        }
    }
}

/// The error for a parameter that the page does not know.
fn unknown(name: &str, wanted: &str) -> String {
    format!("`{name}` is no parameter; wanted: {wanted}\n")
}

fn dashboard() -> Response<Body> {
    let mut page = whole(StatusCode::OK, "text/html; charset=utf-8", DASHBOARD.to_owned());
    page.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    page
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    whole(status, "text/plain; charset=utf-8", text)
}

fn json(status: StatusCode, value: &Json) -> Response<Body> {
    whole(status, "application/json", format!("{value:#}\n"))
}

/// The same without spaces, for what only programs read.
fn compact(value: &Json) -> Response<Body> {
    whole(StatusCode::OK, "application/json", format!("{value}\n"))
}

fn whole(status: StatusCode, kind: &'static str, body: String) -> Response<Body> {
    of_kind(status, kind, Full::from(body).boxed_unsync())
}

fn of_kind(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests;
