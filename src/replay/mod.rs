//! Sends a recorded request again, over one HTTP/1.1 connection of its own, and keeps what comes back in the form of a
//! recording. For `mwl-proxy replay` and `POST /recordings/ID/replay`.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::language::temporal::Span;
use crate::proxy::tls::{ClientTls, EndpointTls, system_roots};
use crate::source::Causes;
use crate::telemetry::recordings::{BODY, CopiedBody, RecordedAnswer, RecordedRequest, Recording};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the answer may take. A policy may wait for minutes.
const PATIENCE: Duration = Duration::from_mins(5);
/// How much of an answer's body is read. Beyond that, the connection is closed.
const MOST: u64 = 64 * 1024 * 1024;

/// The fields about the connection, which the new one has of its own, and those that follow from the body.
const HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];
/// The field with the id of the execution. A replay is an execution of its own.
const ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where requests are sent.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    scheme: Scheme,
    authority: Authority,
    /// Whether requests get this host, in place of their own.
    own_host: bool,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Replayed {
    /// Where it was sent.
    pub(crate) to: String,
    /// The id of the new execution.
    pub(crate) execution: String,
    /// What was not sent, because it is not recorded.
    pub(crate) omitted: Vec<String>,
    /// How long it took.
    pub(crate) took: Duration,
    /// The answer.
    pub(crate) answer: RecordedAnswer,
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The request cannot be sent again.
    #[error("this request cannot be sent again: {0}")]
    Obstacle(String),
    /// The destination did not answer.
    #[error("{to} {what}")]
    Lost {
        /// The destination.
        to: String,
        /// What it did.
        what: String,
    },
}

impl Destination {
    /// The server at `url`, whose host requests get. `None` if this is no URL of one.
    pub(crate) fn url(url: &str) -> Option<Self> {
        let parts = url.parse::<Uri>().ok()?.into_parts();
        Some(Self { scheme: parts.scheme?, authority: parts.authority?, own_host: true })
    }

    /// The proxy that has recorded: requests keep their host.
    pub(crate) fn recorder(url: &str) -> Option<Self> {
        Some(Self { own_host: false, ..Self::url(url)? })
    }

    fn is_secure(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    fn port(&self) -> u16 {
        let usual = if self.is_secure() { 443 } else { 80 };
        self.authority.port_u16().unwrap_or(usual)
    }

    /// The host without the brackets of an address.
    fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

/// Sends the request of `recording` to `to`, with `given` in place of its fields of those names.
///
/// # Errors
/// When it cannot be sent again, or is not answered.
pub(crate) async fn replay(
    recording: &Recording,
    to: &Destination,
    given: &[(HeaderName, HeaderValue)],
) -> Result<Replayed, ReplayError> {
    let prepared = prepare(&recording.request, to, given)?;
    let lost = |what: String| ReplayError::Lost { to: to.to_string(), what };
    let begun = Instant::now();
    let soon = begun + CONNECT;
    let stream = match before(soon, TcpStream::connect((to.host(), to.port()))).await {
        None => return Err(lost(format!("gave no connection within {}", span(CONNECT)))),
        Some(Err(error)) => return Err(lost(format!("gave no connection: {}", Causes(&error)))),
        Some(Ok(stream)) => stream,
    };
    let answer = if to.is_secure() {
        let tls = secure(to).map_err(&lost)?;
        let stream = match before(soon, tls.connect(stream)).await {
            None => return Err(lost(format!("ended no TLS handshake within {}", span(CONNECT)))),
            Some(Err(error)) => return Err(lost(error.message)),
            Some(Ok(stream)) => stream,
        };
        exchange(stream, prepared.request).await
    } else {
        exchange(stream, prepared.request).await
    };
    Ok(Replayed {
        to: to.to_string(),
        execution: prepared.execution,
        omitted: prepared.omitted,
        took: begun.elapsed(),
        answer: answer.map_err(lost)?,
    })
}

/// A request as it is sent again.
struct Prepared {
    request: Request<Full<Bytes>>,
    execution: String,
    omitted: Vec<String>,
}

fn prepare(
    recorded: &RecordedRequest,
    to: &Destination,
    given: &[(HeaderName, HeaderValue)],
) -> Result<Prepared, ReplayError> {
    let obstacle = |what: &str| ReplayError::Obstacle(what.to_owned());
    if let Some(obstacle) = recorded.obstacle() {
        return Err(ReplayError::Obstacle(obstacle));
    }
    let method = Method::from_bytes(recorded.method.as_bytes());
    let method = method.map_err(|_| obstacle("its method is none"))?;
    let target = recorded.sendable_target();
    let target: Uri = target.parse().map_err(|error| {
        ReplayError::Obstacle(format!(
            "its target has characters that this client cannot send: {error}"
        ))
    })?;
    let body = match &recorded.body {
        Some(body) => body.content().ok_or_else(|| obstacle("its body is not base64"))?,
        None => Vec::new(),
    };
    let mut headers = HeaderMap::new();
    for field in &recorded.headers {
        let (Ok(name), Some(value)) = (HeaderName::try_from(&field.name), &field.value) else {
            continue;
        };
        if !HOP.contains(&name) && name != ID && !field.masked {
            let value =
                HeaderValue::try_from(value).map_err(|_| obstacle("a field's value is none"))?;
            headers.append(name, value);
        }
    }
    if to.own_host || !headers.contains_key(header::HOST) {
        let host = HeaderValue::try_from(to.authority.as_str());
        headers.insert(header::HOST, host.map_err(|_| obstacle("there is no such host"))?);
    }
    let execution = Uuid::now_v7().to_string();
    headers.insert(ID, HeaderValue::try_from(&execution).map_err(|_| obstacle("it gets no id"))?);
    for (name, _) in given {
        headers.remove(name);
    }
    for (name, value) in given {
        headers.append(name, value.clone());
    }
    let execution = match headers.get(ID).map(HeaderValue::to_str) {
        Some(Ok(given)) => given.to_owned(),
        _ => execution,
    };
    let told =
        |omitted: &String| !given.iter().any(|(name, _)| *omitted == format!("the header {name}"));
    let omitted = recorded.hidden().into_iter().filter(told).collect();
    let mut request = Request::new(Full::from(body));
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, target, headers);
    Ok(Prepared { request, execution, omitted })
}

fn secure(to: &Destination) -> Result<EndpointTls, String> {
    let client = ClientTls::new(&system_roots()?, None, false);
    let client = client.map_err(|error| Causes(&error).to_string())?;
    EndpointTls::new(&Arc::new(client), to.host())
        .ok_or_else(|| "has a host that no certificate can be for".to_owned())
}

/// Sends a request over a connection, and reads its answer. The error says what the server did.
async fn exchange<T>(io: T, request: Request<Full<Bytes>>) -> Result<RecordedAnswer, String>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let until = Instant::now() + PATIENCE;
    let broken = |error: hyper::Error| format!("broke off: {}", Causes(&error));
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(broken)?;
    let driven = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "The connection of a replay ended early.");
        }
    });
    let answer = match before(until, sender.send_request(request)).await {
        Some(Ok(answer)) => answer,
        failed => {
            driven.abort();
            return Err(match failed {
                Some(Err(error)) => broken(error),
                _ => format!("did not answer within {}", span(PATIENCE)),
            });
        }
    };
    let (head, body) = answer.into_parts();
    let body = read(body, until).await;
    driven.abort();
    Ok(answered_with(head.status, &head.headers, body))
}

fn answered_with(status: StatusCode, headers: &HeaderMap, body: CopiedBody) -> RecordedAnswer {
    let body = Some(body).filter(|body| body.passed > 0 || !body.whole);
    RecordedAnswer::of(status, headers, body.as_ref())
}

/// The beginning of a body, which is read as far as it comes in time.
async fn read(mut body: Incoming, until: Instant) -> CopiedBody {
    let (mut kept, mut passed) = (BytesMut::new(), 0_u64);
    let whole = loop {
        match before(until, body.frame()).await {
            Some(None) => break true,
            Some(Some(Ok(frame))) => {
                let data = frame.data_ref().map_or(&[][..], |data| data);
                passed = passed.saturating_add(data.len() as u64);
                let room = BODY.saturating_sub(kept.len());
                kept.extend_from_slice(data.get(..room).unwrap_or(data));
                if passed > MOST {
                    break false;
                }
            }
            Some(Some(Err(_))) | None => break false,
        }
    };
    let whole = whole && passed == kept.len() as u64;
    CopiedBody { bytes: kept.freeze(), passed, whole }
}

/// What `work` gives before `until`. This is the whole of a command, so nothing is lost with what is dropped.
async fn before<T>(until: Instant, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = sleep_until(until) => None,
    }
}

fn span(length: Duration) -> Span {
    Span::from_duration(length)
}

impl Replayed {
    /// For machines, beside what was recorded.
    pub(crate) fn to_json(&self, recording: &Recording) -> Json {
        json!({
            "recording": recording.id,
            "to": self.to,
            "execution": self.execution,
            "omitted": self.omitted,
            "duration": self.took.as_secs_f64(),
            "answer": self.answer,
            "recorded": recording.answer,
        })
    }
}

impl ReplayError {
    /// Whether sending it was not even tried.
    pub(crate) const fn is_obstacle(&self) -> bool {
        matches!(self, Self::Obstacle(_))
    }
}
