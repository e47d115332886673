//! A client's request, as the language carries it and as the http provider sends it on.
//!
//! One object is both: the value that a Flow receives as its input, read member by member where an
//! expression asks, and the host's state of the execution. A route without expressions never makes JSON
//! of it. Each request that is sent gets a copy of its header fields: whatever becomes of that one, the
//! next can be made from here.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::Entry;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, header, request};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::body::BodyError;
use super::body::collect::{CollectError, collect};
use super::body::source::{Broken, NotReplayable, Source};
use super::body::trailers;
use super::forwarded::{self, Hop};
use super::refusal::Refusal;
use super::route::Target;
use super::runtime::Shaping;
use super::settings::Forwarded;
use super::site::{LocalRoute, Site};
use super::{grpc, headers, id, media, multiplexed, query, shape, target, tunnel};
use crate::language::value::{Map, Native, Value};

/// Listeners speak clear text: TLS brings the other one with it.
const SCHEME: &str = "http";

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
    /// What the client asks of this hop.
    pub(crate) asked: Asked,
    /// When it began to be served.
    pub(crate) begun: Instant,
    /// Whether it is a gRPC call, to be answered as one.
    pub(crate) grpc: bool,
    client: IpAddr,
    /// Dispatches of the Flow's own Steps so far.
    attempts: AtomicU32,
    /// The endpoint that last refused a connection, and its upstream.
    avoid: Mutex<Option<(usize, usize)>>,
    /// Cancels the execution, where it can be.
    cancel: OnceLock<CancellationToken>,
}

/// What the fields about this hop ask for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The protocols that the client offers to change to.
    pub(crate) upgrade: Option<HeaderValue>,
    /// Whether the client takes trailers (RFC 9110 §10.1.4).
    pub(crate) trailers: bool,
    /// Whether it waits to be asked for its body (RFC 9110 §10.1.1).
    pub(crate) body_unasked: bool,
}

/// A request that a route has taken, as far as that goes without waiting.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It can be served.
    Whole(Arc<Exchange>),
    /// Its body is read first, because an expression of the route reads it.
    Unread(Box<Unread>),
}

/// A request whose body is to be read.
#[derive(Debug)]
pub(crate) struct Unread {
    /// What there is of it so far.
    exchange: Exchange,
    body: Incoming,
}

/// The request's body.
#[derive(Debug)]
pub(crate) enum Upload {
    /// There is none.
    None,
    /// It is sent on as it comes.
    Stream(Arc<Source<Incoming>>),
    /// It was read, because an expression of the route reads it.
    Buffered(Bytes, Value),
}

impl Exchange {
    /// Checks `request` and finds its route.
    pub(crate) fn begin(
        site: Arc<Site>,
        request: Request<Incoming>,
        client: SocketAddr,
    ) -> Result<Begun, Refusal> {
        let (mut parts, body) = request.into_parts();
        let grpc = is_grpc(parts.version, &parts.headers);
        if parts.version == Version::HTTP_2 {
            as_any_version(&site, &mut parts)?;
        }
        let route = route(&site, &parts)?;
        let admitted = Admitted::admit(&site)?;
        let client = match &site.runtime.forwarded {
            Some(forwarded) => forward(forwarded, &mut parts, client.ip()),
            None => client.ip(),
        };
        if let Some(authority) = parts.uri.authority() {
            let host = HeaderValue::from_str(authority.as_str());
            let host = host.map_err(|_| Refusal::from(target::TargetError::BadHost))?;
            parts.headers.insert(header::HOST, host);
            parts.uri = origin_form(&parts.uri);
        }
        let mut asked = if headers::concerns_this_hop(&parts.headers) {
            this_hop(&mut parts)?
        } else {
            Asked::default()
        };
        if let Some(shaping) = &route.shaping {
            shape(shaping, &mut parts);
        }
        let begun = Instant::now();
        let id = request_id(&site, begun, &mut parts.headers);
        let (upload, unread) = if route.facts.reads_request {
            (Upload::None, Some(body))
        } else if body.is_end_stream() {
            (Upload::None, None)
        } else {
            let keep = route.facts.resends.then_some(route.buffer.replay);
            (Upload::Stream(Arc::new(Source::new(body, keep))), None)
        };
        if asked.body_unasked && !matches!(upload, Upload::Stream(_)) {
            // A body that is in memory, or none, is not asked for.
            asked.body_unasked = false;
            parts.headers.remove(header::EXPECT);
        }
        // From here on it is the exchange that takes the request off the count.
        std::mem::forget(admitted);
        let exchange = Self {
            site,
            route,
            id,
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            upload,
            asked,
            begun,
            grpc,
            client,
            attempts: AtomicU32::new(0),
            avoid: Mutex::new(None),
            cancel: OnceLock::new(),
        };
        Ok(match unread {
            Some(body) => Begun::Unread(Box::new(Unread { exchange, body })),
            None => Begun::Whole(Arc::new(exchange)),
        })
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
        self.upload.broken() == Some(Broken::Gone)
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

impl Unread {
    /// Reads the body, within the route's limit.
    pub(crate) async fn read(self) -> Result<Arc<Exchange>, Refusal> {
        let Self { mut exchange, body } = self;
        let limit = exchange.route.buffer.request;
        let timeout = exchange.site.runtime.limits.body_timeout;
        let bytes = read(body, limit, timeout).await?;
        let value = media::to_value(exchange.headers.get(header::CONTENT_TYPE), &bytes);
        exchange.upload = Upload::Buffered(bytes, value);
        Ok(Arc::new(exchange))
    }
}

/// A request that counts as running until this is dropped.
struct Admitted<'a>(&'a Site);

impl<'a> Admitted<'a> {
    /// Counts a request, where one more may run.
    fn admit(site: &'a Site) -> Result<Self, Refusal> {
        let admitted = Self(site);
        let share = site.runtime.share;
        if site.core.begin() < share { Ok(admitted) } else { Err(Refusal::overloaded(share)) }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.core.end();
    }
}

impl Upload {
    /// How the client's body broke off, where it did.
    pub(crate) fn broken(&self) -> Option<Broken> {
        match self {
            Self::Stream(source) => source.broken(),
            Self::None | Self::Buffered(..) => None,
        }
    }
}

/// All of a body of at most `limit` bytes, no two of which come further than `timeout` apart.
async fn read(body: Incoming, limit: usize, timeout: Duration) -> Result<Bytes, Refusal> {
    let attempt = Arc::new(Source::new(body, None)).attempt(timeout);
    let mut attempt = attempt.map_err(|NotReplayable| Refusal::body_timeout())?;
    collect(&mut attempt, limit).await.map_err(|error| match error {
        CollectError::TooLarge => Refusal::too_large(limit),
        CollectError::Broken(BodyError::Stalled(_)) => Refusal::body_timeout(),
        CollectError::Broken(BodyError::Client(error)) => Refusal::broken_body(error.as_ref()),
        CollectError::Broken(error) => Refusal::broken_body(&error),
    })
}

/// Brings the fields in order that say who the client is; says who it is.
fn forward(forwarded: &Forwarded, parts: &mut request::Parts, peer: IpAddr) -> IpAddr {
    let host = forwarded::asked(&parts.uri, &parts.headers).to_owned();
    let hop = Hop { peer, scheme: SCHEME, host: &host, version: parts.version };
    forwarded.apply(&mut parts.headers, hop)
}

/// Changes what the route changes.
fn shape(shaping: &Shaping, parts: &mut request::Parts) {
    if let Some(uri) = shaping.prefix.as_ref().and_then(|prefix| shape::rewrite(&parts.uri, prefix))
    {
        parts.uri = uri;
    }
    if let Some(host) = &shaping.host {
        parts.headers.insert(header::HOST, host.clone());
    }
    if let Some(edits) = &shaping.request {
        shape::edit(&mut parts.headers, edits);
    }
}

/// Checks the fields that are about this hop, and takes them off: what is sent on is framed anew.
fn this_hop(parts: &mut request::Parts) -> Result<Asked, Refusal> {
    // Older clients cannot mean it (RFC 9110 §10.1.1), and nobody here asks newer ones.
    let may_wait = parts.version == Version::HTTP_11;
    let asked = Asked {
        upgrade: may_wait.then(|| tunnel::offered(&parts.headers)).flatten(),
        trailers: headers::takes_trailers(&parts.headers),
        body_unasked: expectation(&parts.headers)? && may_wait,
    };
    if !may_wait {
        parts.headers.remove(header::EXPECT);
    }
    if !headers::strip_hop_by_hop(&mut parts.headers) {
        return Err(Refusal::transfer_coding());
    }
    if parts.headers.contains_key(header::TRAILER) {
        trailers::announce_permitted(&mut parts.headers);
    }
    Ok(asked)
}

/// Whether the client expects to be asked for its body. Nothing else can be expected here.
fn expectation(fields: &HeaderMap) -> Result<bool, Refusal> {
    let mut expected = fields.get_all(header::EXPECT).iter().peekable();
    let any = expected.peek().is_some();
    let known = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if expected.all(known) { Ok(any) } else { Err(Refusal::expectation()) }
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
    target::check_form(&parts.uri, &parts.method)?;
    let limit = site.runtime.limits.target_size;
    if parts.uri.path_and_query().is_some_and(|target| target.as_str().len() > limit) {
        return Err(Refusal::target_too_long(limit));
    }
    let authority = target::authority(&parts.uri, parts.version, &parts.headers)?;
    let path = target::check_path(parts.uri.path())?;
    let found = site.runtime.router.find(Target {
        host: target::host(authority),
        path: &path,
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
fn request_id(site: &Site, begun: Instant, headers: &mut HeaderMap) -> HeaderValue {
    let new = || site.core.ids.next(site.core.clock.at(begun).as_nanos());
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
            "scheme" => Some(Value::from(SCHEME)),
            "host" => {
                let host = self.headers.get(header::HOST);
                let host = host.and_then(|host| host.to_str().ok());
                Some(Value::from(host.unwrap_or_default()))
            }
            "path" => Some(Value::from(self.uri.path())),
            "query" => Some(query::to_value(self.uri.query().unwrap_or_default())),
            "headers" => Some(headers::to_value(&self.headers)),
            "body" => match &self.upload {
                Upload::Buffered(_, value) => Some(value.clone()),
                Upload::None | Upload::Stream(_) => None,
            },
            _ => None,
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
                let address = exchange.client.to_string();
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
