//! The connections of the admin address, and what goes when there is no room for another.
//!
//! A new connection is always served: it may be a probe, and whoever fills the address must not be able to have the
//! process restarted. So when all places are taken, the connection that has been idle for longest is closed. When the
//! process has no descriptor left, one is released that was kept for this.

use std::net::TcpListener as StdListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::system::descriptors;
use crate::telemetry::limiter::LogLimiter;

/// How many connections are served at once.
const MAX_CONNECTIONS: usize = 64;

/// How many descriptors are kept for when there are no others. What is released may be taken by another thread, so one
/// would not do.
const RESERVE: usize = 16;

/// How long to wait when there is no descriptor at all.
const PAUSE: Duration = Duration::from_millis(20);

/// The connections that are open.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    taken: Vec<Taken>,
}

#[derive(Debug)]
struct Taken {
    key: u64,
    state: Arc<PlaceState>,
    task: AbortHandle,
}

/// One connection.
#[derive(Debug)]
pub(super) struct PlaceState {
    /// Whether a request has come.
    asked: AtomicBool,
    /// Whether a request is being answered.
    busy: AtomicBool,
    /// Since when.
    since: Mutex<Instant>,
}

/// The descriptors that are kept back: further ones of the listening socket, which cost nothing else.
#[derive(Debug)]
pub(super) struct Reserve {
    listener: StdListener,
    kept: Vec<StdListener>,
    told: LogLimiter,
}

impl PlaceState {
    /// A connection that was just accepted.
    pub(super) fn new() -> Arc<Self> {
        let since = Mutex::new(Instant::now());
        Arc::new(Self { asked: AtomicBool::new(false), busy: AtomicBool::new(false), since })
    }

    /// Sets whether a request is being answered, from now on.
    pub(super) fn set_busy(&self, busy: bool) {
        self.asked.fetch_or(busy, Ordering::Relaxed);
        self.busy.store(busy, Ordering::Relaxed);
        *lock(&self.since) = Instant::now();
    }

    /// Whether it waits for another request. One that has not asked at all may be about to.
    fn is_idle(&self) -> bool {
        self.asked.load(Ordering::Relaxed) && !self.busy.load(Ordering::Relaxed)
    }

    /// What goes first is least: idle connections before busy ones, the longest before the others.
    fn rank(&self) -> (bool, Instant) {
        (self.busy.load(Ordering::Relaxed), *lock(&self.since))
    }
}

impl Places {
    /// Makes room, then has `spawn` begin to serve the connection of `state`. It gets the key with which to leave.
    pub(super) fn take(&self, state: Arc<PlaceState>, spawn: impl FnOnce(u64) -> AbortHandle) {
        let mut open = lock(&self.0);
        while open.taken.len() >= MAX_CONNECTIONS && open.evict() {}
        let key = open.next;
        open.next = key.wrapping_add(1);
        let task = spawn(key);
        open.taken.push(Taken { key, state, task });
    }

    /// The connection with this key is closed.
    pub(super) fn leave(&self, key: u64) {
        lock(&self.0).taken.retain(|taken| taken.key != key);
    }

    /// Closes all connections between two requests.
    pub(super) fn close_idle(&self) {
        let mut open = lock(&self.0);
        let idle = open.taken.extract_if(.., |taken| taken.state.is_idle());
        idle.for_each(|taken| taken.task.abort());
    }

    /// Closes the connection that has been idle for longest. `false` if there is none at all.
    pub(super) fn evict(&self) -> bool {
        lock(&self.0).evict()
    }
}

impl Open {
    fn evict(&mut self) -> bool {
        let ranked = self.taken.iter().enumerate();
        let first = ranked.min_by_key(|(_, taken)| taken.state.rank()).map(|(place, _)| place);
        let Some(place) = first else {
            return false;
        };
        self.taken.swap_remove(place).task.abort();
        true
    }
}

impl Reserve {
    /// Keeps descriptors back, copies of that of `listener`.
    ///
    /// # Errors
    /// When there is not a single one.
    pub(super) fn of(listener: &StdListener) -> std::io::Result<Self> {
        let listener = listener.try_clone()?;
        let told = LogLimiter::new("The admin address cannot accept a connection.", None);
        let mut reserve = Self { listener, kept: Vec::new(), told };
        reserve.fill();
        Ok(reserve)
    }

    /// Takes back what was released, as far as there are descriptors.
    fn fill(&mut self) {
        while self.kept.len() < RESERVE
            && let Ok(copy) = self.listener.try_clone()
        {
            self.kept.push(copy);
        }
    }

    /// The next connection, which gets a descriptor of the reserve if there is no other.
    pub(super) async fn accept(&mut self, listener: &TcpListener, places: &Places) -> TcpStream {
        loop {
            let error = match listener.accept().await {
                Ok((stream, _)) => {
                    self.fill();
                    return stream;
                }
                Err(error) => error,
            };
            if descriptors::are_exhausted(&error) && self.kept.pop().is_some() {
                continue;
            }
            if let Some(untold) = self.told.admits(Instant::now()) {
                tracing::warn!(%error, untold, "The admin address cannot accept a connection.");
            }
            // The descriptor is free once the task of the connection has run.
            places.evict();
            sleep(PAUSE).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that never ends by itself.
    fn connect(places: &Places) -> (Arc<PlaceState>, tokio::task::JoinHandle<()>) {
        let state = PlaceState::new();
        let mut task = None;
        places.take(Arc::clone(&state), |_| {
            let spawned = tokio::spawn(std::future::pending());
            let handle = spawned.abort_handle();
            task = Some(spawned);
            handle
        });
        (state, task.unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_goes_and_busy_ones_last() {
        let places = Places::default();
        let mut all = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            all.push(connect(&places));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        // The first answers, the second has just answered: the third has been idle for longest.
        all[0].0.set_busy(true);
        all[1].0.set_busy(false);
        let newest = connect(&places);
        tokio::task::yield_now().await;
        assert!(all[2].1.is_finished() && !newest.1.is_finished());
        assert_eq!(all.iter().filter(|(_, task)| task.is_finished()).count(), 1);
        for (state, _) in &all {
            state.set_busy(true);
        }
        newest.0.set_busy(true);
        assert!(places.evict(), "somebody goes, however busy");
        tokio::task::yield_now().await;
        assert_eq!(all.iter().filter(|(_, task)| task.is_finished()).count(), 2);
    }

    #[tokio::test]
    async fn who_is_between_two_requests_is_closed_and_nobody_else() {
        let places = Places::default();
        let [new, busy, idle] = [(); 3].map(|()| connect(&places));
        busy.0.set_busy(true);
        idle.0.set_busy(true);
        idle.0.set_busy(false);
        places.close_idle();
        tokio::task::yield_now().await;
        assert!(idle.1.is_finished() && !new.1.is_finished() && !busy.1.is_finished());
    }

    #[tokio::test]
    async fn who_leaves_frees_a_place() {
        let places = Places::default();
        let first = connect(&places);
        places.leave(0);
        assert!(!places.evict() && !first.1.is_finished());
    }
}
