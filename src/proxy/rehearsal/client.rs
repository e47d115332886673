//! The client of a rehearsal: it sends one request, reads the answer, and leaves when its time is over.

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
use crate::proxy::io::peer::{Negotiated, Peer};
use crate::proxy::message::id::Ids;
use crate::proxy::request::head::{ReceivedHead, matched};
use crate::proxy::site::runtime::Runtime;
use crate::proxy::site::{Worker, WorkerState};
use crate::proxy::stage::Stage;
use crate::proxy::stage::record::{Event, IsoDuration};
use crate::proxy::tls::ClientCertificate;

/// The start of every rehearsal, an arbitrary time (2026-01-01T00:00:00Z).
const BEGINS: Timestamp = Timestamp::from_nanos(1_767_225_600_000_000_000);
/// Anything that has not happened after five thousand years never will.
const FOREVER: Duration = Duration::from_hours(24 * 365 * 5000);
/// How often the clock may advance to the next timer. An execution that waits more often has no end in sight.
const WAITS: u64 = 500_000;
/// The capacity of the pipe to the proxy, in each direction.
const PIPE: usize = 64 * 1024;

/// The client's request.
#[derive(Clone, Debug)]
pub(crate) struct ClientRequest {
    pub(crate) method: Method,
    /// The target, in origin form.
    pub(crate) target: Uri,
    /// The fields, including a `Host`.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// How long the client waits for the complete answer.
    pub(crate) patience: Option<Duration>,
    /// The client's certificate, if it presents one.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
}

/// The outcome of a rehearsal.
#[derive(Debug)]
pub(crate) struct Transcript {
    /// The routes in order, up to the one that matches: each with its name, and why it does not match.
    pub(crate) routes: Vec<(Arc<str>, Option<String>)>,
    pub(crate) events: Vec<Event>,
    /// The execution's Result, if it has one.
    pub(crate) result: Option<Json>,
    pub(crate) end: RehearsalEnd,
    /// From the request to the last byte of its answer.
    pub(crate) took: IsoDuration,
    /// The indexes of the scripted responses that were not used.
    pub(crate) unused: Vec<usize>,
}

/// How the request ended.
#[derive(Debug)]
pub(crate) enum RehearsalEnd {
    /// The client got its answer.
    Answered { status: StatusCode, headers: HeaderMap, body: Bytes, broken: bool },
    /// The connection closed without an answer.
    Dropped,
    /// The client left.
    Left,
    /// Something hangs, and no timeout ends it.
    Forever,
    /// Too much happened, so the rehearsal was stopped.
    Endless,
    /// The execution loops without ever waiting.
    Busy,
}

/// A place for rehearsals of one configuration, one after the other. What the configuration's entries remember goes on from
/// one to the next, and so does the time.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    driver: tokio::runtime::Runtime,
    runtime: Arc<Runtime>,
    stage: Arc<Stage>,
}

impl Rehearsal {
    /// For `runtime`, which was built on `stage`.
    ///
    /// # Errors
    /// When the system provides no runtime.
    pub(crate) fn new(runtime: Arc<Runtime>, stage: Arc<Stage>) -> io::Result<Self> {
        // Without an I/O driver, opening a socket would fail.
        let mut driver = tokio::runtime::Builder::new_current_thread();
        let driver = driver.enable_time().start_paused(true).build()?;
        Ok(Self { driver, runtime, stage })
    }

    /// Sends `asked`, and records what happens. All connections are new ones.
    pub(crate) fn play(&self, asked: &ClientRequest, seed: u64) -> Transcript {
        let Self { driver, runtime, stage } = self;
        driver.block_on(async {
            let core = WorkerState::with(Clock::starting_at(BEGINS), Ids::seeded(seed));
            let worker = Arc::new(Worker::new(Arc::new(core), Arc::clone(runtime)));
            let (parts, request) = request(asked);
            let routes = routes(runtime, &parts.into(), asked.certificate.as_deref());
            stage.begin();
            let end = ask(&worker, stage, request, asked).await;
            let took = IsoDuration(stage.elapsed());
            // The cleanups of a request whose client has left.
            let deadline = took.0.saturating_add(FOREVER);
            let waits = !matches!(end, RehearsalEnd::Busy);
            let mut look = Duration::from_millis(1);
            while waits && worker.core.in_flight() > 0 && stage.elapsed() < deadline {
                sleep(look).await;
                look *= 2;
            }
            let (events, result) = stage.told();
            Transcript { routes, events, result, end, took, unused: stage.unused() }
        })
    }
}

async fn ask(
    worker: &Arc<Worker>,
    stage: &Stage,
    request: Request<Full<Bytes>>,
    asked: &ClientRequest,
) -> RehearsalEnd {
    let (near, far) = duplex(PIPE);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let secure = worker.site().runtime.listeners.first().is_some_and(|first| first.tls.is_some());
    // The handshake is left out. It does not change the request.
    let secure = secure || asked.certificate.is_some();
    let over = if secure { Negotiated::Tls { http2: false } } else { Negotiated::Clear };
    let client = Peer { address, local: None, over, certificate: asked.certificate.clone() };
    let far = Io::Other(Box::new(far));
    tokio::spawn(connection::serve(far, client, Arc::clone(worker), None));
    let answer = async {
        let (mut sender, driver) = http1::handshake(TokioIo::new(near)).await.ok()?;
        // In this future, so that dropping it closes the connection.
        let exchange = async {
            let (head, body) = sender.send_request(request).await.ok()?.into_parts();
            let mut broken = false;
            let body = read(body, &mut broken).await;
            Some(RehearsalEnd::Answered {
                status: head.status,
                headers: head.headers,
                body,
                broken,
            })
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
        match asked.patience {
            Some(patience) => sleep(patience).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        end = answer => end.unwrap_or(RehearsalEnd::Dropped),
        () = stage.filled() => RehearsalEnd::Endless,
        () = worn_out(stage) => RehearsalEnd::Endless,
        () = stage.found_busy() => RehearsalEnd::Busy,
        () = bored => RehearsalEnd::Left,
        () = sleep_until(Instant::now() + FOREVER) => RehearsalEnd::Forever,
    }
}

/// Returns when the clock has advanced too often. It checks rarely, so that its own waits do not count much.
async fn worn_out(stage: &Stage) {
    let metrics = Handle::current().metrics();
    let before = metrics.worker_park_count(0);
    while metrics.worker_park_count(0) - before < WAITS {
        sleep(Duration::from_mins(1) + stage.elapsed() / 8).await;
    }
}

/// Reads the body as far as it comes.
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
fn request(asked: &ClientRequest) -> (request::Parts, Request<Full<Bytes>>) {
    let mut request = Request::new(Full::new(asked.body.clone()));
    *request.method_mut() = asked.method.clone();
    *request.uri_mut() = asked.target.clone();
    *request.version_mut() = Version::HTTP_11;
    request.headers_mut().clone_from(&asked.headers);
    let (head, body) = request.into_parts();
    (head.clone(), Request::from_parts(head, body))
}

/// Why each route before the matching one does not match. Empty if the request is refused before routing.
fn routes(
    runtime: &Runtime,
    head: &ReceivedHead,
    certificate: Option<&ClientCertificate>,
) -> Vec<(Arc<str>, Option<String>)> {
    let misses = matched(runtime, head, certificate, |target, _| runtime.router.misses(target));
    let names = runtime.routes.iter().map(|route| Arc::clone(&route.name));
    names.zip(misses.unwrap_or_default()).collect()
}
