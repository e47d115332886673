//! A connection in a rehearsal: a pipe whose far end follows the script.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{DuplexStream, duplex};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Stage;
use super::cue::CallCue;
use super::record::SentRequest;
use super::script::{ScriptUse, ScriptedAction};
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
    let service = service_fn(move |request| answer(Arc::clone(&line), request));
    let io = TokioIo::new(far);
    let served = match protocol {
        Protocol::Http1 => {
            http1::Builder::new().auto_date_header(false).serve_connection(io, service).await
        }
        Protocol::Http2 => {
            let mut protocol = http2::Builder::new(TokioExecutor::new());
            protocol.auto_date_header(false).serve_connection(io, service).await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "A rehearsed connection ended early.");
    }
}

async fn answer(
    line: Arc<ScriptedConnection>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, RequestCut> {
    let turn = line.arrived(&request);
    let turn = turn.unwrap_or_default();
    // Read the whole request first: whatever happens next, it was sent.
    let sent = request.into_body().collect().await;
    drop(sent.map_err(|_broken| RequestCut)?);
    let planned = &turn.planned;
    if !planned.after.is_zero() {
        sleep(planned.after).await;
    }
    match &planned.act {
        ScriptedAction::Answer { status, headers, body } => {
            let mut response = Response::new(Full::new(body.clone()));
            *response.status_mut() = *status;
            response.headers_mut().clone_from(headers);
            Ok(response)
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
    fn arrived(&self, request: &Request<Incoming>) -> Option<ScriptUse> {
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
