//! The one place that knows everybody: builds what a configuration describes, and wires it to the
//! server, the metrics, the admin address, the signals and the files.

mod build;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::{Value as Json, json};
use tokio::sync::Mutex;

pub use self::build::{Built, Input, Shown, build, check, complete};
use crate::admin;
use crate::config::{Read, Refused};
use crate::language::clock::process_clock;
use crate::language::provider::Catalog;
use crate::proxy::Server;
use crate::reload::{self, Cause};
use crate::shutdown::{Readiness, Stopped, stop};
use crate::source::{Diagnostic, Diagnostics, Span};
use crate::telemetry::executions::{Executions, Filter};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::sinks::{Sinks, Telemetry};
use crate::telemetry::trace;

/// The running process.
#[derive(Debug)]
pub struct App {
    input: Input,
    catalog: Catalog,
    metrics: Arc<Metrics>,
    telemetry: Telemetry,
    /// Of the histograms; fixed at start.
    buckets: Vec<f64>,
    server: Server,
    readiness: Readiness,
    shown: ArcSwap<Shown>,
    /// Fixed at start.
    admin: Option<SocketAddr>,
    workers: usize,
    /// What was last read. Held through a reload: there is one at a time.
    files: Mutex<Vec<Read>>,
}

/// Where the process listens, with the ports that the system chose.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// For clients, in order.
    pub listeners: Vec<SocketAddr>,
    /// For operators.
    pub admin: Option<SocketAddr>,
}

/// Why the process cannot start. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is refused.
    #[error("{0}")]
    Config(#[from] Box<Refused>),
    /// An address cannot be listened on.
    #[error("{message}")]
    Address {
        /// Which and why.
        message: String,
        /// Whether another process has it.
        taken: bool,
    },
    /// Spans cannot be exported.
    #[error("{0}")]
    Tracing(#[from] trace::Refused),
    /// The system gives no threads, signals or runtime.
    #[error("the system refuses: {0}")]
    System(#[from] io::Error),
}

impl App {
    /// Reads the configuration and listens.
    ///
    /// # Errors
    /// Where the configuration is refused or an address cannot be had.
    pub fn start(input: Input) -> Result<(Arc<Self>, Addresses), StartError> {
        let catalog = Catalog::spec_defined();
        let loaded = input.load()?;
        let metrics = Metrics::with_buckets(&loaded.settings.observed.buckets);
        let telemetry = Telemetry::new(Arc::clone(&metrics));
        let built = build(loaded, &catalog, &metrics)?;
        warn(&built.warnings);
        let kept = built.shown.executions();
        built.runtime.tell(telemetry.sinks(&built.observed, kept)?);
        telemetry.executions().resize(kept);
        let address = built.shown.admin.as_ref().map(|admin| admin.address);
        let admin = address.map(listen).transpose()?;
        let server =
            Server::start(Arc::clone(&built.runtime)).map_err(|error| StartError::Address {
                taken: error.kind() == io::ErrorKind::AddrInUse,
                message: error.to_string(),
            })?;
        metrics.config_loaded(&built.shown.hash, now());
        let addresses = Addresses {
            listeners: server.local_addrs(),
            admin: admin.as_ref().map(TcpListener::local_addr).transpose()?,
        };
        let app = Arc::new(Self {
            input,
            catalog,
            metrics,
            telemetry,
            buckets: built.observed.buckets,
            server,
            readiness: Readiness::default(),
            shown: ArcSwap::from_pointee(built.shown),
            admin: address,
            workers: built.workers,
            files: Mutex::new(built.files),
        });
        if let Some(listener) = admin {
            let operated: Arc<dyn admin::Operated> = Arc::clone(&app) as _;
            admin::start(listener, operated)?;
        }
        app.readiness.set(true);
        announce(&addresses.listeners, &[]);
        if let Some(address) = addresses.admin {
            tracing::info!(%address, "The admin address is served.");
        }
        Ok((app, addresses))
    }

    /// Serves until a signal says to stop.
    pub async fn run(self: Arc<Self>, mut signals: reload::Signals) -> Stopped {
        let files = self.watch().await;
        if files.is_some() && self.is_stale() {
            // The log says how it went.
            self.reload(Cause::File).await.ok();
        }
        let first = async {
            loop {
                match signals.next().await {
                    reload::Signal::Stop => return,
                    reload::Signal::Reload => {
                        // The log says how it went.
                        self.reload(Cause::Signal).await.ok();
                    }
                }
            }
        };
        let changes = async {
            if let Some(watcher) = files {
                watcher.run(&*self).await;
                tracing::warn!(
                    "The configuration is not watched any more; SIGHUP and POST /reload remain."
                );
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = first => {}
            () = changes => {}
        }
        let runtime = self.server.runtime();
        let signals = Arc::new(Mutex::new(signals));
        let again = || {
            let signals = Arc::clone(&signals);
            async move {
                let mut signals = signals.lock().await;
                while signals.next().await != reload::Signal::Stop {}
            }
        };
        let stopped = stop(&self.server, runtime.shutdown(), &self.readiness, again).await;
        self.telemetry.flush();
        stopped
    }

    /// Whether the files hold something else than what is served: between the loading and the watching
    /// nobody looked.
    fn is_stale(&self) -> bool {
        let loaded = self.input.load();
        loaded.map_or(true, |loaded| loaded.settings.hash != self.shown.load().hash)
    }

    async fn watch(&self) -> Option<reload::Watcher> {
        self.input.file()?;
        let files = self.files.lock().await.clone();
        match reload::Watcher::new(files) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "The configuration is not watched; SIGHUP and POST /reload remain.");
                None
            }
        }
    }

    /// Loads the configuration anew and serves it. What is refused changes nothing; the log says it once.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub async fn reload(&self, cause: Cause) -> Result<Arc<str>, Box<Refused>> {
        let mut files = self.files.lock().await;
        let applied = self.apply(&mut files).await;
        self.metrics.config_reload(applied.is_ok());
        match &applied {
            Ok(hash) => {
                self.metrics.config_loaded(hash, now());
                tracing::info!(%cause, hash = &**hash, "The configuration was loaded anew.");
            }
            Err(refused) => {
                files.clone_from(&refused.files);
                let error = refused.to_string();
                let error = error.trim_end();
                tracing::error!(%cause, error, "The configuration is refused; what ran before goes on.");
            }
        }
        applied
    }

    async fn apply(&self, files: &mut Vec<Read>) -> Result<Arc<str>, Box<Refused>> {
        let built = build(self.input.load()?, &self.catalog, &self.metrics)?;
        warn(&built.warnings);
        let Built { runtime, workers, files: read, shown, observed, .. } = built;
        let sinks = self.telemetry.sinks(&observed, shown.executions());
        runtime.tell(sinks.unwrap_or_else(|error| {
            tracing::error!(%error, "Nobody is told of requests.");
            Sinks::default()
        }));
        let before = self.server.local_addrs();
        if let Err(error) = self.server.replace(runtime).await {
            let message = format!("{error}; what ran before goes on");
            let diagnostic = Diagnostic::error("address", Span::default(), message);
            return Err(Box::new(Refused {
                sources: self.input.load()?.sources,
                diagnostics: Diagnostics::from(diagnostic),
                readable: None,
                files: read,
            }));
        }
        announce(&self.server.local_addrs(), &before);
        self.telemetry.executions().resize(shown.executions());
        let admin = shown.admin.as_ref().map(|admin| admin.address);
        let fixed =
            (admin, workers, observed.buckets) == (self.admin, self.workers, self.buckets.clone());
        if !fixed {
            tracing::warn!(
                "`admin.address`, `limits.workers` and `metrics.buckets` are fixed at start: a restart changes them."
            );
        }
        *files = read;
        let hash = Arc::clone(&shown.hash);
        self.shown.store(Arc::new(shown));
        Ok(hash)
    }
}

impl reload::Reload for App {
    async fn reload(&self) -> Vec<Read> {
        // The log says how it went.
        Self::reload(self, Cause::File).await.ok();
        self.files.lock().await.clone()
    }
}

impl admin::Operated for App {
    fn metrics(&self) -> String {
        self.metrics.render()
    }

    fn is_ready(&self) -> bool {
        self.readiness.is_ready()
    }

    fn token(&self) -> Option<Arc<str>> {
        self.shown.load().admin.as_ref()?.token.clone()
    }

    fn routes(&self) -> Json {
        admin::routes::counted(&self.shown.load().routes, &self.metrics.routes())
    }

    fn executions(&self, filter: &Filter) -> Json {
        let executions: &Executions = self.telemetry.executions();
        let shown = executions.read(filter);
        let shown: Vec<Json> = shown.iter().map(|execution| execution.to_json()).collect();
        json!({ "kept": executions.keep(), "executions": shown })
    }

    fn config(&self) -> Json {
        let shown = self.shown.load();
        let file = self.input.file().map(|path| path.display().to_string());
        let version = env!("CARGO_PKG_VERSION");
        json!({ "version": version, "hash": *shown.hash, "file": file, "config": shown.config })
    }

    fn missed(&self, events: u64) {
        self.metrics.events_missed(events);
    }

    fn reload(&self) -> admin::Reloading<'_> {
        Box::pin(async {
            let applied = Self::reload(self, Cause::Admin).await;
            applied.map_err(|refused| refused.sources.to_json(&refused.diagnostics))
        })
    }
}

/// Says which addresses are listened on now and were not `before`, and the other way about.
fn announce(now: &[SocketAddr], before: &[SocketAddr]) {
    for address in now.iter().filter(|address| !before.contains(address)) {
        tracing::info!(%address, "Listening.");
    }
    for address in before.iter().filter(|address| !now.contains(address)) {
        tracing::info!(%address, "Not listening any more.");
    }
}

fn warn(rendered: &str) {
    if !rendered.is_empty() {
        tracing::warn!(
            warnings = rendered.trim_end(),
            "The configuration may not do what it seems to."
        );
    }
}

fn now() -> f64 {
    let nanos = process_clock().now().as_nanos();
    // Milliseconds since the epoch are whole numbers far below 2^53.
    u32::try_from(nanos / 1_000_000_000).map_or(0.0, f64::from)
        + u32::try_from(nanos / 1_000_000 % 1000).map_or(0.0, f64::from) / 1000.0
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).map_err(|error| StartError::Address {
        taken: error.kind() == io::ErrorKind::AddrInUse,
        message: format!("cannot listen on {address} for `admin`: {error}"),
    })
}

/// Runs the process on this thread until it is told to stop.
///
/// # Errors
/// Where it cannot start.
pub fn run(input: Input, started: impl FnOnce(&Addresses)) -> Result<ExitCode, StartError> {
    let driver = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before anybody is told an address: whoever knows one may send a signal.
    let signals = {
        let _inside = driver.enter();
        reload::Signals::new()?
    };
    let (app, addresses) = App::start(input)?;
    started(&addresses);
    Ok(driver.block_on(app.run(signals)).into())
}
