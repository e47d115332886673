//! The proxy: its worker threads, and the operations on all of them.
//!
//! A worker is a thread with its own runtime, sockets and upstream connections. A request is served by one
//! worker, from its first byte to its last.

mod listeners;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::runtime::RuntimeMetrics;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::listeners::{Listeners, shares};
use crate::proxy::client::listener;
use crate::proxy::settings::Limits;
use crate::proxy::site::runtime::Runtime;
use crate::proxy::site::{Worker, WorkerState};
use crate::proxy::upstream::checks::Checks;
use crate::proxy::watch::Timeouts;
use crate::system::inherited::Inherited;

/// How often a drain checks whether it is complete.
const LOOK: Duration = Duration::from_millis(10);
/// How long idle connections may stay for one more request, if another process serves the addresses after this one.
const LAST_CALL: Duration = Duration::from_secs(1);
/// How long the last bytes of answers may take after the grace period.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// A busy worker checks for new events after this many task polls, about half a millisecond of work. The library's
/// default of 61 would cost a system call for every twelve requests. An idle worker waits for events in any case.
const POLLS_BETWEEN_LOOKS: u32 = 256;

/// A running proxy. It stops at once when dropped.
#[derive(Debug)]
pub struct Server {
    runtime: ArcSwap<Runtime>,
    workers: Vec<WorkerHandle>,
    listeners: Mutex<Listeners>,
    /// Looks after the endpoints of upstreams.
    checks: Checks,
    /// Whether another process serves the addresses after this one.
    succeeded: AtomicBool,
}

#[derive(Debug)]
struct WorkerHandle {
    core: Arc<WorkerState>,
    commands: mpsc::Sender<Command>,
    tasks: RuntimeMetrics,
    /// Taken when it is joined.
    thread: Option<JoinHandle<()>>,
}

/// A command for a worker.
#[derive(Debug)]
enum Command {
    /// Serve this from now on.
    Replace(Replacement),
    /// Stop listening, and close each connection after its next answer.
    LastCall(oneshot::Sender<()>),
    /// Stop listening, and close connections once they are idle.
    Drain(oneshot::Sender<()>),
    /// Drop everything.
    End(oneshot::Sender<()>),
}

/// A configuration, and the sockets that differ from the last one.
#[derive(Debug)]
struct Replacement {
    runtime: Arc<Runtime>,
    opened: Vec<(SocketAddr, StdListener)>,
    closed: Vec<SocketAddr>,
    done: oneshot::Sender<()>,
}

impl Server {
    /// Binds the listeners of `runtime` and starts its workers. The error names the address.
    pub fn start(runtime: Arc<Runtime>) -> io::Result<Self> {
        Self::start_with(runtime, Inherited::default())
    }

    /// The same, but listeners take the sockets of their addresses from `inherited`, and only the others are bound.
    pub fn start_with(runtime: Arc<Runtime>, inherited: Inherited) -> io::Result<Self> {
        let count = runtime.limits.workers.max(1);
        let (listeners, shares) = Listeners::start(&runtime.addresses(), count, inherited)?;
        let workers: io::Result<Vec<_>> = shares
            .into_iter()
            .enumerate()
            .map(|(number, sockets)| WorkerHandle::start(number, &runtime, sockets))
            .collect();
        let checks = Checks::default();
        checks.supervise(&runtime.upstreams, &runtime.resolver);
        Ok(Self {
            checks,
            runtime: ArcSwap::new(runtime),
            workers: workers?,
            succeeded: AtomicBool::new(listeners.are_managed()),
            listeners: Mutex::new(listeners),
        })
    }

    /// The addresses on which it listens.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.lock().local_addrs()
    }

    /// Those of them on which it speaks clear text with everybody: neither TLS nor a PROXY header is wanted first.
    pub fn plain_addrs(&self) -> Vec<SocketAddr> {
        let runtime = self.runtime();
        let plain =
            runtime.listeners.iter().filter(|one| one.tls.is_none() && one.proxies.is_none());
        let listeners = self.lock();
        plain.filter_map(|one| listeners.local_addr(one.address)).collect()
    }

    /// Further descriptors of its listening sockets, each with its address as configured.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn sockets(&self) -> io::Result<Vec<(SocketAddr, StdListener)>> {
        self.lock().copies()
    }

    /// The runtime that serves new requests.
    pub fn runtime(&self) -> Arc<Runtime> {
        self.runtime.load_full()
    }

    /// How many requests are running.
    pub fn in_flight(&self) -> usize {
        self.workers.iter().map(|worker| worker.core.in_flight()).sum()
    }

    /// How many executions have cleanups to run.
    fn unwinding(&self) -> usize {
        self.workers.iter().map(|worker| worker.core.unwinding()).sum()
    }

    /// How many tasks the workers are running.
    pub fn tasks(&self) -> usize {
        self.workers.iter().map(|worker| worker.tasks.num_alive_tasks()).sum()
    }

    /// How many client connections are open.
    pub fn connections(&self) -> usize {
        let open = |worker: &WorkerHandle| worker.core.connections.len();
        self.workers.iter().map(open).sum()
    }

    /// Serves new requests with `runtime`; running requests keep the one with which they began. New addresses are
    /// bound before anything changes, so after an error everything is as before. The number of workers never changes.
    pub async fn replace(&self, runtime: Arc<Runtime>) -> io::Result<()> {
        let wanted = runtime.addresses();
        let (sockets, closed) = {
            let mut listeners = self.lock();
            let opened = listeners.open_missing(&wanted, self.workers.len())?;
            let sockets = shares(&opened, self.workers.len())?;
            let closed = listeners.close_others(&wanted);
            listeners.add(opened);
            (sockets, closed)
        };
        // Kept until no worker uses it, so that this thread frees what it allocated. If another thread freed
        // it, the memory would stay with the allocator until the next reload.
        let last = self.runtime.swap(Arc::clone(&runtime));
        for (worker, opened) in self.workers.iter().zip(sockets) {
            let (done, wait) = oneshot::channel();
            let replacement =
                Replacement { runtime: Arc::clone(&runtime), opened, closed: closed.clone(), done };
            worker.ask(Command::Replace(replacement), wait).await;
        }
        Checks::leave(&last.upstreams, &runtime.upstreams);
        drop(last);
        self.checks.supervise(&runtime.upstreams, &runtime.resolver);
        Ok(())
    }

    /// Stops listening, and closes connections: idle ones now, the others after their answer.
    pub async fn begin_drain(&self) {
        self.lock().close();
        self.ask_all(Command::Drain).await;
    }

    /// Another process serves the addresses from now on. Nobody is refused, so that idle connections need not close at
    /// once: who has just sent a request on one gets its answer.
    pub fn succeeded(&self) {
        self.succeeded.store(true, Ordering::Release);
    }

    /// Stops listening, and gives connections some time for one more request.
    async fn last_call(&self, deadline: Option<Instant>) {
        self.lock().close();
        self.ask_all(Command::LastCall).await;
        let last = Instant::now().checked_add(LAST_CALL);
        self.wait(deadline.min(last), |server| server.connections() == 0).await;
    }

    /// Begins to drain, waits up to `grace` for requests to end, then cancels the rest; their cleanups still
    /// run. Returns how many were cancelled.
    pub async fn drain(&self, grace: Duration) -> usize {
        let deadline = Instant::now().checked_add(grace);
        if self.succeeded.load(Ordering::Acquire) {
            self.last_call(deadline).await;
        }
        self.begin_drain().await;
        let idle = |server: &Self| server.in_flight() == 0;
        if self.wait(deadline, idle).await {
            let last = Instant::now().checked_add(LAST_BYTES);
            let closed = |server: &Self| server.connections() == 0;
            self.wait(deadline.min(last), closed).await;
            return 0;
        }
        let cut = self.in_flight();
        self.cut();
        // A cleanup has a timeout of its own, but a stream whose client does not read never ends.
        let cleanup = self.runtime().limits.cleanup.saturating_add(LAST_BYTES);
        let unwound = |server: &Self| server.unwinding() == 0;
        self.wait(Instant::now().checked_add(cleanup), unwound).await;
        let closed = |server: &Self| server.in_flight() == 0 && server.connections() == 0;
        self.wait(Instant::now().checked_add(LAST_BYTES), closed).await;
        cut
    }

    /// Ends the workers. Anything that still runs is dropped, and an execution that is dropped before its
    /// cleanups reports it. Nothing is served any more.
    pub async fn end(&self) {
        self.ask_all(Command::End).await;
    }

    /// Cancels every running request.
    pub fn cut(&self) {
        for worker in &self.workers {
            worker.core.cut();
        }
    }

    async fn ask_all(&self, command: fn(oneshot::Sender<()>) -> Command) {
        for worker in &self.workers {
            let (done, wait) = oneshot::channel();
            worker.ask(command(done), wait).await;
        }
    }

    /// Whether `done` becomes true before `deadline`. `None` waits forever.
    async fn wait(&self, deadline: Option<Instant>, done: impl Fn(&Self) -> bool) -> bool {
        while !done(self) {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // A worker stops when nobody can send it commands any more.
            let (gone, _) = mpsc::channel(1);
            worker.commands = gone;
        }
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            if thread.join().is_err() {
                tracing::error!("A worker ended with a panic.");
            }
        }
    }
}

impl WorkerHandle {
    fn start(
        number: usize,
        runtime: &Arc<Runtime>,
        sockets: Vec<(SocketAddr, StdListener)>,
    ) -> io::Result<Self> {
        let driver = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .event_interval(POLLS_BETWEEN_LOOKS)
            .build()?;
        let core = {
            // The clock must be read inside of the runtime that advances it.
            let _inside = driver.enter();
            Arc::new(WorkerState::new())
        };
        let (commands, asked) = mpsc::channel(4);
        let worker = Arc::new(Worker::new(Arc::clone(&core), Arc::clone(runtime)));
        let tasks = driver.metrics();
        let thread =
            std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                let ended = driver.block_on(work(&worker, sockets, asked));
                // A name lookup may still run on its own thread. Do not wait for it.
                driver.shutdown_background();
                if let Some(done) = ended {
                    answered(done);
                }
            })?;
        Ok(Self { core, commands, tasks, thread: Some(thread) })
    }

    async fn ask(&self, command: Command, done: oneshot::Receiver<()>) {
        let asked = self.commands.send(command).await.is_ok();
        if !asked || done.await.is_err() {
            tracing::error!("A worker does not answer.");
        }
    }
}

/// Runs a worker: executes commands until there can be no more, or until it is told to end, and then answers
/// that command.
async fn work(
    worker: &Arc<Worker>,
    sockets: Vec<(SocketAddr, StdListener)>,
    mut asked: mpsc::Receiver<Command>,
) -> Option<oneshot::Sender<()>> {
    let room = Arc::new(Semaphore::new(share(&worker.site().runtime.limits)));
    let mut listening: HashMap<SocketAddr, CancellationToken> = HashMap::new();
    open(worker, &room, sockets, &mut listening);
    let watch = worker.core.connections.watch(|| Timeouts::of(&worker.site().runtime.limits));
    let commands = async {
        while let Some(command) = asked.recv().await {
            match command {
                Command::Replace(replacement) => {
                    let Replacement { runtime, opened, closed, done } = replacement;
                    worker.replace(runtime);
                    open(worker, &room, opened, &mut listening);
                    for stop in closed.iter().filter_map(|address| listening.remove(address)) {
                        stop.cancel();
                    }
                    answered(done);
                }
                // First, so that who is refused knows that every answer from now on closes its connection.
                Command::LastCall(done) => {
                    worker.core.last_call();
                    close(&mut listening).await;
                    answered(done);
                }
                Command::Drain(done) => {
                    worker.core.last_call();
                    close(&mut listening).await;
                    worker.core.drain();
                    answered(done);
                }
                Command::End(done) => return Some(done),
            }
        }
        None
    };
    tokio::select! {
        ended = commands => ended,
        () = watch => None,
    }
}

/// Stops listening.
async fn close(listening: &mut HashMap<SocketAddr, CancellationToken>) {
    for (_, stop) in listening.drain() {
        stop.cancel();
    }
    // The accept loops run once more to serve what the kernel has accepted.
    tokio::task::yield_now().await;
}

/// How many client connections a worker may have open at once.
fn share(limits: &Limits) -> usize {
    let share = limits.connections.div_ceil(limits.workers.max(1)).max(1);
    share.min(Semaphore::MAX_PERMITS)
}

/// The sender of the command may have stopped waiting.
fn answered(done: oneshot::Sender<()>) {
    let _heard = done.send(()).is_ok();
}

fn open(
    worker: &Arc<Worker>,
    room: &Arc<Semaphore>,
    sockets: Vec<(SocketAddr, StdListener)>,
    listening: &mut HashMap<SocketAddr, CancellationToken>,
) {
    for (address, socket) in sockets {
        match TcpListener::from_std(socket) {
            Ok(listener) => {
                // A worker may have several sockets of one address.
                let stop = listening.entry(address).or_default().clone();
                let (worker, room) = (Arc::clone(worker), Arc::clone(room));
                tokio::spawn(listener::accept(address, listener, worker, room, stop));
            }
            Err(error) => tracing::error!(%address, error = %error, "A socket cannot be used."),
        }
    }
}
