//! Delivers the record of an ended request to the access log, `/executions` and the exporter of spans.
//!
//! Which of these a configuration uses is decided when it is loaded. A request whose record nobody wants finds
//! that out with one branch, and gets no [`Recorder`](super::record::Recorder).

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::batch_writer::BatchWriter;
use super::executions::Executions;
use super::limiter::LogLimiter;
use super::lines::LineStyle;
use super::metrics::Metrics;
use super::record::{Execution, Kind, KnownSecond, RequestRef};
use super::recordings::{Copied, Recordings};
use super::settings::{Access, TelemetrySettings, Tracing, When};
use super::trace::{Tracer, TracerError};
use super::write_queue::{Loss, WriteQueue};

/// How long the last records and spans may take at the end of the process.
const LAST: Duration = Duration::from_secs(3);

/// The process's readers of records. They outlive configurations.
#[derive(Debug)]
pub struct Telemetry {
    metrics: Arc<Metrics>,
    executions: Arc<Executions>,
    /// Started when a configuration first uses it.
    access: OnceLock<Arc<BatchWriter<KnownSecond>>>,
    /// A line for each request, if somebody watches.
    lines: Option<WriteQueue<Arc<Execution>>>,
    /// Whole exchanges, if somebody asked for them.
    recordings: Option<Recordings>,
    tracer: Mutex<Option<Arc<Tracer>>>,
}

/// The readers that one configuration uses.
#[derive(Clone, Debug, Default)]
pub struct Sinks {
    access: Option<AccessLog>,
    lines: Option<WriteQueue<Arc<Execution>>>,
    recordings: Option<Recordings>,
    executions: Option<Arc<Executions>>,
    tracer: Option<Arc<Tracer>>,
}

/// The access log, and which records it takes.
#[derive(Clone, Debug)]
struct AccessLog {
    settings: Access,
    lines: Arc<BatchWriter<KnownSecond>>,
}

impl Telemetry {
    /// Counts into `metrics`. Nothing is written or kept yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            executions: Arc::new(Executions::new(0)),
            access: OnceLock::new(),
            lines: None,
            recordings: None,
            tracer: Mutex::default(),
        }
    }

    /// The latest executions.
    pub fn executions(&self) -> &Arc<Executions> {
        &self.executions
    }

    /// The readers of a new configuration. An exporter with unchanged settings is kept; any other ends with the
    /// last request that uses it. `executions` is how many of each kind are kept; the caller must also pass it
    /// to [`Executions::resize`].
    ///
    /// # Errors
    /// When the exporter of spans cannot be started.
    pub fn sinks(
        &self,
        observed: &TelemetrySettings,
        executions: usize,
    ) -> Result<Sinks, TracerError> {
        let tracer = self.tracer(observed.tracing.as_ref())?;
        let access = observed.access;
        let wanted = access.when != When::None || access.sample > 0.0;
        Ok(Sinks {
            access: wanted.then(|| self.access(access)).flatten(),
            // Both go to standard output, and one reader is there.
            lines: self.lines.clone().filter(|_| !wanted),
            recordings: self.recordings.clone(),
            executions: (executions > 0).then(|| Arc::clone(&self.executions)),
            tracer,
        })
    }

    fn tracer(&self, wanted: Option<&Tracing>) -> Result<Option<Arc<Tracer>>, TracerError> {
        let mut running = self.tracer.lock().unwrap_or_else(PoisonError::into_inner);
        let same = running.as_ref().filter(|tracer| Some(tracer.settings()) == wanted);
        if same.is_none() {
            let start = |settings: &Tracing| Tracer::start(settings.clone(), self.metrics.spans());
            *running = wanted.map(start).transpose()?;
        }
        Ok(running.clone())
    }

    fn access(&self, settings: Access) -> Option<AccessLog> {
        if self.access.get().is_none() {
            let dropped = self.metrics.lost_records("access");
            let told = LogLimiter::new("Records of the access log were dropped.", None);
            match BatchWriter::start("access-log", (dropped, told), io::stdout()) {
                // This cannot fail: only one configuration is loaded at a time.
                Ok(lines) => drop(self.access.set(Arc::new(lines))),
                Err(error) => tracing::error!(%error, "There is no access log."),
            }
        }
        Some(AccessLog { settings, lines: self.access.get()?.clone() })
    }

    /// Writes a line for each request to standard output, unless the access log goes there.
    ///
    /// # Errors
    /// When the system provides no thread.
    pub fn with_lines(self, style: LineStyle) -> io::Result<Self> {
        let loss = Loss::counted(self.metrics.lost_records("lines"));
        let lines = WriteQueue::start("lines", loss, io::stdout(), style.format())?;
        Ok(Self { lines: Some(lines), ..self })
    }

    /// Keeps whole exchanges in `recordings`.
    #[must_use]
    pub fn with_recordings(self, recordings: Recordings) -> Self {
        Self { recordings: Some(recordings), ..self }
    }

    /// The kept exchanges, if any are kept.
    pub fn recordings(&self) -> Option<&Recordings> {
        self.recordings.as_ref()
    }

    /// Waits a short time until the last records are written and the last spans exported.
    pub fn flush(&self) {
        if let Some(lines) = self.access.get() {
            lines.flush(LAST);
        }
        if let Some(lines) = &self.lines {
            lines.flush(LAST);
        }
        if let Some(recordings) = &self.recordings {
            recordings.flush(LAST);
        }
        let tracer = self.tracer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(tracer) = tracer {
            tracer.flush(LAST);
        }
    }
}

impl Sinks {
    /// Whether anybody may want a record. If not, nothing is ever recorded.
    pub fn listen(&self) -> bool {
        self.logs()
            || self.executions.is_some()
            || self.tracer.is_some()
            || self.recordings.is_some()
    }

    /// Whether whole exchanges are kept.
    pub const fn records_exchanges(&self) -> bool {
        self.recordings.is_some()
    }

    /// Whether the execution `id` is recorded in any case: because the access log contains all of them or
    /// samples this one, or because each has a line.
    pub fn wants(&self, id: &str) -> bool {
        self.lines.is_some()
            || self
                .access
                .as_ref()
                .is_some_and(|log| log.settings.when == When::All || log.samples(id))
    }

    /// Whether the latest executions are kept.
    pub fn keeps(&self) -> bool {
        self.executions.is_some()
    }

    /// The tracer, which decides which requests are traced.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_deref()
    }

    /// Whether a request that matches no route may be told.
    pub fn logs(&self) -> bool {
        self.access.is_some() || self.lines.is_some()
    }

    /// Delivers a record to every reader that wants it, and what was copied of its exchange. The access log gets its line at
    /// once, and the tracer its spans; only the others keep it.
    pub fn deliver(&self, execution: Execution<RequestRef<'_>>, copied: Option<Copied>) {
        if let Some(log) = &self.access
            && log.takes(&execution)
        {
            log.lines.append(|second, out| execution.line(second, out));
        }
        if let Some(tracer) = &self.tracer
            && execution.request.trace.is_some()
        {
            tracer.deliver(&execution);
        }
        let executions = self.executions.as_ref().filter(|_| execution.request.route.is_some());
        let recorded = self.recordings.as_ref().zip(copied);
        if self.lines.is_none() && executions.is_none() && recorded.is_none() {
            return;
        }
        let execution = Arc::new(execution.into_owned());
        if let Some((recordings, copied)) = recorded {
            recordings.keep(copied, Arc::clone(&execution));
        }
        if let Some(lines) = &self.lines {
            lines.send(Arc::clone(&execution));
        }
        if let Some(executions) = executions {
            executions.push(execution);
        }
    }
}

impl AccessLog {
    fn takes(&self, execution: &Execution<RequestRef<'_>>) -> bool {
        let always = match self.settings.when {
            When::None => false,
            When::Failures => execution.kind() != Kind::Success,
            When::Retried => execution.kind() != Kind::Success || execution.retried(),
            When::All => true,
        };
        always || self.samples(execution.request.id)
    }

    /// By the id, so that all proxies on a request's way sample the same ones.
    fn samples(&self, id: &str) -> bool {
        let share = self.settings.sample;
        // The default hasher has fixed keys, so the same id gives the same result in every process.
        share > 0.0 && fraction(BuildHasherDefault::<DefaultHasher>::default().hash_one(id)) < share
    }
}

/// A number from 0 to 1, evenly spread where `hash` is.
fn fraction(hash: u64) -> f64 {
    // A double holds 53 bits.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let share = (hash >> 11) as f64 / (1_u64 << 53) as f64;
    share
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::record::tests::{self, answer, request_ref};
    use tokio::time::Instant;

    fn log(when: When, sample: f64) -> AccessLog {
        let lost = (Metrics::new().lost_records("access"), LogLimiter::new("Lost.", None));
        let lines = BatchWriter::start("t", lost, io::sink()).unwrap();
        AccessLog { settings: Access { when, sample }, lines: Arc::new(lines) }
    }

    fn execution(failed: bool, attempts: u32) -> Execution<RequestRef<'static>> {
        tests::execution(request_ref("r"), failed, answer(200, Instant::now(), 1), attempts)
    }

    #[test]
    fn the_access_log_takes_what_it_is_told_to() {
        for (when, plain, retried, failed) in [
            (When::None, false, false, false),
            (When::Failures, false, false, true),
            (When::Retried, false, true, true),
            (When::All, true, true, true),
        ] {
            let log = log(when, 0.0);
            let taken =
                [(false, 1), (false, 2), (true, 1)].map(|(f, n)| log.takes(&execution(f, n)));
            assert_eq!(taken, [plain, retried, failed], "{when:?}");
        }
        assert!(log(When::None, 1.0).takes(&execution(false, 1)));
    }

    #[test]
    fn a_share_is_a_share_and_the_same_for_the_same_id() {
        let log = log(When::None, 0.1);
        let taken: Vec<bool> = (0..10_000).map(|n| log.samples(&format!("id-{n}"))).collect();
        let count = taken.iter().filter(|taken| **taken).count();
        assert!((850..1150).contains(&count), "{count} of 10000");
        let again: Vec<bool> = (0..10_000).map(|n| log.samples(&format!("id-{n}"))).collect();
        assert_eq!(taken, again);
    }

    #[test]
    fn an_exporter_is_kept_as_long_as_its_settings_are() {
        let telemetry = Telemetry::new(Metrics::new());
        let tracing = |service: &str| Tracing {
            endpoint: "http://127.0.0.1:9/v1/traces".into(),
            headers: Vec::new(),
            timeout: Duration::from_secs(1),
            service: service.into(),
            sample: 1.0,
            queue: 8,
        };
        let observed = |tracing| TelemetrySettings {
            access: Access { when: When::None, sample: 0.0 },
            tracing,
            buckets: Vec::new(),
        };
        let sinks = |tracing| telemetry.sinks(&observed(tracing), 0).unwrap();
        let first = sinks(Some(tracing("a")));
        assert!(Arc::ptr_eq(
            first.tracer.as_ref().unwrap(),
            sinks(Some(tracing("a"))).tracer.as_ref().unwrap()
        ));
        assert_eq!(&*sinks(Some(tracing("b"))).tracer().unwrap().settings().service, "b");
        let none = sinks(None);
        assert!(!none.listen() && none.tracer().is_none());
    }
}
