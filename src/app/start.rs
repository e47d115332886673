//! How the process starts: with sockets of its own, with those of a service manager, or with those of the process that it
//! replaces.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use serde_json::Value as Json;
use tokio::runtime::Runtime as Driver;
use tokio_util::sync::CancellationToken;

use super::{
    App, Applied, Built, Input, address_space, announce, build, certificates, descriptors, now,
    warn,
};
use crate::admin;
use crate::config::{ConfigError, Loaded};
use crate::proxy::settings::Shutdown;
use crate::proxy::{self, Server, UpstreamRegistry};
use crate::reload::{self, Reloader};
use crate::shutdown::Readiness;
use crate::system::inherited::{ADMIN, Inherited, LISTENER, Opener, SocketName};
use crate::takeover::{Giver, SocketFile, TakeoverError, Taker, take};
use crate::telemetry::history::History;
use crate::telemetry::lines::LineStyle;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::recordings::Recordings;
use crate::telemetry::sinks::Telemetry;
use crate::telemetry::trace;

/// The listening sockets that the process need not open itself. None by default.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Those of the service manager.
    pub inherited: Inherited,
    /// Where to ask another process for its own, and where to wait for the next one.
    pub takeover: Option<PathBuf>,
}

/// What is written for somebody who watches. Nothing by default.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// A line for each request, on standard output.
    pub lines: Option<LineStyle>,
    /// Recordings of whole exchanges, in this folder.
    pub record: Option<PathBuf>,
}

/// The addresses on which the process listens, with the ports that the system chose.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// For clients, in the order of the configuration.
    pub listeners: Vec<SocketAddr>,
    /// For operators.
    pub admin: Option<SocketAddr>,
}

/// Why the process cannot start. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] Box<ConfigError>),
    /// The process cannot listen on an address.
    #[error("{message}")]
    Address {
        /// Which address, and why not.
        message: String,
        /// Whether another process already listens on it.
        taken: bool,
    },
    /// The process may use too little address space.
    #[error(
        "the limit of address space is {limit} MiB (`ulimit -v`, RLIMIT_AS), and a start with {workers} workers reserves about {needed} MiB, most of which is never used: raise the limit, or lower `limits.workers`"
    )]
    AddressSpace {
        /// In MiB.
        limit: u64,
        /// In MiB, at least.
        needed: u64,
        /// How many workers were to be started.
        workers: usize,
    },
    /// The service manager's sockets are not those of the configuration.
    #[error("{0}")]
    Sockets(String),
    /// The sockets of another process cannot be taken.
    #[error(transparent)]
    Takeover(#[from] TakeoverError),
    /// Nothing can be recorded.
    #[error("nothing can be recorded in {}: {error}", folder.display())]
    Record {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Spans cannot be exported.
    #[error(transparent)]
    Tracing(#[from] trace::TracerError),
    /// The system provides no threads, signals or runtime. The source says which error it was.
    #[error("the system refuses")]
    System(#[from] io::Error),
}

/// Says what a configuration would do with the request of a question, for `POST /explain`: its JSON, or what is wrong with
/// the question. It ends soon after the token is cancelled.
pub type Explain = fn(Loaded, &[u8], &CancellationToken) -> Result<Json, String>;

/// Everything that can be done before there are sockets.
struct Prepared {
    input: Input,
    catalog: crate::language::provider::Catalog,
    metrics: Arc<Metrics>,
    upstreams: UpstreamRegistry,
    watched: Watched,
    built: Built,
}

/// Runs the process on this thread until it is told to stop. `explain` answers questions at the admin address.
///
/// # Errors
/// When it cannot start.
pub fn run(
    input: Input,
    sockets: Sockets,
    watched: Watched,
    explain: Explain,
    started: impl FnOnce(&Addresses),
) -> Result<ExitCode, StartError> {
    let driver = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Signals are caught before anybody learns an address: whoever knows one may send a signal.
    let signals = {
        let _inside = driver.enter();
        reload::Signals::new()?
    };
    let prepared = Prepared::load(input, watched)?;
    let Sockets { inherited, takeover } = sockets;
    let (file, found) = match takeover {
        None => (None, None),
        Some(_) if !inherited.is_empty() => {
            let message = "--takeover and LISTEN_FDS: the sockets come from one place only. With a socket unit, \
                           `systemctl restart` is a restart without an outage; leave --takeover out";
            return Err(StartError::Sockets(message.into()));
        }
        Some(path) => driver.block_on(async {
            let file = SocketFile::create(&path)?;
            Ok::<_, TakeoverError>((Some(file), take(&path).await?))
        })?,
    };
    let (taker, inherited) = match found {
        None => (None, inherited),
        Some((taker, inherited)) => (Some(taker), inherited),
    };
    let (app, reloader, addresses) = {
        let _inside = driver.enter();
        App::start(prepared, inherited, explain)?
    };
    let giver = take_over(&driver, &app, file, taker)?;
    started(&addresses);
    Ok(driver.block_on(app.run(signals, reloader, giver)).into())
}

/// Lets the old process drain, and waits in its place for the next one.
fn take_over(
    driver: &Driver,
    app: &App,
    file: Option<SocketFile>,
    taker: Option<Taker>,
) -> Result<Option<Giver>, StartError> {
    let replaces = taker.is_some();
    if let Some(taker) = taker
        && let Err(refused) = driver.block_on(taker.ready())
    {
        // The old process goes on with the same sockets. This one answers what it has accepted.
        let Shutdown { grace, .. } = *app.server.runtime().shutdown();
        driver.block_on(async {
            app.server.drain(grace).await;
            app.server.end().await;
        });
        return Err(refused.into());
    }
    let Some(mut file) = file else {
        return Ok(None);
    };
    match file.publish() {
        Ok(()) => Ok(Some(Giver::new(file))),
        // The old process drains already: to stop now would be an outage.
        Err(error) if replaces => {
            tracing::error!(%error, "No other process can take over from this one.");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

impl Watched {
    /// The readers of records.
    fn telemetry(self, metrics: &Arc<Metrics>) -> Result<Telemetry, StartError> {
        let Self { lines, record } = self;
        let mut telemetry = Telemetry::new(Arc::clone(metrics));
        if let Some(style) = lines {
            telemetry = telemetry.with_lines(style)?;
        }
        if let Some(folder) = record {
            let recordings = Recordings::start(&folder, metrics);
            let recordings = recordings.map_err(|error| StartError::Record { folder, error })?;
            telemetry = telemetry.with_recordings(recordings);
        }
        Ok(telemetry)
    }
}

impl Prepared {
    /// Reads and compiles the configuration.
    fn load(input: Input, watched: Watched) -> Result<Self, StartError> {
        address_space::before_load()?;
        let catalog = proxy::catalog(None);
        let mut loaded = input.load()?;
        address_space::for_workers(loaded.settings.limits.workers)?;
        descriptors::raise();
        descriptors::fit(&mut loaded.settings.limits, true);
        let metrics = Metrics::with_buckets(&loaded.settings.observed.buckets);
        let upstreams = UpstreamRegistry::default();
        let built = build(loaded, &catalog, &metrics, &upstreams)?;
        warn(&built);
        Ok(Self { input, catalog, metrics, upstreams, watched, built })
    }
}

impl App {
    /// Starts to listen and to serve. Must be called within the runtime that will run the reloader.
    ///
    /// # Errors
    /// When an address is not available, or an inherited socket is not wanted.
    fn start(
        prepared: Prepared,
        inherited: Inherited,
        explain: Explain,
    ) -> Result<(Arc<Self>, Reloader<Applied>, Addresses), StartError> {
        let Prepared { input, catalog, metrics, upstreams, watched, built } = prepared;
        let telemetry = watched.telemetry(&metrics)?;
        let kept = built.shown.executions();
        built.runtime.tell(telemetry.sinks(&built.observed, kept)?);
        telemetry.executions().resize(kept);
        let address = built.shown.admin.as_ref().map(|admin| admin.address);
        let clients = built.runtime.addresses().into_iter().map(|address| (LISTENER, address));
        let wanted: Vec<_> = clients.chain(address.map(|address| (ADMIN, address))).collect();
        inspect(&inherited, &wanted)?;
        let admin = address.map(|address| listen(address, &inherited)).transpose()?;
        let server =
            Server::start_with(Arc::clone(&built.runtime), inherited).map_err(|error| {
                StartError::Address {
                    taken: error.kind() == io::ErrorKind::AddrInUse,
                    message: error.to_string(),
                }
            })?;
        metrics.config_loaded(&built.shown.hash, now());
        certificates(&metrics, &built.runtime);
        if let Some(recordings) = telemetry.recordings() {
            recordings.listen(&server.plain_addrs());
        }
        let addresses = Addresses {
            listeners: server.local_addrs(),
            admin: admin.as_ref().map(TcpListener::local_addr).transpose()?,
        };
        let (handle, reloader) = reload::reloader(input.watched(built.files));
        let app = Arc::new(Self {
            input,
            catalog,
            metrics,
            upstreams,
            telemetry,
            history: History::default(),
            explain,
            buckets: built.observed.buckets,
            server,
            readiness: Readiness::default(),
            shown: ArcSwap::from_pointee(built.shown),
            admin: address,
            running_admin: std::sync::Mutex::default(),
            replaced: AtomicBool::new(false),
            workers: built.workers,
            handle,
            refusal: std::sync::Mutex::default(),
        });
        // Before anybody can ask: of a socket that another process serves as well, somebody may ask at once.
        app.readiness.set(true);
        if let Some(listener) = admin {
            let backend: Arc<dyn admin::Backend> = Arc::clone(&app) as _;
            let running = admin::start(listener, backend)?;
            let mut place =
                app.running_admin.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *place = Some(running);
        }
        app.introduce();
        announce(&addresses.listeners, &[]);
        if let Some(address) = addresses.admin {
            tracing::info!(%address, "The admin address is served.");
        }
        Ok((app, reloader, addresses))
    }
}

impl App {
    /// Logs what has started: which program, with which configuration. The addresses follow.
    fn introduce(&self) {
        let record = self.telemetry.recordings().map(Recordings::directory);
        tracing::info!(
            version = env!("MWL_VERSION"),
            configuration = %self.input,
            hash = &*self.shown.load().hash,
            workers = self.workers,
            record,
            "Started."
        );
    }
}

/// The admin address's socket: an inherited one, or a new one.
fn listen(address: SocketAddr, inherited: &Inherited) -> Result<TcpListener, StartError> {
    let there = inherited.share(ADMIN, address)?.and_then(|mut shared| shared.sockets.pop());
    if let Some(listener) = there {
        return Ok(listener);
    }
    admin::listen(address).map_err(|error| StartError::Address {
        taken: error.kind() == io::ErrorKind::AddrInUse,
        message: format!("cannot listen on {address} for `admin`: {error}"),
    })
}

/// Logs which sockets are taken. Of a process, the others close with it: its configuration was another one. A service
/// manager would keep the others open, and whoever connects to them would wait for ever.
fn inspect(inherited: &Inherited, wanted: &[(&str, SocketAddr)]) -> Result<(), StartError> {
    let (taken, left) = inherited.divided(wanted);
    let from = inherited.opener();
    for SocketName { name, local } in taken {
        tracing::info!(name, address = %local, %from, "A listening socket is taken over.");
    }
    if left.is_empty() {
        return Ok(());
    }
    if from == Opener::ServiceManager {
        let list = |all: Vec<String>| all.join(", ");
        let left = list(left.iter().map(ToString::to_string).collect());
        let wanted = list(wanted.iter().map(|(_, address)| address.to_string()).collect());
        return Err(StartError::Sockets(format!(
            "the service manager listens on {left}, which no listener of the configuration has as its address; it \
             has {wanted}. Write the same address in both, or take the ListenStream= away"
        )));
    }
    for SocketName { name, local } in left {
        tracing::info!(name, address = %local, %from, "A listening socket is not taken over: the configuration has no such address.");
    }
    Ok(())
}
