//! How the process stops after a signal, in an order that no request notices.
//!
//! The process is no longer ready at once but still serves, because a balancer needs time to notice. Then the
//! listeners close, requests get a grace period, and what is still running is cancelled, with its cleanups. A
//! second signal skips the waiting: requests are cancelled and their cleanups get one short last chance.

use std::future::Future;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::proxy::Server;
use crate::proxy::settings::Shutdown;

/// How long the cleanups of cancelled requests may take after a second signal.
const LAST_CHANCE: Duration = Duration::from_secs(1);

/// How often we check, during the last chance, whether requests are still running.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A server that can be stopped.
pub trait Drain {
    /// Stops listening, waits up to `grace` for the requests, then cancels the rest; their cleanups still
    /// run. Returns how many were cancelled.
    fn drain(&self, grace: Duration) -> impl Future<Output = usize>;

    /// Cancels every request that runs.
    fn cut(&self);

    /// How many requests run.
    fn in_flight(&self) -> usize;
}

/// Whether the process serves, as `/readyz` reports it.
#[derive(Debug, Default)]
pub struct Readiness(AtomicBool);

/// How the process stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every request finished by itself.
    Clean,
    /// This many were cancelled.
    Cut(usize),
}

impl Drain for Server {
    fn drain(&self, grace: Duration) -> impl Future<Output = usize> {
        Self::drain(self, grace)
    }

    fn cut(&self) {
        Self::cut(self);
    }

    fn in_flight(&self) -> usize {
        Self::in_flight(self)
    }
}

impl Readiness {
    /// Sets whether the process accepts requests.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }

    /// Whether it is ready.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl From<Stopped> for ExitCode {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Clean => Self::SUCCESS,
            Stopped::Cut(_) => Self::FAILURE,
        }
    }
}

/// Stops `server` after the first signal. The future that `again` returns resolves at the next signal.
pub async fn stop<A: Future<Output = ()>>(
    server: &impl Drain,
    settings: &Shutdown,
    readiness: &Readiness,
    mut again: impl FnMut() -> A,
) -> Stopped {
    readiness.set(false);
    tracing::info!(delay = ?settings.delay, grace = ?settings.grace, "Stopping.");
    let orderly = async {
        tokio::time::sleep(settings.delay).await;
        server.drain(settings.grace).await
    };
    let cut = tokio::select! {
        biased;
        cut = orderly => cut,
        () = again() => at_once(server, again()).await,
    };
    if cut == 0 {
        tracing::info!("Stopped; every request came to its end.");
        return Stopped::Clean;
    }
    tracing::warn!(cut, "Stopped; requests were cut.");
    Stopped::Cut(cut)
}

/// Cancels the running requests and gives their cleanups a last chance, or none once `more` resolves.
async fn at_once(server: &impl Drain, more: impl Future<Output = ()>) -> usize {
    let running = server.in_flight();
    server.cut();
    let ended = async {
        while server.in_flight() > 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = tokio::time::sleep(LAST_CHANCE) => {}
        () = more => {}
    }
    let left = server.in_flight();
    tracing::warn!(cut = running, unfinished = left, "Stopping at once.");
    running
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use tokio::time::Instant;

    /// Requests that finish by themselves at an instant, or a while after they are cut.
    struct Scripted {
        begun: Instant,
        ends: Duration,
        cleanup: Duration,
        cut_at: Cell<Option<Instant>>,
        log: RefCell<Vec<(u64, &'static str)>>,
    }

    impl Scripted {
        fn new(ends: u64, cleanup: u64) -> Self {
            Self {
                begun: Instant::now(),
                ends: Duration::from_secs(ends),
                cleanup: Duration::from_millis(cleanup),
                cut_at: Cell::new(None),
                log: RefCell::default(),
            }
        }

        fn note(&self, what: &'static str) {
            self.log.borrow_mut().push((self.begun.elapsed().as_secs(), what));
        }
    }

    impl Drain for Scripted {
        async fn drain(&self, grace: Duration) -> usize {
            self.note("drain");
            let left = self.ends.saturating_sub(self.begun.elapsed());
            tokio::time::sleep(left.min(grace)).await;
            self.in_flight()
        }

        fn cut(&self) {
            self.note("cut");
            self.cut_at.set(Some(Instant::now()));
        }

        fn in_flight(&self) -> usize {
            let cleaned = self.cut_at.get().is_some_and(|at| at.elapsed() >= self.cleanup);
            usize::from(self.begun.elapsed() < self.ends && !cleaned)
        }
    }

    const SETTINGS: Shutdown =
        Shutdown { delay: Duration::from_secs(2), grace: Duration::from_secs(5) };

    /// Stops `server`; further signals come after these many milliseconds.
    async fn stopped(server: &Scripted, signals: &[u64]) -> (Stopped, Duration) {
        let readiness = Readiness::default();
        readiness.set(true);
        let mut signals = signals.iter();
        let again = || {
            let wait = signals.next().copied();
            async move {
                match wait {
                    Some(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                    None => std::future::pending().await,
                }
            }
        };
        let stopped = stop(server, &SETTINGS, &readiness, again).await;
        assert!(!readiness.is_ready());
        (stopped, server.begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_end_in_time_leave_cleanly() {
        let server = Scripted::new(6, 0);
        assert_eq!(stopped(&server, &[]).await, (Stopped::Clean, Duration::from_secs(6)));
        assert_eq!(*server.log.borrow(), [(2, "drain")]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_grace_begins_after_the_delay() {
        let server = Scripted::new(60, 0);
        assert_eq!(stopped(&server, &[]).await, (Stopped::Cut(1), Duration::from_secs(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_cuts_and_waits_for_cleanups_shortly() {
        let server = Scripted::new(60, 300);
        let (how, took) = stopped(&server, &[1000]).await;
        assert_eq!(how, Stopped::Cut(1));
        assert_eq!(took, Duration::from_millis(1300));
        assert_eq!(*server.log.borrow(), [(1, "cut")]);
        let stuck = Scripted::new(60, 60_000);
        assert_eq!(stopped(&stuck, &[3000]).await.1, Duration::from_secs(4));
        assert_eq!(*stuck.log.borrow(), [(2, "drain"), (3, "cut")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_third_signal_waits_for_nothing() {
        let stuck = Scripted::new(60, 60_000);
        let (how, took) = stopped(&stuck, &[1000, 100]).await;
        assert_eq!((how, took), (Stopped::Cut(1), Duration::from_millis(1100)));
    }
}
