//! A scripted upstream for either protocol, by the HTTP library and not by hand: it tests what happens to
//! requests, not how they are written.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sha2::{Digest, Sha256};
use socket2::Socket;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use super::proxy::within;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1.
    One,
    /// HTTP/2, by prior knowledge.
    Two,
}

/// The whole body.
pub(crate) const ALL: usize = usize::MAX;

/// What the peer does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Reads all of it, and answers 200 with [`STORED`], and with [`DIGEST`] of what it read.
    Store,
    /// Reads this much of the body and answers with this status and no body. The rest stays unread.
    Say(usize, u16),
    /// Reads this much of the body and breaks off: the connection, or the stream if there are others.
    Break(usize),
    /// Reads all of it, answers 200, sends half of a body, and breaks off once [`Peer::go`] was called.
    Half,
    /// Reads all of it and never answers.
    Hang,
    /// Reads all of it, waits, and continues like [`Act::Store`].
    Late(Duration),
    /// Like [`Act::Store`], but the answer does not give its length.
    Open,
}

/// The body of the answer to a stored request.
pub(crate) const STORED: &str = "stored, all of it";
/// The field with the SHA-256 of the request's body, in the answer to a stored request.
pub(crate) const DIGEST: &str = "x-digest";
/// The field that tells which of a test's requests this is.
pub(crate) const CASE: &str = "x-case";

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) case: String,
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    /// The part of its body that was read.
    pub(crate) body: Vec<u8>,
    /// Whether that was all of it.
    pub(crate) whole: bool,
    /// What was done with it.
    pub(crate) act: Act,
}

/// The running server. It stops when dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What to do with a request, by its case and its number within the case, from 0.
type Script = dyn Fn(&str, usize) -> Act + Send + Sync;

struct Shared {
    script: Box<Script>,
    log: Mutex<Log>,
    changed: Notify,
    go: Semaphore,
}

#[derive(Debug, Default)]
struct Log {
    arrivals: Vec<Arrival>,
    cases: HashMap<String, usize>,
    connections: usize,
}

/// A stream or a connection broke off.
#[derive(Debug, thiserror::Error)]
#[error("the script says so")]
struct Broken;

type Answer = UnsyncBoxBody<Bytes, Broken>;

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Peer {
    /// Plays `acts` in order for each case, and stores the requests after them.
    pub(crate) async fn play(protocol: Protocol, acts: &[Act]) -> Self {
        let acts = acts.to_vec();
        Self::run(protocol, move |_, number| acts.get(number).copied().unwrap_or(Act::Store)).await
    }

    /// Asks `script` for each request.
    pub(crate) async fn run(
        protocol: Protocol,
        script: impl Fn(&str, usize) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            log: Mutex::default(),
            changed: Notify::new(),
            go: Semaphore::new(0),
        });
        let task = tokio::spawn(accept(listener, protocol, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    /// The requests so far.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.shared.log.lock().unwrap().arrivals.clone()
    }

    /// The requests of one case. Their bodies are not kept any longer.
    pub(crate) fn taken(&self, case: &str) -> Vec<Arrival> {
        let mut log = self.shared.log.lock().unwrap();
        let ours = log.arrivals.iter_mut().filter(|arrival| arrival.case == case);
        ours.map(|arrival| {
            let body = std::mem::take(&mut arrival.body);
            Arrival { body, ..arrival.clone() }
        })
        .collect()
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.shared.log.lock().unwrap().connections
    }

    /// Lets one [`Act::Half`] break off.
    pub(crate) fn go(&self) {
        self.shared.go.add_permits(1);
    }

    /// Waits until `done` returns true for what was seen.
    pub(crate) async fn until(&self, done: impl Fn(&[Arrival]) -> bool) {
        self.wait(|log| done(&log.arrivals)).await;
    }

    /// Waits until this many requests of this case have arrived.
    pub(crate) async fn until_case(&self, case: &str, count: usize) {
        self.wait(|log| log.cases.get(case).is_some_and(|came| *came >= count)).await;
    }

    async fn wait(&self, done: impl Fn(&Log) -> bool) {
        within(async {
            loop {
                let changed = self.shared.changed.notified();
                if done(&self.shared.log.lock().unwrap()) {
                    return;
                }
                changed.await;
            }
        })
        .await;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn change<R>(&self, change: impl FnOnce(&mut Log) -> R) -> R {
        let result = change(&mut self.log.lock().unwrap());
        self.changed.notify_waiters();
        result
    }
}

async fn accept(listener: TcpListener, protocol: Protocol, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        shared.change(|log| log.connections += 1);
        let shared = Arc::clone(&shared);
        connections.spawn(async move { serve(stream, protocol, &shared).await });
    }
}

async fn serve(stream: TcpStream, protocol: Protocol, shared: &Arc<Shared>) {
    stream.set_nodelay(true).unwrap();
    // A connection that breaks off is reset. This must happen before the library drops its own handle.
    let socket = Socket::from(stream.as_fd().try_clone_to_owned().unwrap());
    let held = Arc::new(Mutex::new(Some(socket)));
    let service = {
        let held = Arc::clone(&held);
        service_fn(move |request| {
            let (shared, held) = (Arc::clone(shared), Arc::clone(&held));
            async move {
                let answered = answer(&shared, request).await;
                if answered.is_err() && protocol == Protocol::One {
                    let socket = held.lock().unwrap().take();
                    socket.unwrap().set_linger(Some(Duration::ZERO)).unwrap();
                }
                answered
            }
        })
    };
    let io = TokioIo::new(stream);
    // The proxy's behaviour shows how a connection ends.
    let _ended = match protocol {
        Protocol::One => {
            hyper::server::conn::http1::Builder::new().serve_connection(io, service).await
        }
        Protocol::Two => {
            let executor = TokioExecutor::new();
            hyper::server::conn::http2::Builder::new(executor).serve_connection(io, service).await
        }
    };
    drop(held);
}

async fn answer(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Broken> {
    let (parts, mut body) = request.into_parts();
    let case = parts.headers.get(CASE).map_or("", |case| case.to_str().unwrap()).to_owned();
    let (place, act) = shared.change(|log| {
        let number = log.cases.entry(case.clone()).or_default();
        let act = (shared.script)(&case, *number);
        *number += 1;
        log.arrivals.push(Arrival {
            case,
            method: parts.method.clone(),
            version: parts.version,
            headers: parts.headers,
            body: Vec::new(),
            whole: body.is_end_stream(),
            act,
        });
        (log.arrivals.len() - 1, act)
    });
    let enough = match act {
        Act::Say(enough, _) | Act::Break(enough) => enough,
        Act::Store | Act::Half | Act::Hang | Act::Late(_) | Act::Open => ALL,
    };
    take(shared, place, &mut body, enough).await?;
    match act {
        Act::Store => Ok(stored(shared, place)),
        Act::Open => {
            let frame = Ok(Frame::data(Bytes::from_static(STORED.as_bytes())));
            let body = StreamBody::new(futures_util::stream::iter([frame]));
            Ok(Response::new(body.boxed_unsync()))
        }
        Act::Late(wait) => {
            tokio::time::sleep(wait).await;
            Ok(stored(shared, place))
        }
        Act::Say(_, status) => {
            Ok(Response::builder().status(status).body(full(String::new())).unwrap())
        }
        Act::Break(_) => Err(Broken),
        Act::Half => Ok(Response::new(half(Arc::clone(shared)).boxed_unsync())),
        Act::Hang => std::future::pending().await,
    }
}

/// Reads `enough` of the body, or all of it.
async fn take(
    shared: &Shared,
    place: usize,
    body: &mut Incoming,
    enough: usize,
) -> Result<(), Broken> {
    let mut taken = 0;
    while taken < enough {
        let Some(frame) = body.frame().await else {
            shared.change(|log| log.arrivals[place].whole = true);
            return Ok(());
        };
        let frame = frame.map_err(|_| Broken)?;
        let Ok(data) = frame.into_data() else { continue };
        taken += data.len();
        let whole = body.is_end_stream();
        shared.change(|log| {
            log.arrivals[place].body.extend_from_slice(&data);
            log.arrivals[place].whole = whole;
        });
    }
    Ok(())
}

fn stored(shared: &Shared, place: usize) -> Response<Answer> {
    let log = shared.log.lock().unwrap();
    let arrival = &log.arrivals[place];
    let response = Response::builder()
        .header(DIGEST, digest(&arrival.body))
        .header(header::CONTENT_LENGTH, STORED.len());
    // With HTTP/2 the library would send a body even to a HEAD.
    let text = if arrival.method == Method::HEAD { "" } else { STORED };
    response.body(full(text.to_owned())).unwrap()
}

/// The SHA-256 of `bytes`, in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn full(text: String) -> Answer {
    http_body_util::Full::from(text).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// Half of a body with a declared length; then, once told to, the end of the stream or connection.
fn half(shared: Arc<Shared>) -> impl Body<Data = Bytes, Error = Broken> {
    let first = Bytes::from_static(STORED.split_at(STORED.len() / 2).0.as_bytes());
    let told = async move { shared.go.acquire().await.unwrap().forget() };
    Halved { first: Some(first), told: Box::pin(told) }
}

struct Halved {
    first: Option<Bytes>,
    told: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Body for Halved {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => self.told.as_mut().poll(cx).map(|()| Some(Err(Broken))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(STORED.len() as u64)
    }
}
