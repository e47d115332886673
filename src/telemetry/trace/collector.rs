//! The collector, by OTLP over HTTP (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>).

use std::error::Error;
use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::protobuf;
use crate::telemetry::settings::Tracing;

/// Whoever takes spans.
pub(super) trait Collector {
    /// Hands `spans` over, once: fields of `ScopeSpans`.
    fn post(&self, spans: &[u8]) -> impl Future<Output = Result<(), NotTaken>>;
}

/// Why spans were not taken.
#[derive(Debug)]
pub(super) struct NotTaken {
    /// For people.
    pub(super) why: String,
    /// How long to wait at least before they are handed over again. `None`: they would be refused again.
    pub(super) again: Option<Duration>,
}

/// The collector of a configuration.
#[derive(Debug)]
pub(super) struct OtlpCollector {
    client: Client<HttpConnector, Full<Bytes>>,
    endpoint: Uri,
    fields: HeaderMap,
    timeout: Duration,
    /// The field of `ResourceSpans` that says who posts.
    resource: Vec<u8>,
    /// The field of `ScopeSpans` that says what has made the spans.
    scope: Vec<u8>,
}

/// The most bytes of an answer that are read, so that its connection can be used again.
const ANSWER: usize = 64 * 1024;

impl OtlpCollector {
    pub(super) fn new(settings: &Tracing) -> Result<Self, String> {
        let Tracing { endpoint, headers, timeout, service, .. } = settings;
        let mut fields = HeaderMap::new();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let agent = concat!("mwl-proxy/", env!("CARGO_PKG_VERSION"));
        fields.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        for (name, value) in headers {
            let wrong = |error: &dyn Error| format!("its field {name}: {error}");
            let name = HeaderName::try_from(&**name).map_err(|error| wrong(&error))?;
            fields.insert(name, HeaderValue::try_from(&**value).map_err(|error| wrong(&error))?);
        }
        let variable = std::env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
            endpoint: endpoint.parse().map_err(|error| format!("no URL: {error}"))?,
            fields,
            timeout: *timeout,
            resource: resource(&variable, service),
            scope: scope(),
        })
    }

    /// The body of a post: one `ResourceSpans` with one `ScopeSpans`.
    fn body(&self, spans: &[u8]) -> Vec<u8> {
        let Self { resource, scope, .. } = self;
        let made = scope.len() + spans.len();
        let mut begin = resource.clone();
        protobuf::message_of(&mut begin, 2, made);
        let mut body = Vec::with_capacity(begin.len() + made + 16);
        protobuf::message_of(&mut body, 1, begin.len() + made);
        body.extend(begin);
        body.extend_from_slice(scope);
        body.extend_from_slice(spans);
        body
    }

    /// Posts, and reads the answer.
    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(), NotTaken> {
        let answered = self.client.request(request).await;
        let answer = answered.map_err(|error| NotTaken::without_answer(&error))?;
        let status = answer.status();
        let wait = answer.headers().get(header::RETRY_AFTER);
        let wait = wait.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        discard(answer).await;
        if status.is_success() {
            return Ok(());
        }
        let again = again(status, wait.map(Duration::from_secs));
        Err(NotTaken { why: format!("the collector answered {status}"), again })
    }
}

impl Collector for OtlpCollector {
    async fn post(&self, spans: &[u8]) -> Result<(), NotTaken> {
        let mut request = Request::new(Full::from(self.body(spans)));
        *request.method_mut() = Method::POST;
        request.uri_mut().clone_from(&self.endpoint);
        request.headers_mut().clone_from(&self.fields);
        #[expect(clippy::disallowed_methods, reason = "a post is a leaf: it may be dropped")]
        let posted = tokio::time::timeout(self.timeout, self.exchange(request)).await;
        posted.unwrap_or_else(|_| {
            let why = format!("the collector did not answer within {:?}", self.timeout);
            Err(NotTaken { why, again: Some(Duration::ZERO) })
        })
    }
}

impl NotTaken {
    fn without_answer(error: &dyn Error) -> Self {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            // Writing to a string cannot fail.
            write!(why, ": {error}").ok();
            cause = error.source();
        }
        Self { why, again: Some(Duration::ZERO) }
    }
}

/// Reads what follows an answer's head, within a bound. If it is not read to its end, its connection closes.
async fn discard(answer: Response<Incoming>) {
    let mut body = answer.into_body();
    let mut left = ANSWER;
    while let Some(Ok(frame)) = body.frame().await {
        let read = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(read) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// How long to wait until spans that were refused with `status` may be taken. Which statuses allow that is up to OTLP
/// ("Retryable Response Codes").
fn again(status: StatusCode, wait: Option<Duration>) -> Option<Duration> {
    matches!(status.as_u16(), 429 | 502..=504).then(|| wait.unwrap_or_default())
}

/// Who posts, as a field of `ResourceSpans`: what `variable` (`OTEL_RESOURCE_ATTRIBUTES`) says, and this service.
fn resource(variable: &str, service: &str) -> Vec<u8> {
    const ATTRIBUTE: u32 = 1;
    let own = [
        ("service.name", service),
        ("telemetry.sdk.name", "mwl-proxy"),
        ("telemetry.sdk.language", "rust"),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ];
    let pairs = variable.split(',').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(key, value)| (key.trim(), value.trim()));
    let others = pairs.filter(|(key, _)| own.iter().all(|(known, _)| known != key));
    let mut out = Vec::new();
    protobuf::message(&mut out, 1, |out| {
        for (key, value) in others.chain(own) {
            protobuf::attribute(out, ATTRIBUTE, key, value);
        }
    });
    out
}

/// What has made the spans, as a field of `ScopeSpans`.
fn scope() -> Vec<u8> {
    let mut out = Vec::new();
    protobuf::message(&mut out, 1, |out| {
        protobuf::bytes(out, 1, b"mwl-proxy");
        protobuf::bytes(out, 2, env!("CARGO_PKG_VERSION").as_bytes());
    });
    out
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use prost::Message as _;

    use super::*;

    #[test]
    fn only_some_refusals_may_pass() {
        for (status, wait, wanted) in [
            (429, Some(7), Some(7)),
            (503, None, Some(0)),
            (504, None, Some(0)),
            (400, None, None),
            (401, Some(7), None),
            (500, None, None),
        ] {
            let [wait, wanted] = [wait, wanted].map(|seconds| seconds.map(Duration::from_secs));
            assert_eq!(again(StatusCode::from_u16(status).unwrap(), wait), wanted, "{status}");
        }
    }

    #[test]
    fn a_post_says_who_makes_it() {
        let settings = Tracing {
            endpoint: "http://127.0.0.1:9/v1/traces".into(),
            headers: vec![("x-key".into(), "k".into())],
            timeout: Duration::from_secs(1),
            service: "shop".into(),
            sample: 1.0,
            queue: 1,
        };
        let mut collector = OtlpCollector::new(&settings).unwrap();
        collector.resource =
            resource(" a = b ,service.name=x,bad,deployment.environment=test", "shop");
        let mut span = Vec::new();
        protobuf::message(&mut span, 2, |out| protobuf::bytes(out, 5, "é".repeat(200).as_bytes()));
        let body = collector.body(&span.repeat(100));
        let post = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        let [all] = post.resource_spans.as_slice() else { panic!("{post:?}") };
        let said = all.resource.as_ref().unwrap().attributes.iter().map(|pair| {
            let Value::StringValue(value) = pair.value.clone().unwrap().value.unwrap() else {
                panic!("{pair:?}")
            };
            format!("{}={value}", pair.key)
        });
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            said.collect::<Vec<_>>(),
            [
                "a=b",
                "deployment.environment=test",
                "service.name=shop",
                "telemetry.sdk.name=mwl-proxy",
                "telemetry.sdk.language=rust",
                &format!("telemetry.sdk.version={version}"),
            ]
        );
        let [made] = all.scope_spans.as_slice() else { panic!("{all:?}") };
        let scope = made.scope.as_ref().unwrap();
        assert_eq!((scope.name.as_str(), scope.version.as_str()), ("mwl-proxy", version));
        assert_eq!(made.spans.len(), 100);
        assert!(made.spans.iter().all(|span| span.name == "é".repeat(200)));
    }

    #[test]
    fn a_field_that_cannot_be_sent_is_told() {
        let settings = Tracing {
            endpoint: "http://127.0.0.1:9/v1/traces".into(),
            headers: vec![("x key".into(), "k".into())],
            timeout: Duration::from_secs(1),
            service: "shop".into(),
            sample: 1.0,
            queue: 1,
        };
        let refused = OtlpCollector::new(&settings).unwrap_err();
        assert_eq!(refused, "its field x key: invalid HTTP header name");
    }
}
