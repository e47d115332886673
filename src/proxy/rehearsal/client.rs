//! The client of a rehearsal: it asks once, reads the answer, and leaves when it has had enough.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, Version, request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tokio::io::duplex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::language::clock::Clock;
use crate::language::temporal::Timestamp;
use crate::proxy::client::connection;
use crate::proxy::io::Io;
use crate::proxy::io::peer::{Over, Peer};
use crate::proxy::message::id::Ids;
use crate::proxy::request::head::matched;
use crate::proxy::site::runtime::Runtime;
use crate::proxy::site::{Core, Worker};
use crate::proxy::stage::Stage;
use crate::proxy::stage::record::{Event, Length};

/// When a rehearsal begins: a moment of no meaning, the same each time (2026-01-01T00:00:00Z).
const BEGINS: Timestamp = Timestamp::from_nanos(1_767_225_600_000_000_000);
/// What has not come after five thousand years never comes.
const FOREVER: Duration = Duration::from_hours(24 * 365 * 5000);
/// How often the clock may advance to the next timer. An execution that waits more often has no end in sight.
const WAITS: u64 = 500_000;
/// How much the pipe to the proxy holds each way.
const PIPE: usize = 64 * 1024;

/// What the client asks.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// The target, in origin form.
    pub(crate) target: Uri,
    /// With a `Host`.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// How long it waits for the whole answer.
    pub(crate) patience: Option<Duration>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Told {
    /// The routes in order, up to the one that takes the request: its name, and why it does not take it.
    pub(crate) routes: Vec<(Arc<str>, Option<String>)>,
    pub(crate) events: Vec<Event>,
    /// The execution's Result, where it came to one.
    pub(crate) result: Option<Json>,
    pub(crate) end: End,
    /// From the request to the last byte of its answer.
    pub(crate) took: Length,
    /// The places of the planned responses that nothing asked for.
    pub(crate) unused: Vec<usize>,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client has its answer.
    Answered { status: StatusCode, headers: HeaderMap, body: Bytes, broken: bool },
    /// The connection was closed without one.
    Dropped,
    /// The client had waited long enough.
    Left,
    /// Nothing bounds what hangs.
    Forever,
    /// So much happened that the rest was not waited for.
    Endless,
    /// The execution goes round and round without a wait.
    Busy,
}

/// Asks `asked` of `runtime`, which was built on a stage.
///
/// # Errors
/// Where the system gives no runtime.
pub(crate) fn rehearse(
    runtime: &Arc<Runtime>,
    stage: &Arc<Stage>,
    asked: &Asked,
    seed: u64,
) -> io::Result<Told> {
    // No I/O driver: where this would open a socket it could not.
    let mut driver = tokio::runtime::Builder::new_current_thread();
    let driver = driver.enable_time().start_paused(true).build()?;
    Ok(driver.block_on(async {
        let core = Core::with(Clock::starting_at(BEGINS), Ids::seeded(seed));
        let worker = Arc::new(Worker::new(Arc::new(core), Arc::clone(runtime)));
        let (parts, request) = request(asked);
        let routes = routes(runtime, &parts);
        stage.begin();
        let end = ask(&worker, stage, request, asked.patience).await;
        let took = Length(stage.elapsed());
        // Cleanups of a request whose client has left.
        let deadline = took.0.saturating_add(FOREVER);
        let waits = !matches!(end, End::Busy);
        let mut look = Duration::from_millis(1);
        while waits && worker.core.in_flight() > 0 && stage.elapsed() < deadline {
            sleep(look).await;
            look *= 2;
        }
        let (events, result) = stage.told();
        Told { routes, events, result, end, took, unused: stage.unused() }
    }))
}

async fn ask(
    worker: &Arc<Worker>,
    stage: &Stage,
    request: Request<Full<Bytes>>,
    patience: Option<Duration>,
) -> End {
    let (near, far) = duplex(PIPE);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let secure = worker.site().runtime.listeners.first().is_some_and(|first| first.tls.is_some());
    // The handshake is left out: what is asked is the same.
    let over = if secure { Over::Tls { http2: false } } else { Over::Clear };
    let client = Peer { address, over };
    let far = Io::Other(Box::new(far));
    tokio::spawn(connection::serve(far, client, Arc::clone(worker), None));
    let answer = async {
        let (mut sender, driver) = http1::handshake(TokioIo::new(near)).await.ok()?;
        // In this future: dropped, it closes the connection.
        let exchange = async {
            let (head, body) = sender.send_request(request).await.ok()?.into_parts();
            let mut broken = false;
            let body = read(body, &mut broken).await;
            Some(End::Answered { status: head.status, headers: head.headers, body, broken })
        };
        let mut exchange = std::pin::pin!(exchange);
        let mut driver = std::pin::pin!(driver);
        let first = tokio::select! {
            biased;
            end = &mut exchange => return end,
            ended = &mut driver => ended,
        };
        if let Err(error) = first {
            tracing::debug!(%error, "The rehearsed client's connection ended early.");
        }
        exchange.await
    };
    let bored = async {
        match patience {
            Some(patience) => sleep(patience).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        end = answer => end.unwrap_or(End::Dropped),
        () = stage.filled() => End::Endless,
        () = worn_out(stage) => End::Endless,
        () = stage.found_busy() => End::Busy,
        () = bored => End::Left,
        () = sleep_until(Instant::now() + FOREVER) => End::Forever,
    }
}

/// Returns when the clock has advanced too often. It looks seldom, so that its own waits do not add up.
async fn worn_out(stage: &Stage) {
    let metrics = Handle::current().metrics();
    while metrics.worker_park_count(0) < WAITS {
        sleep(Duration::from_mins(1) + stage.elapsed() / 8).await;
    }
}

/// The body as far as it comes.
async fn read(mut body: hyper::body::Incoming, broken: &mut bool) -> Bytes {
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => whole.extend_from_slice(&data),
            Ok(Err(_trailers)) => {}
            Err(_lost) => {
                *broken = true;
                break;
            }
        }
    }
    whole.into()
}

/// The request, and its head as the proxy will see it.
fn request(asked: &Asked) -> (request::Parts, Request<Full<Bytes>>) {
    let mut request = Request::new(Full::new(asked.body.clone()));
    *request.method_mut() = asked.method.clone();
    *request.uri_mut() = asked.target.clone();
    *request.version_mut() = Version::HTTP_11;
    request.headers_mut().clone_from(&asked.headers);
    let (head, body) = request.into_parts();
    (head.clone(), Request::from_parts(head, body))
}

/// Why each route before the one that takes the request does not. None of them, where the request is
/// refused before they are asked.
fn routes(runtime: &Runtime, parts: &request::Parts) -> Vec<(Arc<str>, Option<String>)> {
    let misses = matched(runtime, parts, |target| runtime.router.misses(target));
    let names = runtime.routes.iter().map(|route| Arc::clone(&route.name));
    names.zip(misses.unwrap_or_default()).collect()
}
