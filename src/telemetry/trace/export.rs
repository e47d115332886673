//! Exports spans: decides what is traced, and hands it to the thread that posts it.
//!
//! That is a thread of its own, so a slow or absent collector costs neither requests nor more memory than the queue.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use prometheus::IntCounter;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::collector::OtlpCollector;
use super::context::{Context, Parent, SpanId};
use super::spans::{self, EncodedSpans};
use super::task::ExportTask;
use crate::telemetry::limiter::LogLimiter;
use crate::telemetry::record::{Execution, RequestRef};
use crate::telemetry::settings::Tracing;

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
    queue: mpsc::Sender<EncodedSpans>,
    flushes: mpsc::Sender<SyncSender<()>>,
    dropped: IntCounter,
    /// Limits how often the log says that the queue is full.
    full: LogLimiter,
}

/// The other ends of a tracer's ways to its thread.
#[derive(Debug)]
pub(super) struct Ways {
    pub(super) items: mpsc::Receiver<EncodedSpans>,
    /// Whoever is answered once everything handed over before was posted, or is lost.
    pub(super) flushes: mpsc::Receiver<SyncSender<()>>,
}

/// What became of spans: `mwl_trace_spans_total{outcome}`.
#[derive(Clone, Debug)]
pub(in crate::telemetry) struct Counters {
    pub(in crate::telemetry) exported: IntCounter,
    pub(in crate::telemetry) dropped: IntCounter,
    pub(in crate::telemetry) failed: IntCounter,
}

impl Tracer {
    /// Starts to export as `settings` say.
    pub(in crate::telemetry) fn start(
        settings: Tracing,
        counters: Counters,
    ) -> Result<Arc<Self>, TracerError> {
        let endpoint = Arc::clone(&settings.endpoint);
        let refuse = |why: String| TracerError { endpoint: Arc::clone(&endpoint), why };
        let driver = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| refuse(error.to_string()))?;
        let collector = {
            let _inside = driver.enter();
            OtlpCollector::new(&settings).map_err(refuse)?
        };
        let (tracer, Ways { items, flushes }) = Self::new(settings, counters.dropped.clone());
        let task = ExportTask::new(collector, counters, Arc::clone(&endpoint));
        std::thread::Builder::new()
            .name("traces".into())
            .spawn(move || driver.block_on(task.run(items, flushes)))
            .map_err(|error| refuse(error.to_string()))?;
        Ok(Arc::new(tracer))
    }

    /// A tracer, and what its thread receives.
    fn new(settings: Tracing, dropped: IntCounter) -> (Self, Ways) {
        let (queue, items) = mpsc::channel(settings.queue.max(1));
        let (flushes, asked) = mpsc::channel(1);
        let threshold = threshold(settings.sample);
        let full = LogLimiter::new("Spans were dropped.", None);
        let tracer = Self { settings, threshold, queue, flushes, dropped, full };
        (tracer, Ways { items, flushes: asked })
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

    /// Hands the spans of a traced request over without waiting. If the queue is full, they are dropped and counted.
    pub(in crate::telemetry) fn deliver(&self, execution: &Execution<RequestRef<'_>>) {
        if let Ok(place) = self.queue.try_reserve() {
            if let Some(spans) = EncodedSpans::of(execution) {
                place.send(spans);
            }
            return;
        }
        self.dropped.inc_by(spans::count(execution) as u64);
        if let Some(untold) = self.full.admits(Instant::now()) {
            let Tracing { endpoint, queue, .. } = &self.settings;
            tracing::warn!(
                endpoint = &**endpoint,
                queue,
                dropped = self.dropped.get(),
                untold,
                "Spans were dropped: as many requests wait for the collector as `tracing.queue` allows."
            );
        }
    }

    /// Waits, at most `patience`, until everything handed over is posted, or is lost because the collector is away. For
    /// the end of the process.
    pub fn flush(&self, patience: Duration) {
        let (done, flushed) = sync_channel(1);
        let asked = self.flushes.try_send(done).is_ok();
        if !asked || flushed.recv_timeout(patience).is_err() {
            let requests = self.queue.max_capacity().saturating_sub(self.queue.capacity());
            tracing::warn!(requests, "The last spans could not be exported in time.");
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::telemetry::trace) fn counters() -> Counters {
        let counter = |name: &str| IntCounter::new(name, "x").unwrap();
        Counters { exported: counter("a"), dropped: counter("b"), failed: counter("c") }
    }

    fn settings(sample: f64, queue: usize) -> Tracing {
        Tracing {
            // Nothing listens on the discard port.
            endpoint: "http://127.0.0.1:9/v1/traces".into(),
            headers: Vec::new(),
            timeout: Duration::from_millis(10),
            service: "t".into(),
            sample,
            queue,
        }
    }

    /// A tracer without a thread.
    pub(in crate::telemetry::trace) fn tracer_of(
        sample: f64,
        queue: usize,
        counters: &Counters,
    ) -> (Arc<Tracer>, Ways) {
        let (tracer, ways) = Tracer::new(settings(sample, queue), counters.dropped.clone());
        (Arc::new(tracer), ways)
    }

    fn tracer(sample: f64, queue: usize, counters: &Counters) -> Arc<Tracer> {
        Tracer::start(settings(sample, queue), counters.clone()).unwrap()
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
        let execution = execution(request, true, answer(200, Instant::now(), 1), 0);
        for _ in 0..1000 {
            tracer.deliver(&execution);
        }
        assert!(counters.dropped.get() > 0, "a queue of one is full at once");
        tracer.flush(Duration::from_mins(1));
        assert!(counters.failed.get() > 0, "nothing waits for the collector at the end");
        assert_eq!(counters.exported.get(), 0);
        assert_eq!(counters.failed.get() + counters.dropped.get(), 1000);
    }
}
