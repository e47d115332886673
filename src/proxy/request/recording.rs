//! A request's record and its place in a trace: when they begin, and who gets the record at the end.
//!
//! Most requests are plain: one attempt, which succeeds. Few of them are recorded (as many a second as
//! [`Pace`](crate::telemetry::pace::Pace) lets through), and the others pay a branch here and there. What
//! somebody will look for is always recorded, from its first attempt: a record begins with the first
//! failure at the latest, and where successes may come before it (an execution of several calls) with
//! the request; it is given up at the end where nothing came of it.

use std::borrow::Cow;

use http::Version;
use http::header::{self, HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::exchange::Exchange;
use super::trace::Place;
use super::upload::Upload;
use crate::language::outcome::Outcome;
use crate::proxy::site::Site;
use crate::telemetry::record::{Answer, Execution, Recorder, Request, Traced};
use crate::telemetry::trace::{SpanId, TRACEPARENT};

/// The span of an attempt, where its request is traced.
pub(crate) fn span(exchange: &Exchange) -> Option<SpanId> {
    let context = &exchange.trace.as_deref()?.context;
    // What is not sampled has no spans: its caller, to the upstream, is the request.
    let own = || SpanId(exchange.site.core.ids.random());
    Some(if context.sampled() { own() } else { context.span() })
}

/// Tells the upstream of the trace.
pub(crate) fn inject(exchange: &Exchange, span: Option<SpanId>, fields: &mut Cow<'_, HeaderMap>) {
    if let (Some(place), Some(span)) = (exchange.trace.as_deref(), span)
        && let Ok(value) = HeaderValue::try_from(place.context.header(span))
    {
        fields.to_mut().insert(TRACEPARENT, value);
    }
}

impl Exchange {
    /// The request begins to be served: decides whether all of it is recorded.
    pub(crate) fn record_from(&self, begun: Instant) {
        let sinks = self.site.runtime.sinks();
        if !sinks.listen() {
            return;
        }
        let traced = self.traced().is_some();
        let kept = sinks.keeps() && self.site.core.pace.admits(begun);
        if traced || kept || (sinks.logs() && sinks.wants(self.id())) {
            self.recording();
        } else if self.route.facts.several_calls {
            self.recorder.get_or_init(|| Box::new(Recorder::provisional()));
        }
    }

    /// Its place in a trace, where spans are made of it.
    pub(crate) fn traced(&self) -> Option<&Place> {
        self.trace.as_deref().filter(|place| place.context.sampled())
    }

    /// The request's record, where it has one; with `eventful`, what must not be missed has happened: the
    /// record begins now, unless nobody wants any, and is delivered.
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

    /// The execution came to its Result.
    pub(crate) fn ended(&self, outcome: &Outcome) {
        if let Some(recorder) = self.recorder(!outcome.is_success()) {
            recorder.result(outcome);
        }
    }

    /// All of the request is over: whoever wants its record gets it.
    pub(crate) fn deliver(&self) {
        let Some(recorder) = self.recorder.get() else {
            return;
        };
        if let Some(execution) = recorder.finish(|answer| self.described(answer)) {
            self.site.runtime.sinks().deliver(execution);
        }
    }

    fn described(&self, answer: &Answer) -> Request {
        let host = self.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        Request {
            id: self.id().into(),
            route: Some(self.route.name.clone()),
            client: self.client().to_string().into(),
            method: self.method.as_str().into(),
            path: self.path().into(),
            received: match &self.upload {
                Upload::None => 0,
                Upload::Stream(source) => source.read(),
                Upload::Buffered { bytes, .. } => bytes.len() as u64,
            },
            at: self.site.core.clock.at(answer.began),
            trace: self.traced().map(|place| {
                Box::new(Traced {
                    context: place.context,
                    host: host.unwrap_or_default().into(),
                    scheme: self.scheme,
                    version: match place.version {
                        Version::HTTP_10 => "1.0",
                        Version::HTTP_2 => "2",
                        _ => "1.1",
                    },
                })
            }),
        }
    }
}

/// What the access log is told of a request that is refused: read before the request is taken apart.
#[derive(Debug)]
pub(crate) struct Refused {
    site: std::sync::Arc<Site>,
    method: http::Method,
    uri: http::Uri,
    client: std::net::IpAddr,
    begun: Instant,
}

impl Refused {
    /// `None` where nobody would be told.
    pub(crate) fn of<B>(
        site: &std::sync::Arc<Site>,
        request: &http::Request<B>,
        client: std::net::SocketAddr,
    ) -> Option<Box<Self>> {
        site.runtime.sinks().logs().then(|| {
            Box::new(Self {
                site: site.clone(),
                method: request.method().clone(),
                uri: request.uri().clone(),
                client: client.ip(),
                begun: Instant::now(),
            })
        })
    }

    /// The request was refused with `code` and answered with `status`.
    pub(crate) fn deliver(&self, id: &str, status: u16, (code, detail): (&str, &str)) {
        let request = Request {
            id: id.into(),
            route: None,
            client: self.client.to_string().into(),
            method: self.method.as_str().into(),
            path: self.uri.path().into(),
            received: 0,
            at: self.site.core.clock.at(self.begun),
            trace: None,
        };
        let took = self.begun.elapsed();
        let answer = Answer { status, began: self.begun, took, sent: 0 };
        self.site.runtime.sinks().deliver(Execution::refused(request, answer, code, detail));
    }
}
