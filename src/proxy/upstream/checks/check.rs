//! One active check of an endpoint: a new connection, one request, and whether its answer is that of a healthy server.
//!
//! The connection is closed afterwards. So a check finds what the next new connection of a request would find, and takes
//! none of the places or idle connections that requests use.

use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, TE, USER_AGENT};
use http::response::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version};
use tokio::net::UnixStream;
use tokio::time::sleep;

use super::grpc;
use crate::language::temporal::Span;
use crate::proxy::body::request::RequestBody;
use crate::proxy::h2::{self, Builder, RecvStream, SendRequest};
use crate::proxy::io::Io;
use crate::proxy::message::target::Target;
use crate::proxy::settings::health::{Health, Question};
use crate::proxy::settings::{self, HeadLimits, Protocol};
use crate::proxy::upstream::connect;
use crate::proxy::upstream::h1::Http1Connection;
use crate::proxy::upstream::request_head::RequestHead;
use crate::source::Causes;

/// Who asks.
const AGENT: HeaderValue = HeaderValue::from_static("mwl-proxy-health");

/// Where and how a check is made.
pub(super) struct Check<'a> {
    pub(super) upstream: &'a settings::Upstream,
    pub(super) health: &'a Health,
    pub(super) at: &'a settings::Endpoint,
    /// The address, except for a Unix socket.
    pub(super) address: Option<SocketAddr>,
}

impl Check<'_> {
    /// Makes the check. The error says what was found.
    pub(super) async fn run(&self) -> Result<(), Arc<str>> {
        let limit = self.health.timeout;
        let checked = within(limit, self.ask()).await;
        checked.unwrap_or_else(|| Err(late("did not answer", limit))).map_err(Arc::from)
    }

    async fn ask(&self) -> Result<(), String> {
        let limit = self.upstream.connect_timeout;
        let io = within(limit, self.connect()).await;
        let io = io.unwrap_or_else(|| Err(late("gave no connection", limit)))?;
        match (&self.health.question, self.upstream.protocol) {
            (Question::Http { path, statuses }, Protocol::Http1) => {
                expected(self.http1(io, path).await?, statuses)
            }
            (Question::Http { path, statuses }, Protocol::Http2) => {
                let (parts, _) = self.http2(io, Method::GET, path, None).await?;
                expected(parts.status, statuses)
            }
            (Question::Grpc { service }, _) => {
                let body = Bytes::from(grpc::request(service));
                let (parts, body) = self.http2(io, Method::POST, grpc::PATH, Some(body)).await?;
                expected(parts.status, &[(200, 200)])?;
                succeeded(&parts.headers)?;
                grpc::serving(&body)
            }
        }
    }

    async fn connect(&self) -> Result<Io, String> {
        if let Some(path) = &self.at.socket {
            let stream = async {
                let mut stream = UnixStream::connect(path).await?;
                connect::introduce(&mut stream, self.upstream, None).await?;
                Ok(stream)
            };
            let stream = stream.await.map_err(|error: io::Error| Causes(&error).to_string())?;
            return Ok(Io::Other(Box::new(stream)));
        }
        let Some(address) = self.address else {
            return Err("has no address".into());
        };
        let mut socket = connect::tcp(address).await.map_err(|error| error.to_string())?;
        let introduced = connect::introduce(&mut socket, self.upstream, None).await;
        introduced.map_err(|error| Causes(&error).to_string())?;
        match &self.at.tls {
            None => Ok(Io::Tcp(socket)),
            Some(tls) => {
                let secured = tls.connect(socket).await;
                Ok(Io::Tls(secured.map_err(|error| error.message)?))
            }
        }
    }

    async fn http1(&self, io: Io, path: &str) -> Result<StatusCode, String> {
        let target = Target::of_text(path.to_owned()).map_err(|_| unsupported())?;
        let fields = [
            (USER_AGENT, AGENT),
            (ACCEPT, HeaderValue::from_static("*/*")),
            (CONNECTION, HeaderValue::from_static("close")),
        ];
        let head = RequestHead {
            method: Method::GET,
            target: Cow::Owned(target),
            fields: Cow::Owned(HeaderMap::from_iter(fields)),
            names_endpoint: true,
            upgrade: None,
            expects: false,
            trailers: false,
        };
        let mut connection = Http1Connection::new(io, self.upstream.heads);
        connection.send(&head, &self.at.authority, RequestBody::EMPTY);
        let answer = poll_fn(|cx| connection.poll_answer(cx, &mut |_| {})).await;
        answer.map(|answer| answer.status).map_err(|error| unanswered(&error))
    }

    /// The response to a request over HTTP/2; of one with a body, the response's body as well.
    async fn http2(
        &self,
        io: Io,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<(Parts, Bytes), String> {
        let HeadLimits { size, .. } = self.upstream.heads;
        let most = u32::try_from(size).unwrap_or(u32::MAX);
        let (sender, mut connection) = Builder::new().max_header_list_size(most).connect(io);
        let request = self.request(method, path, body.is_some())?;
        tokio::select! {
            biased;
            answer = exchange(&sender, request, body) => answer.map_err(|error| unanswered(&error)),
            ended = &mut connection => match ended {
                Ok(()) => Err("closed the connection before it answered".into()),
                Err(error) => Err(unanswered(&error)),
            },
        }
    }

    fn request(&self, method: Method, path: &str, grpc: bool) -> Result<Request<()>, String> {
        let scheme = if self.at.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let host = if self.at.socket.is_some() { &self.at.host } else { &self.at.authority };
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(scheme);
        parts.authority = host.parse::<Authority>().ok();
        parts.path_and_query = path.parse::<PathAndQuery>().ok();
        let uri = Uri::from_parts(parts).map_err(|_| unsupported())?;
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        let fields = request.headers_mut();
        fields.insert(USER_AGENT, AGENT);
        if grpc {
            fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            fields.insert(TE, HeaderValue::from_static("trailers"));
        }
        Ok(request)
    }
}

/// What `done` gives, unless that takes longer than `limit`. A check is a leaf: it may be dropped.
async fn within<T>(limit: Duration, done: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = done => Some(done),
        () = sleep(limit) => None,
    }
}

async fn exchange(
    sender: &SendRequest,
    request: Request<()>,
    body: Option<Bytes>,
) -> Result<(Parts, Bytes), h2::Error> {
    let reads = body.is_some();
    let (answer, mut stream) = sender.send_request(request, !reads)?;
    if let Some(body) = body {
        stream.send_data(body, true)?;
    }
    let (mut parts, body) = answer.await?.into_parts();
    let body = if reads { read(&mut parts, body).await? } else { Bytes::new() };
    Ok((parts, body))
}

/// A body, as far as it is wanted. Its trailers are added to the fields of `parts`.
async fn read(parts: &mut Parts, mut body: RecvStream) -> Result<Bytes, h2::Error> {
    let mut whole = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.release_capacity(data.len());
        if whole.len() + data.len() > grpc::MOST {
            return Ok(Bytes::new());
        }
        whole.extend_from_slice(&data);
    }
    if let Some(trailers) = body.trailers().await? {
        parts.headers.extend(trailers);
    }
    Ok(whole.freeze())
}

/// Checks that a gRPC call succeeded.
fn succeeded(fields: &HeaderMap) -> Result<(), String> {
    match fields.get("grpc-status").map(HeaderValue::as_bytes) {
        Some(b"0") => Ok(()),
        Some(status) => Err(format!("answered with the gRPC status {}", status.escape_ascii())),
        None => Err("answered without a gRPC status".into()),
    }
}

fn expected(status: StatusCode, expected: &[(u16, u16)]) -> Result<(), String> {
    let status = status.as_u16();
    if expected.iter().any(|(first, last)| (*first..=*last).contains(&status)) {
        return Ok(());
    }
    Err(format!("answered {status}"))
}

fn late(what: &str, limit: Duration) -> String {
    format!("{what} within {}", Span::from_duration(limit))
}

fn unanswered(error: &(dyn std::error::Error + 'static)) -> String {
    format!("sent no valid response: {}", Causes(error))
}

/// The configuration has checked the path.
fn unsupported() -> String {
    "was not asked: its path cannot be sent".into()
}
