//! Builds what a configuration describes and connects it to the server, the metrics, the admin address,
//! the signals and the files. Only this module knows all of them.

mod address_space;
mod backend;
mod build;
mod descriptors;
mod refusal;
mod start;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::Value as Json;
use tokio::sync::Mutex;

pub(crate) use self::build::build_with;
pub use self::build::{AdminView, Built, Input, build, check, complete, given_text};
use self::refusal::Refusal;
pub use self::start::{Addresses, Explain, Sockets, StartError, Watched, run};
use crate::admin;
use crate::config::{Changes, ConfigError, FileContents, Loaded};
use crate::language::clock::Clock;
use crate::language::provider::Catalog;
use crate::proxy::settings::Shutdown;
use crate::proxy::{Runtime, Server, UpstreamRegistry};
use crate::reload::{self, Cause, ReloadHandle, Reloader};
use crate::shutdown::{Readiness, Stopped, stop};
use crate::source::Diagnostics;
use crate::system::inherited::{ADMIN, LISTENER};
use crate::takeover::{Giver, Outcome, Passed};
use crate::telemetry::history::History;
use crate::telemetry::limiter;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::sinks::{Sinks, Telemetry};

/// How many of a configuration's warnings are logged.
const WARNINGS: usize = 20;

/// The running process.
#[derive(Debug)]
pub struct App {
    input: Input,
    catalog: Catalog,
    metrics: Arc<Metrics>,
    /// What is known about upstreams over reloads.
    upstreams: UpstreamRegistry,
    telemetry: Telemetry,
    /// The last minutes of the counters.
    history: History,
    /// Answers questions about the configuration.
    explain: Explain,
    /// The histogram buckets. Fixed at start.
    buckets: Vec<f64>,
    server: Server,
    readiness: Readiness,
    shown: ArcSwap<AdminView>,
    /// The admin address. Fixed at start.
    admin: Option<SocketAddr>,
    /// The same while it runs. Another process may take it over.
    running_admin: std::sync::Mutex<Option<admin::Running>>,
    /// Whether another process has taken the addresses over.
    replaced: AtomicBool,
    workers: usize,
    handle: ReloadHandle<Applied>,
    /// Why the configuration that was loaded last is not served. `None` if it is.
    refusal: std::sync::Mutex<Option<Refusal>>,
}

/// A configuration that is served now, and what it changed.
#[derive(Debug)]
struct Served {
    hash: Arc<str>,
    routes: Changes,
    upstreams: Changes,
}

/// The outcome of a reload: the hash of what is served now, or the diagnostics as JSON.
type Applied = Result<Arc<str>, Json>;

impl App {
    /// Serves until a signal tells the process to stop, or another process has taken its sockets from `giver`.
    async fn run(
        self: Arc<Self>,
        mut signals: reload::Signals,
        reloader: Reloader<Applied>,
        giver: Option<Giver>,
    ) -> Stopped {
        let first = async {
            while signals.next().await == reload::Signal::Reload {
                // The reload logs its own outcome.
                self.handle.tell(Cause::Signal);
            }
        };
        let handed_over = tokio::select! {
            () = first => false,
            () = reloader.run(&*self) => false,
            () = limiter::tell_held() => false,
            () = self.hand_over(giver) => true,
        };
        let mut settings = self.server.runtime().shutdown().clone();
        if handed_over {
            // Whoever asks whether the process is ready now asks the new one, so nobody needs time to notice.
            settings.delay = Duration::ZERO;
        }
        self.stop(signals, &settings).await
    }

    /// Lets the requests end, and tells those who want to hear of them.
    async fn stop(&self, signals: reload::Signals, settings: &Shutdown) -> Stopped {
        let signals = Arc::new(Mutex::new(signals));
        let again = || {
            let signals = Arc::clone(&signals);
            async move {
                let mut signals = signals.lock().await;
                while signals.next().await != reload::Signal::Stop {}
            }
        };
        let stopped = stop(&self.server, settings, &self.readiness, again).await;
        // The requests that are left log their end.
        self.server.end().await;
        limiter::tell_all_held();
        self.telemetry.flush();
        stopped
    }

    /// Waits until another process has taken the sockets. For ever if none can.
    async fn hand_over(&self, giver: Option<Giver>) {
        let Some(giver) = giver else {
            return std::future::pending().await;
        };
        let count = |outcome: Outcome| self.metrics.takeover(outcome.as_str());
        let (process, passed) = giver.give(|| self.sockets(), count).await;
        for Passed { name, configured, listener } in &passed {
            let address = listener.local_addr().unwrap_or(*configured);
            tracing::info!(name, %address, process, "A listening socket was handed over.");
        }
        self.replaced.store(true, Ordering::Release);
        self.server.succeeded();
        let admin = self.running_admin.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(admin) = admin {
            admin.leave();
        }
    }

    /// All listening sockets, for another process.
    fn sockets(&self) -> io::Result<Vec<Passed>> {
        let clients = self.server.sockets()?.into_iter();
        let mut all: Vec<_> = clients
            .map(|(configured, listener)| Passed { name: LISTENER, configured, listener })
            .collect();
        let admin = self.running_admin.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(admin), Some(configured)) = (&*admin, self.admin) {
            all.push(Passed { name: ADMIN, configured, listener: admin.socket()? });
        }
        Ok(all)
    }

    /// Serves what was loaded. If it is refused, nothing changes.
    async fn serve(
        &self,
        loaded: Result<Loaded, Box<ConfigError>>,
    ) -> Result<Served, Box<ConfigError>> {
        let mut loaded = loaded?;
        descriptors::fit(&mut loaded.settings.limits, false);
        let built = build(loaded, &self.catalog, &self.metrics, &self.upstreams)?;
        warn(&built);
        let Built { runtime, workers, shown, observed, sources, .. } = built;
        let sinks = self.telemetry.sinks(&observed, shown.executions());
        runtime.tell(sinks.unwrap_or_else(|error| {
            tracing::error!(%error, "Nobody is told of requests.");
            Sinks::default()
        }));
        let before = self.server.local_addrs();
        if let Err(error) = self.server.replace(Arc::clone(&runtime)).await {
            let message = format!("{error}; what ran before goes on");
            return Err(Box::new(refused("address", &sources.without_values(&message))));
        }
        certificates(&self.metrics, &runtime);
        announce(&self.server.local_addrs(), &before);
        if let Some(recordings) = self.telemetry.recordings() {
            recordings.listen(&self.server.plain_addrs());
        }
        self.telemetry.executions().resize(shown.executions());
        let admin = shown.admin.as_ref().map(|admin| admin.address);
        let fixed =
            (admin, workers, observed.buckets) == (self.admin, self.workers, self.buckets.clone());
        if !fixed {
            tracing::warn!(
                "`admin.address`, `limits.workers` and `metrics.buckets` are fixed at start: a restart changes them."
            );
        }
        let hash = Arc::clone(&shown.hash);
        let last = self.shown.swap(Arc::new(shown));
        let now = self.shown.load();
        let (routes, upstreams) = Changes::between(&last.comparable(), &now.comparable());
        Ok(Served { hash, routes, upstreams })
    }

    /// What was loaded is what is served already. Returns its hash.
    fn goes_on(&self, cause: Cause) -> Arc<str> {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let hash = Arc::clone(&self.shown.load().hash);
        self.metrics.config_reload("unchanged");
        tracing::info!(%cause, hash = &*hash, "The configuration is the one that is served.");
        hash
    }

    /// Counts and logs the outcome of a reload.
    fn report_outcome(&self, cause: Cause, applied: Result<Served, Box<ConfigError>>) -> Applied {
        let refusal = applied.as_ref().err().map(|refused| Refusal::of(refused));
        let mut last = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        let known = cause == Cause::Again && refusal == *last;
        *last = refusal;
        drop(last);
        match applied {
            Ok(Served { hash, routes, upstreams }) => {
                self.metrics.config_reload("applied");
                self.metrics.config_loaded(&hash, now());
                let hashed = &*hash;
                tracing::info!(
                    %cause, hash = hashed, %routes, %upstreams, "The configuration was loaded anew."
                );
                Ok(hash)
            }
            // Nothing new: it was counted and logged when it was refused first.
            Err(refused) if known => Err(refused.sources.to_json(&refused.diagnostics)),
            Err(refused) => {
                self.metrics.config_reload("refused");
                Err(complain(cause, &refused))
            }
        }
    }
}

impl reload::Reload for App {
    type Loaded = Result<Loaded, Box<ConfigError>>;
    type Applied = Applied;

    fn load(&self) -> (Vec<FileContents>, Self::Loaded) {
        let loaded = self.input.load();
        let files = match &loaded {
            Ok(loaded) => &loaded.files,
            Err(refused) => &refused.files,
        };
        (self.input.watched(files.clone()), loaded)
    }

    fn unchanged(&self, cause: Cause) -> Option<Applied> {
        let refused = self.refusal.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        (!refused).then(|| Ok(self.goes_on(cause)))
    }

    async fn apply(&self, cause: Cause, loaded: Self::Loaded) -> Applied {
        // What was refused may have been put back as it was before.
        let served = &self.shown.load().hash;
        if loaded.as_ref().is_ok_and(|loaded| loaded.settings.hash == *served) {
            return Ok(self.goes_on(cause));
        }
        let applied = self.serve(loaded).await;
        self.report_outcome(cause, applied)
    }

    fn may_pass(&self) -> bool {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        refusal.as_ref().is_some_and(|refusal| refusal.may_pass)
    }

    fn unfinished(&self, cause: Cause, waited: Duration) -> Applied {
        let message = format!(
            "a program has been writing the configuration for {waited:?} and still has it open; reload when it is done"
        );
        // Nobody knows yet whether the file is valid, so the outcome of the last load stands.
        self.metrics.config_reload("unfinished");
        Err(complain(cause, &refused("unfinished", &message)))
    }
}

/// Logs why nothing was loaded, and returns the reason as JSON.
fn complain(cause: Cause, refused: &ConfigError) -> Json {
    let error = refused.to_string();
    let error = error.trim_end();
    // As `%`, its lines stay lines on a terminal.
    tracing::error!(%cause, %error, "The configuration is refused; what ran before goes on.");
    refused.sources.to_json(&refused.diagnostics)
}

/// A refusal whose reason has no place in a file.
fn refused(code: &'static str, message: &str) -> ConfigError {
    ConfigError::without_place("the configuration", code, message)
}

/// Logs the addresses that are new since `before`, and those that are gone.
fn announce(now: &[SocketAddr], before: &[SocketAddr]) {
    for address in now.iter().filter(|address| !before.contains(address)) {
        tracing::info!(%address, "Listening.");
    }
    for address in before.iter().filter(|address| !now.contains(address)) {
        tracing::info!(%address, "Not listening any more.");
    }
}

/// Exports the expiry of each certificate of `runtime`.
fn certificates(metrics: &Metrics, runtime: &Runtime) {
    metrics.certificates(runtime.certificates().map(|(at, until)| (at.to_string(), until)));
}

/// Logs the first warnings only: a long table may repeat the same mistake ten thousand times.
fn warn(built: &Built) {
    let Diagnostics(all) = &built.warnings;
    let first = all.get(..WARNINGS).unwrap_or(all);
    if first.is_empty() {
        return;
    }
    let rendered = built.sources.render(&Diagnostics(first.to_vec()));
    let more = all.len() - first.len();
    tracing::warn!(
        warnings = %rendered.trim_end(),
        more,
        "The configuration may not do what it seems to; `mwl-proxy check` shows all of it."
    );
}

fn now() -> f64 {
    let nanos = Clock::system().now().as_nanos();
    // Milliseconds since the epoch are whole numbers far below 2^53.
    u32::try_from(nanos / 1_000_000_000).map_or(0.0, f64::from)
        + u32::try_from(nanos / 1_000_000 % 1000).map_or(0.0, f64::from) / 1000.0
}
