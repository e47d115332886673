//! A connection in a rehearsal: a pipe whose far end follows the script.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{DuplexStream, duplex};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Stage;
use super::cue::CallCue;
use super::record::SentRequest;
use super::script::{ScriptUse, ScriptedAction};
use crate::proxy::h2::{self, Builder, RecvStream, SendResponse};
use crate::proxy::io::wrapped::{Hooks, Wrapped};
use crate::proxy::settings::{Endpoint, Protocol, Upstream};

/// The capacity of the pipe, in each direction.
const PIPE: usize = 64 * 1024;

/// Shared by both ends of a connection.
#[derive(Debug)]
pub(crate) struct ScriptedConnection {
    stage: Arc<Stage>,
    /// The names of the upstream and of the endpoint.
    upstream: Arc<str>,
    endpoint: Arc<str>,
    /// The calls of the requests that were put on it, and their responses.
    due: Mutex<VecDeque<(Arc<CallCue>, ScriptUse)>>,
    /// How many requests arrived.
    requests: AtomicU32,
    /// Cancelled when the connection is lost: then its end is an error.
    lost: CancellationToken,
}

/// The proxy's end.
pub(crate) type ProxyEnd = Wrapped<DuplexStream, LostConnection>;

/// Turns the end of a lost connection into an error.
#[derive(Debug)]
pub(crate) struct LostConnection(Arc<ScriptedConnection>);

/// The proxy closed the connection during its request.
#[derive(Debug, thiserror::Error)]
#[error("the request is not whole")]
struct RequestCut;

/// A connection to `endpoint` of `upstream`.
pub(super) fn open(stage: &Arc<Stage>, upstream: &Upstream, endpoint: &Endpoint) -> ProxyEnd {
    let line = Arc::new(ScriptedConnection {
        stage: Arc::clone(stage),
        upstream: Arc::clone(&upstream.name),
        endpoint: Arc::clone(&endpoint.authority),
        due: Mutex::default(),
        requests: AtomicU32::new(0),
        lost: CancellationToken::new(),
    });
    let (pipe, far) = duplex(PIPE);
    let (served, protocol) = (Arc::clone(&line), upstream.protocol);
    tokio::spawn(async move {
        let lost = served.lost.clone();
        tokio::select! {
            () = serve(far, served, protocol) => {}
            () = lost.cancelled() => {}
        }
    });
    ProxyEnd { io: pipe, hooks: LostConnection(line) }
}

/// Serves the upstream's end. Without `Date`, because that would be the system's time.
async fn serve(far: DuplexStream, line: Arc<ScriptedConnection>, protocol: Protocol) {
    if protocol == Protocol::Http2 {
        if let Err(error) = serve_http2(far, line).await {
            tracing::debug!(%error, "A rehearsed connection ended early.");
        }
        return;
    }
    let service = service_fn(move |request| answer(Arc::clone(&line), request));
    let mut protocol = http1::Builder::new();
    let served = protocol.auto_date_header(false).serve_connection(TokioIo::new(far), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "A rehearsed connection ended early.");
    }
}

async fn answer(
    line: Arc<ScriptedConnection>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, RequestCut> {
    let turn = line.arrived(&request);
    // Read the whole request first: whatever happens next, it was sent.
    let sent = request.into_body().collect().await;
    drop(sent.map_err(|_broken| RequestCut)?);
    Ok(play(&line, turn.unwrap_or_default()).await.map(Full::new))
}

/// The same with HTTP/2.
async fn serve_http2(far: DuplexStream, line: Arc<ScriptedConnection>) -> Result<(), h2::Error> {
    let mut connection = Builder::new().serve(far).await?;
    while let Some(asked) = connection.accept().await {
        let (request, respond) = asked?;
        tokio::spawn(answer_http2(Arc::clone(&line), request, respond));
    }
    Ok(())
}

async fn answer_http2(
    line: Arc<ScriptedConnection>,
    request: Request<RecvStream>,
    mut respond: SendResponse,
) -> Result<(), h2::Error> {
    let turn = line.arrived(&request);
    let mut body = request.into_body();
    while let Some(piece) = body.data().await {
        body.release_capacity(piece?.len());
    }
    let (mut head, body) = play(&line, turn.unwrap_or_default()).await.into_parts();
    if !body.is_empty() {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| body.len().into());
    }
    let mut stream = respond.send_response(Response::from_parts(head, ()), body.is_empty())?;
    if body.is_empty() { Ok(()) } else { stream.send_data(body, true) }
}

/// What a request gets that has come.
async fn play(line: &ScriptedConnection, turn: ScriptUse) -> Response<Bytes> {
    if !turn.after.is_zero() {
        sleep(turn.after).await;
    }
    match &*turn.act {
        ScriptedAction::Answer { status, headers, body } => {
            let mut response = Response::new(body.clone());
            *response.status_mut() = *status;
            response.headers_mut().clone_from(headers);
            response
        }
        ScriptedAction::Hang => std::future::pending().await,
        // A refusal already happened when the connection was opened.
        ScriptedAction::Reset | ScriptedAction::Refused => {
            line.lost.cancel();
            std::future::pending().await
        }
    }
}

impl ScriptedConnection {
    /// The call that is being polled puts its next request on this connection.
    pub(crate) fn announce(&self) {
        if let Some(due) = self.stage.play(&self.upstream) {
            self.due.lock().unwrap_or_else(PoisonError::into_inner).push_back(due);
        }
    }

    /// Records a request, and returns its response.
    fn arrived<B>(&self, request: &Request<B>) -> Option<ScriptUse> {
        let due = self.due.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let (cue, turn) = due?;
        let target = request.uri().path_and_query();
        let sent = SentRequest {
            upstream: self.upstream.as_ref().to_owned(),
            endpoint: self.endpoint.as_ref().to_owned(),
            method: request.method().to_string(),
            target: target.map_or("*", |target| target.as_str()).to_owned(),
            reused: self.requests.fetch_add(1, Ordering::Relaxed) > 0,
            resent: false,
        };
        self.stage.sent(&cue, sent, &turn);
        Some(turn)
    }
}

impl ProxyEnd {
    /// The state that both ends share.
    pub(crate) fn line(&self) -> Arc<ScriptedConnection> {
        Arc::clone(&self.hooks.0)
    }
}

impl Hooks for LostConnection {
    fn has_read(&mut self, polled: Poll<io::Result<()>>, size: usize) -> Poll<io::Result<()>> {
        let ended = matches!(polled, Poll::Ready(Ok(()))) && size == 0;
        if ended && self.0.lost.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        polled
    }
}
