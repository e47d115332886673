//! Sends spans to a collector, by OTLP over HTTP.
//!
//! A thread collects and posts them, so a slow or absent collector costs spans, but neither requests nor
//! memory. Spans are dropped when the queue is full, and lost when a post fails despite the exporter's own
//! retries. Both are counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use prometheus::IntCounter;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::context::{Context, Parent, SpanId};
use super::spans;
use crate::telemetry::record::Execution;
use crate::telemetry::settings::Tracing;

/// Roughly how many spans one post contains: the spans of a request stay together.
const BATCH: usize = 512;

/// How long a span may wait for others.
const GATHER: Duration = Duration::from_secs(1);

/// How often a flush tries to enter a full queue.
const RETRY: Duration = Duration::from_millis(5);

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("spans cannot be exported to {endpoint}: {why}")]
pub struct TracerError {
    endpoint: Arc<str>,
    why: String,
}

/// Decides what is traced, and exports it. When dropped, it still exports what it holds.
#[derive(Debug)]
pub struct Tracer {
    settings: Tracing,
    /// The highest number that is sampled, of all 64-bit numbers; `None` if none is.
    threshold: Option<u64>,
    queue: mpsc::Sender<Item>,
    dropped: IntCounter,
}

/// What became of spans: `mwl_trace_spans_total{outcome}`.
#[derive(Clone, Debug)]
pub(in crate::telemetry) struct Counters {
    pub(in crate::telemetry) exported: IntCounter,
    pub(in crate::telemetry) dropped: IntCounter,
    pub(in crate::telemetry) failed: IntCounter,
}

#[derive(Debug)]
enum Item {
    Execution(Arc<Execution>),
    /// Answered once everything before it was posted.
    Flush(SyncSender<()>),
}

impl Tracer {
    /// Starts to export as `settings` say.
    pub(in crate::telemetry) fn start(
        settings: Tracing,
        counters: Counters,
    ) -> Result<Arc<Self>, TracerError> {
        let refuse = |why: String| TracerError { endpoint: Arc::clone(&settings.endpoint), why };
        let driver = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| refuse(error.to_string()))?;
        let exporter = {
            let _inside = driver.enter();
            exporter(&settings).map_err(refuse)?
        };
        let (queue, items) = mpsc::channel(settings.queue.max(1));
        let dropped = counters.dropped.clone();
        let export = ExportTask {
            exporter,
            counters,
            scope: InstrumentationScope::builder("mwl-proxy")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
            endpoint: Arc::clone(&settings.endpoint),
            failing: false,
        };
        std::thread::Builder::new()
            .name("traces".into())
            .spawn(move || driver.block_on(export.run(items)))
            .map_err(|error| refuse(error.to_string()))?;
        let threshold = threshold(settings.sample);
        Ok(Arc::new(Self { settings, threshold, queue, dropped }))
    }

    /// The settings that it was started with.
    pub fn settings(&self) -> &Tracing {
        &self.settings
    }

    /// The place in a trace of a request from `parent`, which decides whether it is sampled. Without a parent,
    /// the configured share of `random` is. `random` is a trace id followed by a span id.
    pub fn context(&self, parent: Option<Parent>, random: [u8; 24]) -> Context {
        let trace = random.first_chunk::<16>().copied().unwrap_or_default();
        let span = random.last_chunk::<8>().copied().unwrap_or_default();
        // All zeros are not a valid id.
        let span = SpanId(u64::from_be_bytes(span).max(1).to_be_bytes());
        if let Some(parent) = parent {
            return Context::beneath(parent, span);
        }
        let trace = u128::from_be_bytes(trace).max(1);
        let spread = u64::try_from(trace & u128::from(u64::MAX)).unwrap_or(u64::MAX);
        let sampled = self.threshold.is_some_and(|highest| spread <= highest);
        Context::root(trace.to_be_bytes(), span, sampled)
    }

    /// Hands a request over without waiting.
    pub(in crate::telemetry) fn deliver(&self, execution: &Arc<Execution>) {
        if self.queue.try_send(Item::Execution(Arc::clone(execution))).is_err() {
            self.dropped.inc_by(spans::count(execution) as u64);
        }
    }

    /// Waits, at most `patience`, until everything handed over is posted. For the end of the process.
    #[expect(clippy::disallowed_methods, reason = "no worker runs any more: nothing is blocked")]
    pub fn flush(&self, patience: Duration) {
        let (done, posted) = sync_channel(1);
        let mut left = patience;
        let mut item = Item::Flush(done);
        while let Err(mpsc::error::TrySendError::Full(full)) = self.queue.try_send(item) {
            if left.is_zero() {
                return;
            }
            item = full;
            std::thread::sleep(RETRY);
            left = left.saturating_sub(RETRY);
        }
        if posted.recv_timeout(left).is_err() {
            tracing::warn!("The last spans could not be exported in time.");
        }
    }
}

/// The highest 64-bit number that this share includes.
fn threshold(share: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share from 0 to 1 of all numbers; a conversion saturates"
    )]
    (share > 0.0).then_some((share * u64::MAX as f64) as u64)
}

fn exporter(settings: &Tracing) -> Result<SpanExporter, String> {
    let headers = settings.headers.iter();
    let headers: HashMap<String, String> =
        headers.map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(&*settings.endpoint)
        .with_timeout(settings.timeout)
        .with_headers(headers)
        .build()
        .map_err(|error| error.to_string())?;
    let service = settings.service.to_string();
    exporter.set_resource(&Resource::builder().with_service_name(service).build());
    Ok(exporter)
}

/// The exporting thread.
struct ExportTask {
    exporter: SpanExporter,
    counters: Counters,
    scope: InstrumentationScope,
    endpoint: Arc<str>,
    /// Whether the last post failed. Only the first failure is logged.
    failing: bool,
}

impl ExportTask {
    /// Runs until nobody can hand anything over.
    async fn run(mut self, mut items: mpsc::Receiver<Item>) {
        while let Some(first) = items.recv().await {
            let mut batch = Vec::new();
            let mut flushes = Vec::new();
            self.take(first, &mut batch, &mut flushes);
            let until = Instant::now() + GATHER;
            while batch.len() < BATCH && flushes.is_empty() {
                let next = tokio::select! {
                    next = items.recv() => next,
                    () = sleep_until(until) => None,
                };
                let Some(next) = next else { break };
                self.take(next, &mut batch, &mut flushes);
            }
            self.post(batch).await;
            for done in flushes {
                // The waiting thread may have given up.
                done.try_send(()).ok();
            }
        }
    }

    fn take(&self, item: Item, batch: &mut Vec<SpanData>, flushes: &mut Vec<SyncSender<()>>) {
        match item {
            Item::Execution(execution) => batch.extend(spans::spans(&execution, &self.scope)),
            Item::Flush(done) => flushes.push(done),
        }
    }

    async fn post(&mut self, batch: Vec<SpanData>) {
        if batch.is_empty() {
            return;
        }
        let spans = batch.len();
        let endpoint = &*self.endpoint;
        match self.exporter.export(batch).await {
            Ok(()) => {
                self.counters.exported.inc_by(spans as u64);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(endpoint, "Spans are exported again.");
                }
            }
            Err(error) => {
                self.counters.failed.inc_by(spans as u64);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(endpoint, %error, spans, "Spans could not be exported.");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Counters {
        let counter = |name: &str| IntCounter::new(name, "x").unwrap();
        Counters { exported: counter("a"), dropped: counter("b"), failed: counter("c") }
    }

    fn tracer(sample: f64, queue: usize, counters: &Counters) -> Arc<Tracer> {
        let settings = Tracing {
            // Nothing listens on the discard port.
            endpoint: "http://127.0.0.1:9/v1/traces".into(),
            headers: Vec::new(),
            timeout: Duration::from_millis(10),
            service: "t".into(),
            sample,
            queue,
        };
        Tracer::start(settings, counters.clone()).unwrap()
    }

    #[test]
    fn the_share_is_of_trace_ids_and_a_caller_decides_for_itself() {
        let at = |sample: f64, low: u64| {
            let mut random = [1; 24];
            random[8..16].copy_from_slice(&low.to_be_bytes());
            tracer(sample, 1, &counters()).context(None, random).sampled()
        };
        assert!(at(1.0, u64::MAX) && at(1.0, 0));
        assert!(!at(0.0, 0) && !at(0.0, u64::MAX));
        assert!(at(0.25, u64::MAX / 5) && !at(0.25, u64::MAX / 3));
        for (flags, sampled) in [("00", false), ("01", true)] {
            let value = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
            let parent = Parent::parse(value.as_bytes());
            let tracer = tracer(if sampled { 0.0 } else { 1.0 }, 1, &counters());
            let context = tracer.context(parent, [0; 24]);
            assert_eq!(context.sampled(), sampled);
            assert_ne!(context.span().0, [0; 8], "no id is all zero");
        }
    }

    #[test]
    fn what_finds_no_room_or_no_collector_is_counted() {
        use crate::telemetry::record::tests::{answer, execution, traced};
        let counters = counters();
        let tracer = tracer(1.0, 1, &counters);
        let request = traced(tracer.context(None, [7; 24]));
        let execution = Arc::new(execution(request, true, answer(200, Instant::now(), 1), 0));
        for _ in 0..1000 {
            tracer.deliver(&execution);
        }
        assert!(counters.dropped.get() > 0, "a queue of one is full at once");
        tracer.flush(Duration::from_mins(1));
        assert_eq!(counters.exported.get(), 0);
        assert_eq!(counters.failed.get() + counters.dropped.get(), 1000);
    }
}
