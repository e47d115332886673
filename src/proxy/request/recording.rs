//! A request's record and its place in a trace: when they begin, and who gets the record.
//!
//! Most requests are plain: one attempt, which succeeds. Only a few of these per second are recorded (see
//! [`RateLimiter`](crate::telemetry::limiter::RateLimiter)); the others cost a few branches. Anything that
//! somebody will look for is always recorded from its first attempt on. So a record begins with the first
//! failure at the latest; if successes may precede that (an execution with several calls), it begins with the
//! request, and is dropped at the end if nothing happened.

use std::borrow::Cow;

use http::Version;
use http::header::{self, HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::exchange::Exchange;
use super::head::ReceivedHead;
use super::trace::TracePlace;
use super::upload::Upload;
use crate::language::outcome::Outcome;
use crate::proxy::body::capture::{Capture, CapturedHead};
use crate::proxy::body::client::ClientBody;
use crate::proxy::message::target::Target;
use crate::proxy::site::WorkerConfig;
use crate::telemetry::events::Subject;
use crate::telemetry::record::{
    AnswerSummary, Execution, Recorder, Request, RequestId, RequestRef, Traced,
};
use crate::telemetry::trace::{SpanId, TRACEPARENT};

/// The span of an attempt, if its request is traced.
pub(crate) fn span(exchange: &Exchange) -> Option<SpanId> {
    let context = &exchange.trace.as_deref()?.context;
    // An unsampled request has no spans, so the upstream sees the request itself as its caller.
    let own = || SpanId(exchange.site.core.ids.random());
    Some(if context.sampled() { own() } else { context.span() })
}

/// Adds the trace to the upstream's request.
pub(crate) fn inject(exchange: &Exchange, span: Option<SpanId>, fields: &mut Cow<'_, HeaderMap>) {
    if let (Some(place), Some(span)) = (exchange.trace.as_deref(), span)
        && let Ok(mut value) = HeaderValue::from_bytes(&place.context.header(span))
    {
        // It comes once: HTTP/2 need not keep it in its table of fields.
        value.set_sensitive(true);
        fields.to_mut().insert(TRACEPARENT, value);
    }
}

/// The body of a request that is recorded whole: it copies what passes. Others stay as they are.
pub(crate) fn captured(site: &WorkerConfig, head: &ReceivedHead, body: ClientBody) -> ClientBody {
    if !site.runtime.sinks().records_exchanges() {
        return body;
    }
    let mut headers = head.headers.clone();
    // In HTTP/2 the host is no field.
    if let Some(host) = &head.absolute.authority
        && !headers.contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(host.as_str())
    {
        headers.insert(header::HOST, host);
    }
    let head = CapturedHead {
        method: head.method.clone(),
        target: head.target.as_str().into(),
        version: head.version,
        headers,
    };
    Capture::around(head, body, &site.memory)
}

impl Exchange {
    /// The request begins to be served: decides whether it is recorded from the start.
    pub(crate) fn record_from(&self, begun: Instant) {
        let sinks = self.site.runtime.sinks();
        if !sinks.listen() {
            return;
        }
        let traced = self.traced().is_some();
        let kept = sinks.keeps() && self.site.core.pace.admits(begun);
        let copied = self.capture.is_some();
        if traced || kept || copied || (sinks.logs() && sinks.wants(self.id())) {
            self.recording();
        } else if self.route.facts.several_calls {
            self.recorder.get_or_init(|| Box::new(Recorder::provisional()));
        }
    }

    /// Its place in a trace, if spans are made of it.
    pub(crate) fn traced(&self) -> Option<&TracePlace> {
        self.trace.as_deref().filter(|place| place.context.sampled())
    }

    /// The request's record, if it has one. With `eventful`, something important has happened: the record
    /// begins now, unless nobody wants any, and will be delivered.
    pub(crate) fn recorder(&self, eventful: bool) -> Option<&Recorder> {
        let recorder = match self.recorder.get() {
            Some(recorder) => recorder,
            None if eventful && self.site.runtime.sinks().listen() => self.recording(),
            None => return None,
        };
        if eventful {
            recorder.want();
        }
        Some(recorder)
    }

    fn recording(&self) -> &Recorder {
        self.recorder.get_or_init(Box::default)
    }

    /// The execution has its Result.
    pub(crate) fn ended(&self, outcome: &Outcome) {
        if let Some(recorder) = self.recorder(!outcome.is_success()) {
            recorder.result(outcome);
        }
    }

    /// The request has ended completely: delivers its record.
    pub(crate) fn deliver(&self) {
        let Some(recorder) = self.recorder.get() else {
            return;
        };
        if let Some(execution) = recorder.finish(|answer| self.described(answer)) {
            let copied = self.capture.as_ref().and_then(|capture| capture.take());
            self.site.runtime.sinks().deliver(execution, copied);
        }
    }

    /// What its events belong to.
    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject { execution: self.id(), request: self.request_id(), route: &self.route.name }
    }

    fn request_id(&self) -> RequestId {
        *self.request.get_or_init(|| RequestId(self.site.core.ids.random()))
    }

    fn described(&self, answer: &AnswerSummary) -> RequestRef<'_> {
        Request {
            id: self.id(),
            request: self.request_id(),
            route: Some(&*self.route.name),
            client: self.client(),
            method: self.method.as_str(),
            path: self.path(),
            received: match &self.upload {
                Upload::None => 0,
                Upload::Stream(source) => source.read(),
                Upload::Buffered { bytes, .. } => bytes.len() as u64,
            },
            at: self.site.core.clock.at(answer.began),
            trace: self.traced().map(|place| {
                let host = self.headers.get(header::HOST).and_then(|host| host.to_str().ok());
                Traced {
                    context: place.context,
                    host: host.unwrap_or_default(),
                    scheme: self.scheme,
                    version: match place.version {
                        Version::HTTP_10 => "1.0",
                        Version::HTTP_2 => "2",
                        _ => "1.1",
                    },
                }
            }),
        }
    }
}

/// What the access log needs of a refused request. Taken before the request is consumed.
#[derive(Debug)]
pub(crate) struct RefusedRequest {
    site: std::sync::Arc<WorkerConfig>,
    method: http::Method,
    target: Target,
    client: std::net::IpAddr,
    begun: Instant,
}

impl RefusedRequest {
    /// `None` if nobody wants it.
    pub(crate) fn of(
        site: &std::sync::Arc<WorkerConfig>,
        head: &ReceivedHead,
        client: std::net::SocketAddr,
    ) -> Option<Box<Self>> {
        site.runtime.sinks().logs().then(|| {
            Box::new(Self {
                site: site.clone(),
                method: head.method.clone(),
                target: head.target.clone(),
                client: client.ip(),
                begun: Instant::now(),
            })
        })
    }

    /// The request was refused with `code` and answered with `status`.
    pub(crate) fn deliver(&self, id: &str, status: u16, (code, detail): (&str, &str)) {
        let request = Request {
            id,
            request: RequestId(self.site.core.ids.random()),
            route: None,
            client: self.client,
            method: self.method.as_str(),
            path: self.target.path(),
            received: 0,
            at: self.site.core.clock.at(self.begun),
            trace: None,
        };
        let took = self.begun.elapsed();
        let answer = AnswerSummary { status, began: self.begun, took, sent: 0 };
        let refused = Execution::refused(request, answer, code, detail);
        self.site.runtime.sinks().deliver(refused, None);
    }
}
