//! A client's request, as the language carries it and as the http provider sends it on.
//!
//! One object serves as both: the value that a Flow gets as its input, read member by member by expressions,
//! and the host's state of the execution. A route without expressions never turns it into JSON. Each request
//! that is sent gets its own copy of the header fields, so the next one can always be made from here.

use std::any::Any;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderValue, Method, header};
use http_body::Body as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::head::{self, AcceptedHead, HopOptions, ReceivedHead};
use super::interim::InterimTarget;
use super::trace::TracePlace;
use super::upload::Upload;
use crate::language::value::{Map, Missing, Native, Value};
use crate::proxy::body::capture::Capture;
use crate::proxy::body::client::ClientBody;
use crate::proxy::body::source::{BodyFailure, ReplaySource};
use crate::proxy::boxed::shared;
use crate::proxy::h1::{DropReason, give_back};
use crate::proxy::io::peer::Peer;
use crate::proxy::message::refusal::Refusal;
use crate::proxy::message::refused_head::RefusedHead;
use crate::proxy::message::target::Target;
use crate::proxy::message::{headers, id, query};
use crate::proxy::proxy_header::Ends;
use crate::proxy::site::{WorkerConfig, WorkerRoute};
use crate::proxy::tls::ClientCertificate;
use crate::proxy::upstream::Upstream;
use crate::proxy::upstream::endpoints::{SharedTried, WorkerEndpoint};
use crate::telemetry::record::{Recorder, RequestId};

/// A request that a route has matched.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) site: Arc<WorkerConfig>,
    pub(crate) route: Arc<WorkerRoute>,
    /// `execution.id`.
    pub(crate) id: HeaderValue,
    pub(crate) method: Method,
    pub(crate) target: Target,
    /// The target as the client wrote it, if the route rewrites it.
    written: Option<Box<Target>>,
    /// The fields to send on.
    pub(crate) headers: HeaderMap,
    pub(crate) upload: Upload,
    /// What the client asks of this hop.
    pub(crate) asked: HopOptions,
    /// Where the upstream's interim responses go.
    pub(crate) interim: InterimTarget,
    /// When the request began to be served.
    pub(crate) begun: Instant,
    /// Whether it is a gRPC call, which gets gRPC answers.
    pub(crate) grpc: bool,
    client: IpAddr,
    /// The ends of its connection, if an upstream of the configuration is to be told them.
    ends: Option<Box<Ends>>,
    /// The client's certificate, if the listener asked for one.
    certificate: Option<Arc<ClientCertificate>>,
    /// The scheme of its connection.
    pub(crate) scheme: &'static str,
    /// How many dispatches of the Flow's own Steps there were.
    attempts: AtomicU32,
    /// Whether its latest attempt waited for one of an upstream's places until it was stopped, and asked nobody.
    pub(crate) only_waited: AtomicBool,
    /// The endpoints that it has tried, of upstreams that may have several.
    pub(crate) tried: SharedTried,
    /// Its id in records and events, once somebody needs it.
    pub(super) request: OnceLock<RequestId>,
    /// A random value of this execution, once somebody needs it.
    secret: OnceLock<[u8; 16]>,
    /// Cancels the execution, if that is possible.
    cancel: OnceLock<CancellationToken>,
    /// Whether `limits.cleanups` has cut its cleanups off.
    pub(crate) cut_off: AtomicBool,
    /// Its place in a trace, if requests are traced.
    pub(crate) trace: Option<Box<TracePlace>>,
    /// Its record, if anybody wants one.
    pub(crate) recorder: OnceLock<Box<Recorder>>,
    /// The copy of all that passes, if it is recorded whole.
    pub(crate) capture: Option<Arc<Capture>>,
}

/// A request that a route has matched, as far as that needs no waiting.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It can be served.
    Whole(Arc<Exchange>),
    /// Its body must be read first, because an expression or a middleware of the route looks at it, or several calls may send it at
    /// once.
    Unread(Box<PendingBody>),
}

/// A request whose body must be read.
#[derive(Debug)]
pub(crate) struct PendingBody {
    /// The request without its body.
    exchange: Exchange,
    body: ClientBody,
}

impl Exchange {
    /// Checks a request and finds its route. A refused request keeps its body.
    pub(crate) fn begin(
        site: Arc<WorkerConfig>,
        mut parts: Box<ReceivedHead>,
        body: ClientBody,
        peer: &Peer,
        interim: InterimTarget,
    ) -> Result<Admission, Box<(Refusal, ClientBody)>> {
        let grpc = head::is_grpc(parts.version, &parts.headers);
        let begun = Instant::now();
        let accepted = match head::accept(&site, &mut parts, peer, begun) {
            Ok(accepted) => accepted,
            Err(refusal) => return Err(Box::new(refused(refusal, &parts, body))),
        };
        let AcceptedHead { route, mut asked, client, id, written, trace } = accepted;
        let admitted = match AdmissionGuard::admit(&site) {
            Ok(admitted) => admitted,
            Err(refusal) => return Err(Box::new(refused(refusal, &parts, body))),
        };
        let facts = route.facts;
        let capture = body.capture().cloned();
        let (upload, unread) = if body.is_end_stream() && !facts.reads_request {
            (Upload::None, None)
        } else if facts.reads_request || facts.fans_out || facts.looks_at_request {
            (Upload::None, Some(body))
        } else {
            let keep = facts.resends.then_some(route.buffer.replay);
            (Upload::Stream(Arc::new(ReplaySource::new(body, keep).within(&site.memory))), None)
        };
        if unread.is_none() {
            settle_expectation(&upload, &mut asked, &mut parts.headers);
        }
        let ends = if site.runtime.introduces { peer.ends(client) } else { None };
        // From here on, the exchange ends the count of the request.
        std::mem::forget(admitted);
        let exchange = move || Self {
            site,
            route,
            id,
            method: parts.method,
            target: parts.target,
            written,
            headers: parts.headers,
            upload,
            asked,
            interim,
            begun,
            grpc,
            client,
            ends,
            certificate: peer.certificate.clone(),
            scheme: peer.scheme(),
            attempts: AtomicU32::new(0),
            only_waited: AtomicBool::new(false),
            tried: SharedTried::default(),
            request: OnceLock::new(),
            secret: OnceLock::new(),
            cancel: OnceLock::new(),
            cut_off: AtomicBool::new(false),
            trace,
            recorder: OnceLock::new(),
            capture,
        };
        Ok(match unread {
            Some(body) => Admission::Unread(Box::new(PendingBody { exchange: exchange(), body })),
            None => Admission::Whole(shared(exchange)),
        })
    }

    /// A request without a body and without a connection, for benches that measure what reading it costs.
    pub(crate) fn detached(
        site: Arc<WorkerConfig>,
        parts: http::request::Parts,
        peer: &Peer,
    ) -> Result<Arc<Self>, Refusal> {
        let (head, body) = (Box::new(ReceivedHead::from(parts)), ClientBody::Empty);
        match Self::begin(site, head, body, peer, InterimTarget::Nowhere(DropReason::Late)) {
            Ok(Admission::Whole(exchange)) => Ok(exchange),
            Ok(Admission::Unread(unread)) => Ok(Arc::new(unread.exchange)),
            Err(refused) => Err(refused.0),
        }
    }

    /// The client's address.
    pub(crate) const fn client(&self) -> IpAddr {
        self.client
    }

    /// The ends of its connection that `upstream` is to be told, if it is and they are known.
    pub(crate) fn ends_for(&self, upstream: &Upstream) -> Option<&Ends> {
        self.ends.as_deref().filter(|_| upstream.settings.proxy_protocol.is_some())
    }

    /// The path as the client wrote it.
    pub(crate) fn path(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.target).path()
    }

    /// `execution.id`.
    pub(crate) fn id(&self) -> &str {
        id::text(&self.id)
    }

    /// A random value of this execution, which nobody outside the proxy knows. Its id may be the client's choice.
    pub(crate) fn secret(&self) -> [u8; 16] {
        *self.secret.get_or_init(|| self.site.core.ids.random())
    }

    /// Counts a dispatch of one of the Flow's own Steps.
    pub(crate) fn count_attempt(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// How many of them there were.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// `token` cancels the execution.
    pub(crate) fn cancelled_by(&self, token: CancellationToken) {
        // Set once, because an execution is started once.
        let _first = self.cancel.set(token).is_ok();
    }

    /// Cancels the execution because its client has left. Returns false if that is not possible.
    pub(crate) fn cancel(&self) -> bool {
        self.cancel.get().is_some_and(|token| {
            token.cancel();
            true
        })
    }

    /// Whether the client left before its request was complete.
    pub(crate) fn client_gone(&self) -> bool {
        self.upload.broken() == Some(BodyFailure::Gone)
    }

    /// A member of `execution.platform`.
    pub(crate) fn platform(&self, name: &str) -> Option<Value> {
        match name {
            "environment" => Some(Value::String(Arc::clone(&self.site.runtime.environment))),
            "route" => Some(Value::String(Arc::clone(&self.route.name))),
            "client" => {
                let address = ("address", Value::string(self.client.to_string()));
                let certificate = self.certificate.as_ref();
                let certificate = certificate.map(|shown| ("certificate", shown.to_value()));
                Some(Value::object([address].into_iter().chain(certificate)))
            }
            _ => None,
        }
    }

    /// The endpoint for the next attempt at `upstream`: one that this execution has not tried, if there is one. `key` is for
    /// `hash`.
    pub(crate) fn pick(
        &self,
        upstream: &Upstream,
        key: Option<&str>,
    ) -> Option<Arc<WorkerEndpoint>> {
        if let Some(only) = upstream.only() {
            return Some(Arc::clone(only));
        }
        let beside = self.route.facts.fans_out;
        self.tried.pick(beside, |tried| upstream.pick(tried, key))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.deliver();
        give_back(std::mem::take(&mut self.headers));
        self.site.core.end();
    }
}

impl PendingBody {
    /// Reads the body, up to the route's limit.
    pub(crate) async fn read(self) -> Result<Arc<Exchange>, Refusal> {
        let Self { mut exchange, body } = self;
        let content_type = exchange.headers.get(header::CONTENT_TYPE);
        let read = Upload::read(body, &exchange.site, &exchange.route, content_type).await;
        exchange.upload = read.map_err(|refusal| {
            let Exchange { method, headers, .. } = &exchange;
            refusal.asked(RefusedHead::of(method, exchange.path(), None, headers))
        })?;
        let Exchange { upload, asked, headers, .. } = &mut exchange;
        settle_expectation(upload, asked, headers);
        Ok(Arc::new(exchange))
    }
}

/// A body in memory, or no body, need not be waited for.
fn settle_expectation(upload: &Upload, asked: &mut HopOptions, headers: &mut HeaderMap) {
    if asked.body_unasked && !matches!(upload, Upload::Stream(_)) {
        asked.body_unasked = false;
        headers.remove(header::EXPECT);
    }
}

/// A refused request, with its body.
fn refused(refusal: Refusal, head: &ReceivedHead, body: ClientBody) -> (Refusal, ClientBody) {
    let ReceivedHead { method, absolute, target, headers, .. } = head;
    let asked = RefusedHead::of(method, target.path(), absolute.authority.as_ref(), headers);
    (refusal.asked(asked), body)
}

/// Counts a request as running until it is dropped.
struct AdmissionGuard<'a>(&'a WorkerConfig);

impl<'a> AdmissionGuard<'a> {
    /// Counts a request, if one more may run.
    fn admit(site: &'a WorkerConfig) -> Result<Self, Refusal> {
        let admitted = Self(site);
        let share = site.runtime.share;
        if site.core.begin() < share { Ok(admitted) } else { Err(Refusal::overloaded(share)) }
    }
}

impl Drop for AdmissionGuard<'_> {
    fn drop(&mut self) {
        self.0.core.end();
    }
}

impl Native for Exchange {
    fn member(&self, name: &str) -> Option<Value> {
        match name {
            "method" => Some(Value::from(self.method.as_str())),
            "scheme" => Some(Value::from(self.scheme)),
            "host" => {
                let host = self.headers.get(header::HOST);
                let host = host.and_then(|host| host.to_str().ok());
                Some(Value::from(host.unwrap_or_default()))
            }
            "path" => Some(Value::from(self.target.path())),
            "query" => Some(query::to_value(self.target.query().unwrap_or_default())),
            "headers" => Some(headers::to_value(&self.headers)),
            "body" => match &self.upload {
                Upload::Buffered { value, .. } => value.clone(),
                Upload::None | Upload::Stream(_) => None,
            },
            _ => None,
        }
    }

    fn at(&self, member: &str, rest: &[Arc<str>]) -> Result<Value, Missing> {
        match member {
            "headers" => headers::at(&self.headers, rest).map_err(Missing::below),
            "query" => {
                query::at(self.target.query().unwrap_or_default(), rest).map_err(Missing::below)
            }
            _ => Missing::follow(self.member(member), rest),
        }
    }

    /// Without the body: whether that was read depends on what else the route's expressions name.
    fn to_map(&self) -> Map {
        ["method", "scheme", "host", "path", "query", "headers"]
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
        self.0.platform(name)
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
