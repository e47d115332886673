//! One worker's connection to a store.
//!
//! The first decision opens it and waits for that, as long as it may. When it breaks, it is opened again at once; whatever
//! comes meanwhile waits for it, as long as it may. Once an attempt has failed, the store is down: decisions fail at once, and
//! a task tries again, less and less often, until it succeeds. A store that accepts connections and then says nothing counts as
//! down after [`SILENT`] decisions in a row.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisError, Value};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::StoreError;
use super::script::Script;
use crate::proxy::io::Io;
use crate::proxy::settings::store::Store as Settings;

/// How many decisions of one worker may wait for a store.
pub(super) const MOST: usize = 1024;
/// How many decisions in a row may get no answer before the store counts as down.
const SILENT: u32 = 5;
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(1);
/// The wait after the first failed attempt to connect. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// A connection, or the attempts to get one.
#[derive(Debug)]
pub(super) struct Line {
    settings: Arc<Settings>,
    state: Mutex<State>,
    /// The state is another one.
    changed: Notify,
    waiting: AtomicUsize,
    /// How many decisions in a row got no answer.
    silent: AtomicU32,
}

#[derive(Debug)]
enum State {
    /// Nobody has asked yet.
    New,
    /// A first attempt is under way, or one after a connection that worked.
    Connecting,
    Open(Link),
    /// The last attempt failed, for this reason.
    Down(Arc<str>),
}

/// An open connection.
#[derive(Clone)]
struct Link {
    connection: MultiplexedConnection,
    /// By which names the server knows the scripts.
    hashes: Arc<[String]>,
    /// Reads and writes. Ends with the last clone.
    driver: Arc<AbortOnDropHandle<()>>,
}

/// Counts a decision as waiting until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Line {
    /// For a store with these `settings`. It is opened when it is needed.
    pub(super) fn new(settings: Arc<Settings>) -> Arc<Self> {
        Arc::new(Self {
            settings,
            state: Mutex::new(State::New),
            changed: Notify::new(),
            waiting: AtomicUsize::new(0),
            silent: AtomicU32::new(0),
        })
    }

    /// The answer of `script` about `key`. The caller sets a timeout.
    pub(super) async fn ask(
        self: &Arc<Self>,
        script: Script,
        key: &str,
        arguments: &[&[u8]],
    ) -> Result<Value, StoreError> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= MOST {
            return Err(StoreError::Busy);
        }
        let mut link = self.open().await?;
        let run = |name: &str, of: &str| {
            let mut command = Cmd::new();
            command.arg(name).arg(of).arg(1).arg(key);
            for argument in arguments {
                command.arg(*argument);
            }
            command
        };
        let hash = link.hashes.get(script.place()).map_or("", String::as_str);
        let mut answered = link.connection.send_packed_command(&run("EVALSHA", hash)).await;
        if answered.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) {
            // It was restarted, or somebody has flushed its scripts.
            let command = run("EVAL", script.text());
            answered = link.connection.send_packed_command(&command).await;
        }
        self.silent.store(0, Ordering::Relaxed);
        answered.and_then(Value::extract_error).map_err(|error| self.failed(&link, &error))
    }

    /// A decision got no answer in time.
    pub(super) fn was_silent(self: &Arc<Self>) {
        let silent = self.silent.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let mut state = self.lock();
        if silent >= SILENT && matches!(*state, State::Open(_)) {
            *state = State::Down("it accepts connections and does not answer".into());
            drop(state);
            self.silent.store(0, Ordering::Relaxed);
            self.changed.notify_waiters();
            self.connect();
        }
    }

    /// The open connection. Waits for one if none has failed.
    async fn open(self: &Arc<Self>) -> Result<Link, StoreError> {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.lock();
                match &*state {
                    State::Open(link) => return Ok(link.clone()),
                    State::Down(reason) => return Err(StoreError::Down(Arc::clone(reason))),
                    State::Connecting => {}
                    State::New => {
                        *state = State::Connecting;
                        drop(state);
                        self.connect();
                    }
                }
            }
            changed.await;
        }
    }

    /// A command failed. If its connection is useless, another one is opened.
    fn failed(self: &Arc<Self>, link: &Link, error: &RedisError) -> StoreError {
        let reason: Arc<str> = error.to_string().into();
        if !error.is_unrecoverable_error() && !error.is_io_error() {
            return StoreError::Refused(reason);
        }
        let mut state = self.lock();
        if matches!(&*state, State::Open(open) if Arc::ptr_eq(&open.driver, &link.driver)) {
            *state = State::Connecting;
            drop(state);
            self.connect();
        }
        StoreError::Lost(reason)
    }

    /// Opens a connection in the background, and tries again until there is one or nobody needs one.
    fn connect(self: &Arc<Self>) {
        let (line, settings) = (Arc::downgrade(self), Arc::clone(&self.settings));
        tokio::spawn(keep_connecting(line, settings));
    }

    fn becomes(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_connecting(line: Weak<Line>, settings: Arc<Settings>) {
    let mut wait = FIRST_WAIT;
    loop {
        let opened = tokio::select! {
            biased;
            opened = open(&settings) => opened,
            () = sleep(CONNECT) => Err("connecting took too long".into()),
        };
        let Some(line) = line.upgrade() else {
            return;
        };
        match opened {
            Ok(opened) => {
                let was_down = matches!(*line.lock(), State::Down(_));
                line.becomes(State::Open(opened));
                if was_down {
                    tracing::info!(store = &*settings.name, "A store can be reached again.");
                }
                return;
            }
            Err(reason) => line.becomes(State::Down(reason)),
        }
        drop(line);
        // So that proxies that lost it at once do not return at once.
        sleep(wait.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
        wait = wait.saturating_mul(2).min(LONGEST_WAIT);
    }
}

/// Opens a connection, and hands the scripts over.
async fn open(settings: &Settings) -> Result<Link, Arc<str>> {
    let connected = TcpStream::connect((&*settings.host, settings.port)).await;
    let socket = connected.map_err(|error| error.to_string())?;
    socket.set_nodelay(true).map_err(|error| error.to_string())?;
    let io = match &settings.tls {
        None => Io::Tcp(socket),
        Some(tls) => Io::Tls(tls.connect(socket).await.map_err(|error| error.message)?),
    };
    let mut info =
        RedisConnectionInfo::default().set_db(settings.database.into()).set_skip_set_lib_name();
    if let Some(user) = &settings.user {
        info = info.set_username(&**user);
    }
    if let Some(password) = &settings.password {
        info = info.set_password(&*password.0);
    }
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(MOST);
    let opened = MultiplexedConnection::new_with_config(&info, io, config).await;
    let (mut connection, driver) = opened.map_err(|error| error.to_string())?;
    let driver = Arc::new(AbortOnDropHandle::new(tokio::spawn(driver)));
    let mut hashes = Vec::with_capacity(Script::ALL.len());
    for script in Script::ALL {
        let mut load = Cmd::new();
        load.arg("SCRIPT").arg("LOAD").arg(script.text());
        let hash: String =
            load.query_async(&mut connection).await.map_err(|error| error.to_string())?;
        hashes.push(hash);
    }
    Ok(Link { connection, hashes: hashes.into(), driver })
}
