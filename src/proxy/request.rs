//! A client's request, as the language carries it and as the http provider sends it on.
//!
//! One object is both: the value that a Flow receives as its input, read member by member where an
//! expression asks, and the host's state of the execution. A route without expressions never makes JSON
//! of it. Each request that is sent gets a copy of its header fields: whatever becomes of that one, the
//! next can be made from here.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::Entry;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, header, request};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::body::collect::{CollectError, collect};
use super::body::source::{Broken, Source};
use super::body::trailers;
use super::refusal::Refusal;
use super::route::Target;
use super::site::{LocalRoute, Site};
use super::{grpc, headers, id, media, multiplexed, query, target};
use crate::language::value::{Map, Missing, Native, Value};

/// How long a body that is read ahead may stall.
const READ_AHEAD: Duration = Duration::from_mins(1);

/// One request that a route has taken.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) site: Arc<Site>,
    pub(crate) route: Arc<LocalRoute>,
    /// `execution.id`.
    pub(crate) id: HeaderValue,
    pub(crate) method: Method,
    /// Origin form, or `*`.
    pub(crate) uri: Uri,
    /// The fields that are sent on.
    pub(crate) headers: HeaderMap,
    pub(crate) upload: Upload,
    /// Whether the client takes trailers (RFC 9110 §10.1.4).
    pub(crate) takes_trailers: bool,
    /// Whether it is a gRPC call, to be answered as one.
    pub(crate) grpc: bool,
    client: SocketAddr,
    /// Dispatches of the Flow's own Steps so far.
    attempts: AtomicU32,
    /// The endpoint that last refused a connection, and its upstream.
    avoid: Mutex<Option<(usize, usize)>>,
    /// Cancels the execution, where it can be.
    cancel: OnceLock<CancellationToken>,
}

/// The request's body.
#[derive(Debug)]
pub(crate) enum Upload {
    /// There is none.
    None,
    /// It is sent on as it comes.
    Stream(Arc<Source<Incoming>>),
    /// It was read: because an expression of the route reads it, as the value, or because it is to be sent
    /// several times side by side.
    Buffered(Bytes, Option<Value>),
}

impl Exchange {
    /// Checks `request`, finds its route, and reads its body where the route wants that.
    pub(crate) async fn begin(
        site: Arc<Site>,
        request: Request<Incoming>,
        client: SocketAddr,
    ) -> Result<Arc<Self>, Refusal> {
        let (mut parts, body) = request.into_parts();
        let grpc = is_grpc(parts.version, &parts.headers);
        if parts.version == Version::HTTP_2 {
            as_any_version(&site, &mut parts)?;
        }
        let route = route(&site, &parts)?;
        if let Some(authority) = parts.uri.authority() {
            let host = HeaderValue::from_str(authority.as_str());
            let host = host.map_err(|_| Refusal::from(target::TargetError::BadHost))?;
            parts.headers.insert(header::HOST, host);
            parts.uri = origin_form(&parts.uri);
        }
        let takes_trailers = headers::takes_trailers(&parts.headers);
        headers::strip_hop_by_hop(&mut parts.headers);
        if parts.headers.contains_key(header::TRAILER) {
            trailers::announce_permitted(&mut parts.headers);
        }
        let id = request_id(&site, &mut parts.headers);
        let upload = Upload::new(&route, &parts.headers, body).await?;
        site.core.begin();
        Ok(Arc::new(Self {
            site,
            route,
            id,
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            upload,
            takes_trailers,
            grpc,
            client,
            attempts: AtomicU32::new(0),
            avoid: Mutex::new(None),
            cancel: OnceLock::new(),
        }))
    }

    /// A request without a body that no connection brought: for benches, which measure what reading it costs.
    pub(crate) fn detached(
        site: Arc<Site>,
        parts: request::Parts,
        client: SocketAddr,
    ) -> Result<Arc<Self>, Refusal> {
        let route = route(&site, &parts)?;
        site.core.begin();
        Ok(Arc::new(Self {
            id: HeaderValue::from_static("00000000-0000-7000-8000-000000000000"),
            site,
            route,
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            upload: Upload::None,
            takes_trailers: false,
            grpc: false,
            client,
            attempts: AtomicU32::new(0),
            avoid: Mutex::new(None),
            cancel: OnceLock::new(),
        }))
    }

    /// `execution.id`.
    pub(crate) fn id(&self) -> &str {
        id::text(&self.id)
    }

    /// Counts a dispatch of one of the Flow's own Steps.
    pub(crate) fn count_attempt(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// The execution is cancelled by `token`.
    pub(crate) fn cancelled_by(&self, token: CancellationToken) {
        // Set once: an execution is started once.
        let _first = self.cancel.set(token).is_ok();
    }

    /// Cancels the execution because its client is gone; false where it cannot be cancelled.
    pub(crate) fn cancel(&self) -> bool {
        self.cancel.get().is_some_and(|token| {
            token.cancel();
            true
        })
    }

    /// Whether the client went away before its request was whole.
    pub(crate) fn client_gone(&self) -> bool {
        match &self.upload {
            Upload::Stream(source) => source.broken() == Some(Broken::Gone),
            Upload::None | Upload::Buffered(..) => false,
        }
    }

    /// The endpoint of `upstream` that the next attempt should pass over.
    pub(crate) fn avoided(&self, upstream: usize) -> Option<usize> {
        let avoid = *lock(&self.avoid);
        avoid.filter(|(of, _)| *of == upstream).map(|(_, endpoint)| endpoint)
    }

    /// `endpoint` of `upstream` gave no connection.
    pub(crate) fn avoid(&self, upstream: usize, endpoint: usize) {
        *lock(&self.avoid) = Some((upstream, endpoint));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.site.core.end();
    }
}

impl Upload {
    async fn new(
        route: &LocalRoute,
        headers: &HeaderMap,
        mut body: Incoming,
    ) -> Result<Self, Refusal> {
        if !route.facts.reads_request {
            if body.is_end_stream() {
                return Ok(Self::None);
            }
            let keep = route.facts.resends.then_some(route.buffer.replay);
            let source = Arc::new(Source::new(body, keep));
            if route.facts.fans_out {
                let read = source.read_ahead(READ_AHEAD).await;
                let read = read.map_err(|error| Refusal::broken_body(&error))?;
                if let Some(bytes) = read {
                    return Ok(Self::Buffered(bytes, None));
                }
            }
            return Ok(Self::Stream(source));
        }
        let limit = route.buffer.request;
        let bytes = collect(&mut body, limit).await.map_err(|error| match error {
            CollectError::TooLarge => Refusal::too_large(limit),
            CollectError::Broken(error) => Refusal::broken_body(&error),
        })?;
        let value = media::to_value(headers.get(header::CONTENT_TYPE), &bytes);
        Ok(Self::Buffered(bytes, Some(value)))
    }
}

/// Whether the request is a gRPC call: only HTTP/2 carries them.
pub(crate) fn is_grpc(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_2 && grpc::is_grpc(headers.get(header::CONTENT_TYPE))
}

/// Makes an HTTP/2 request's fields those that any version has, and checks what the HTTP/1 side has checked
/// of its own.
fn as_any_version(site: &Site, parts: &mut request::Parts) -> Result<(), Refusal> {
    let limit = site.runtime.limits.headers;
    if parts.headers.len() > limit {
        return Err(Refusal::too_many_fields(limit));
    }
    multiplexed::join_crumbs(&mut parts.headers);
    Ok(())
}

/// The first route that takes the request.
fn route(site: &Site, parts: &request::Parts) -> Result<Arc<LocalRoute>, Refusal> {
    if parts.method == Method::CONNECT {
        return Err(Refusal::connect());
    }
    let authority = target::authority(&parts.uri, parts.version, &parts.headers)?;
    target::check_path(parts.uri.path())?;
    let found = site.runtime.router.find(Target {
        host: target::host(authority),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        method: &parts.method,
        headers: &parts.headers,
    });
    let route = found.and_then(|position| site.routes.get(position));
    route.cloned().ok_or_else(Refusal::no_route)
}

fn origin_form(uri: &Uri) -> Uri {
    let root = || PathAndQuery::from_static("/");
    Uri::from(uri.path_and_query().cloned().unwrap_or_else(root))
}

/// The id that the request carries, or a new one put in its place.
fn request_id(site: &Site, headers: &mut HeaderMap) -> HeaderValue {
    let new = || site.core.ids.next(site.core.clock.now().as_nanos());
    match headers.entry(&id::REQUEST_ID) {
        Entry::Occupied(given) if id::is_well_formed(given.get()) => given.get().clone(),
        Entry::Occupied(mut given) => {
            let id = new();
            given.insert(id.clone());
            id
        }
        Entry::Vacant(place) => place.insert(new()).clone(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Native for Exchange {
    fn member(&self, name: &str) -> Option<Value> {
        match name {
            "method" => Some(Value::from(self.method.as_str())),
            // Listeners speak clear text: TLS brings the other one with it.
            "scheme" => Some(Value::from("http")),
            "host" => {
                let host = self.headers.get(header::HOST);
                let host = host.and_then(|host| host.to_str().ok());
                Some(Value::from(host.unwrap_or_default()))
            }
            "path" => Some(Value::from(self.uri.path())),
            "query" => Some(query::to_value(self.uri.query().unwrap_or_default())),
            "headers" => Some(headers::to_value(&self.headers)),
            "body" => match &self.upload {
                Upload::Buffered(_, value) => value.clone(),
                Upload::None | Upload::Stream(_) => None,
            },
            _ => None,
        }
    }

    fn at(&self, member: &str, rest: &[Arc<str>]) -> Result<Value, Missing> {
        match member {
            "headers" => headers::at(&self.headers, rest).map_err(Missing::below),
            "query" => {
                query::at(self.uri.query().unwrap_or_default(), rest).map_err(Missing::below)
            }
            _ => Missing::follow(self.member(member), rest),
        }
    }

    fn to_map(&self) -> Map {
        ["method", "scheme", "host", "path", "query", "headers", "body"]
            .into_iter()
            .filter_map(|name| Some((name.into(), self.member(name)?)))
            .collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// `execution.platform`.
#[derive(Debug)]
pub(crate) struct Platform(pub(crate) Arc<Exchange>);

impl Native for Platform {
    fn member(&self, name: &str) -> Option<Value> {
        let exchange = &self.0;
        match name {
            "environment" => Some(Value::String(Arc::clone(&exchange.site.runtime.environment))),
            "route" => Some(Value::String(Arc::clone(&exchange.route.name))),
            "client" => {
                let address = exchange.client.ip().to_string();
                Some(Value::object([("address", Value::string(address))]))
            }
            _ => None,
        }
    }

    fn to_map(&self) -> Map {
        ["environment", "route", "client"]
            .into_iter()
            .filter_map(|name| Some((name.into(), self.member(name)?)))
            .collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
