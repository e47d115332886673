//! The collector, by OTLP over HTTP.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{StatusCode, header};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};

use crate::telemetry::settings::Tracing;

/// Whoever takes spans.
pub(super) trait Collector {
    /// Hands `spans` over, once.
    fn post(&self, spans: Vec<SpanData>) -> impl Future<Output = Result<(), NotTaken>>;
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
    exporter: SpanExporter,
    last: Arc<LastAnswer>,
}

/// How the collector answered last. The exporter says it in words only.
#[derive(Debug, Default)]
struct LastAnswer(Mutex<Option<(StatusCode, Option<Duration>)>>);

/// The exporter's client.
#[derive(Debug)]
struct Client {
    inner: HyperClient,
    last: Arc<LastAnswer>,
}

impl OtlpCollector {
    /// Must be called within a runtime.
    pub(super) fn new(settings: &Tracing) -> Result<Self, String> {
        let last = Arc::<LastAnswer>::default();
        let client = Client {
            inner: HyperClient::with_default_connector(settings.timeout, None),
            last: Arc::clone(&last),
        };
        let headers = settings.headers.iter();
        let headers: HashMap<String, String> =
            headers.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            // Whoever posts decides how often.
            .with_retry_policy(RetryPolicy::disabled())
            .with_endpoint(&*settings.endpoint)
            .with_timeout(settings.timeout)
            .with_headers(headers)
            .build()
            .map_err(|error| error.to_string())?;
        let service = settings.service.to_string();
        exporter.set_resource(&Resource::builder().with_service_name(service).build());
        Ok(Self { exporter, last })
    }
}

impl Collector for OtlpCollector {
    async fn post(&self, spans: Vec<SpanData>) -> Result<(), NotTaken> {
        self.last.set(None);
        let exported = self.exporter.export(spans).await;
        exported.map_err(|error| NotTaken { why: error.to_string(), again: self.last.again() })
    }
}

impl LastAnswer {
    fn set(&self, answer: Option<(StatusCode, Option<Duration>)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// How long to wait until the same spans may be taken. Which statuses allow that is up to OTLP ("Retryable Response
    /// Codes").
    fn again(&self) -> Option<Duration> {
        let answer = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((status, wait)) = answer else {
            return Some(Duration::ZERO);
        };
        matches!(status.as_u16(), 429 | 502..=504).then(|| wait.unwrap_or_default())
    }
}

impl HttpClient for Client {
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'a: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let response = self.inner.send_bytes(request).await?;
            let wait = response.headers().get(header::RETRY_AFTER);
            let seconds = wait.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            self.last.set(Some((response.status(), seconds.map(Duration::from_secs))));
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_refusals_may_pass() {
        let last = LastAnswer::default();
        assert_eq!(last.again(), Some(Duration::ZERO), "there was no answer");
        for (status, wait, again) in [
            (429, Some(7), Some(7)),
            (503, None, Some(0)),
            (504, None, Some(0)),
            (400, None, None),
            (401, Some(7), None),
            (500, None, None),
        ] {
            let wait = wait.map(Duration::from_secs);
            last.set(Some((StatusCode::from_u16(status).unwrap(), wait)));
            assert_eq!(last.again(), again.map(Duration::from_secs), "{status}");
        }
    }
}
