//! The state of a breaker: closed, open or half-open.
//!
//! Closed, it lets everything through and counts. This is the good path: it reads one word that hardly ever changes, and
//! writes only where it counts, without a lock. Everything else is rare and happens behind a lock: opening, and letting
//! probes through. While it is open, or all probes are under way, a run is refused after reading two words.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::settings::{Settings, Trips};
use super::window::Window;

/// What a client is told to wait for while probes are under way, at most.
const PROBING: Duration = Duration::from_secs(1);

/// Closed, open or half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Closed,
    HalfOpen,
    Open,
}

/// A breaker. All workers share it.
#[derive(Debug)]
pub(super) struct Breaker {
    pub(super) settings: Settings,
    origin: Instant,
    /// A [`Mode`]. It changes under the lock only.
    mode: AtomicU8,
    /// Until when it is open, in nanoseconds after `origin`.
    until: AtomicU64,
    /// How many probes it lets through now.
    free: AtomicU32,
    /// How many failures there were in a row.
    in_a_row: AtomicU32,
    /// The recent results, if a share of them opens it.
    window: Option<Window>,
    rare: Mutex<Rare>,
}

/// What only changes of the mode and probes need.
#[derive(Debug, Default)]
struct Rare {
    /// How often it was half-open: a probe belongs to one time.
    times: u64,
    /// How often it has opened since it was closed.
    opened: u32,
    /// How many probes of this time have succeeded.
    succeeded: u32,
}

/// What a breaker says to a run.
#[derive(Debug)]
pub(super) enum Admission {
    /// It is closed.
    Passes,
    /// It is half-open, and this run is a probe.
    Probe(Probe),
    /// It does not let this run through: not before this time is over.
    Refused(Mode, Duration),
}

/// The place of a probe. If it is dropped before its run has a result that counts, another run gets it.
#[derive(Debug)]
pub(super) struct Probe {
    breaker: Arc<Breaker>,
    time: u64,
    settled: bool,
}

impl Mode {
    /// The name in metadata, logs and words.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "halfOpen",
            Self::Open => "open",
        }
    }

    /// In words.
    pub(super) const fn in_words(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half-open",
            Self::Open => "open",
        }
    }

    /// The value in metrics.
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::HalfOpen => 1,
            Self::Open => 2,
        }
    }
}

impl Breaker {
    /// Closed.
    pub(super) fn new(settings: Settings) -> Self {
        let window = match settings.trips {
            Trips::Consecutive(_) => None,
            Trips::Share { window, .. } => Some(Window::new(nanos(window))),
        };
        Self {
            settings,
            origin: Instant::now(),
            mode: AtomicU8::new(Mode::Closed.number()),
            until: AtomicU64::new(0),
            free: AtomicU32::new(0),
            in_a_row: AtomicU32::new(0),
            window,
            rare: Mutex::default(),
        }
    }

    pub(super) fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Acquire) {
            0 => Mode::Closed,
            1 => Mode::HalfOpen,
            _ => Mode::Open,
        }
    }

    /// Whether a run may begin now. Also the mode, if it has changed.
    pub(super) fn admit(self: &Arc<Self>) -> (Admission, Option<Mode>) {
        if self.mode() == Mode::Closed {
            return (Admission::Passes, None);
        }
        let now = self.now();
        if let Some(refused) = self.refusal(now) {
            return (refused, None);
        }
        let mut rare = self.lock();
        let changed = match self.mode() {
            Mode::Closed => return (Admission::Passes, None),
            Mode::Open if self.until.load(Ordering::Relaxed) <= now => {
                rare.times = rare.times.wrapping_add(1);
                rare.succeeded = 0;
                self.free.store(self.settings.probes, Ordering::Relaxed);
                self.set(Mode::HalfOpen);
                Some(Mode::HalfOpen)
            }
            Mode::Open | Mode::HalfOpen => None,
        };
        // Somebody may have been faster.
        if let Some(refused) = self.refusal(now) {
            return (refused, changed);
        }
        self.free.fetch_sub(1, Ordering::Relaxed);
        let probe = Probe { breaker: Arc::clone(self), time: rare.times, settled: false };
        (Admission::Probe(probe), changed)
    }

    /// Whether it refuses a run.
    fn refusal(&self, now: u64) -> Option<Admission> {
        match self.mode() {
            Mode::Open => {
                let left = self.until.load(Ordering::Relaxed).saturating_sub(now);
                (left > 0).then(|| Admission::Refused(Mode::Open, Duration::from_nanos(left)))
            }
            Mode::HalfOpen => {
                let wait = self.settings.open_for.min(PROBING);
                let taken = self.free.load(Ordering::Relaxed) == 0;
                taken.then_some(Admission::Refused(Mode::HalfOpen, wait))
            }
            Mode::Closed => None,
        }
    }

    /// A run that passed while it was closed has succeeded.
    pub(super) fn succeeded(&self) {
        if self.mode() != Mode::Closed {
            return;
        }
        match &self.window {
            Some(window) => window.record(self.now(), false),
            // Read first: a word that all workers write at each success would travel between them.
            None if self.in_a_row.load(Ordering::Relaxed) > 0 => {
                self.in_a_row.store(0, Ordering::Relaxed);
            }
            None => {}
        }
    }

    /// A run that passed while it was closed has failed. The mode, if that has opened it.
    pub(super) fn failed(&self) -> Option<Mode> {
        if self.mode() != Mode::Closed {
            return None;
        }
        let now = self.now();
        match &self.window {
            Some(window) => window.record(now, true),
            None => {
                self.in_a_row.fetch_add(1, Ordering::Relaxed);
            }
        }
        if !self.trips(now) {
            return None;
        }
        let mut rare = self.lock();
        // Somebody may have been faster.
        (self.mode() == Mode::Closed && self.trips(now)).then(|| self.open(&mut rare, now))
    }

    /// Whether what was counted opens it.
    fn trips(&self, now: u64) -> bool {
        match (self.settings.trips, &self.window) {
            (Trips::Consecutive(most), _) => self.in_a_row.load(Ordering::Relaxed) >= most,
            (Trips::Share { share, minimum, .. }, Some(window)) => {
                let counted = window.counted(now);
                let all = counted.succeeded + counted.failed;
                #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53")]
                let failed = counted.failed as f64 >= share * all as f64;
                all >= u64::from(minimum) && failed
            }
            (Trips::Share { .. }, None) => false,
        }
    }

    fn open(&self, rare: &mut Rare, now: u64) -> Mode {
        rare.opened = rare.opened.saturating_add(1);
        let until = now.saturating_add(nanos(self.settings.open_for(rare.opened)));
        self.until.store(until, Ordering::Relaxed);
        self.free.store(0, Ordering::Relaxed);
        self.set(Mode::Open);
        Mode::Open
    }

    fn close(&self, rare: &mut Rare) -> Mode {
        rare.opened = 0;
        self.free.store(0, Ordering::Relaxed);
        self.in_a_row.store(0, Ordering::Relaxed);
        if let Some(window) = &self.window {
            window.clear();
        }
        self.set(Mode::Closed);
        Mode::Closed
    }

    /// For how long it was opened.
    pub(super) fn open_for(&self) -> Duration {
        let opened = self.lock().opened;
        self.settings.open_for(opened)
    }

    /// What it has counted, in words: `closed, 2 of 5 failures in a row`.
    pub(super) fn counted_in_words(&self) -> String {
        match (self.settings.trips, &self.window) {
            (Trips::Consecutive(most), _) => {
                format!("{} of {most} failures in a row", self.in_a_row.load(Ordering::Relaxed))
            }
            (Trips::Share { .. }, window) => {
                let counted = window.as_ref().map(|window| window.counted(self.now()));
                let counted = counted.unwrap_or_default();
                let all = counted.succeeded + counted.failed;
                format!("{} of {all} runs failed", counted.failed)
            }
        }
    }

    fn set(&self, mode: Mode) {
        self.mode.store(mode.number(), Ordering::Release);
    }

    fn now(&self) -> u64 {
        nanos(Instant::now().saturating_duration_since(self.origin))
    }

    fn lock(&self) -> MutexGuard<'_, Rare> {
        self.rare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Probe {
    /// The run has succeeded. The mode, if that has closed the breaker.
    pub(super) fn succeeded(&mut self) -> Option<Mode> {
        self.settled = true;
        let mut rare = self.breaker.lock();
        if !self.counts(&rare) {
            return None;
        }
        rare.succeeded = rare.succeeded.saturating_add(1);
        let all = rare.succeeded >= self.breaker.settings.probes;
        all.then(|| self.breaker.close(&mut rare))
    }

    /// The run has failed. The mode, if that has opened the breaker.
    pub(super) fn failed(&mut self) -> Option<Mode> {
        self.settled = true;
        let mut rare = self.breaker.lock();
        self.counts(&rare).then(|| self.breaker.open(&mut rare, self.breaker.now()))
    }

    /// Whether it is a probe of the present time.
    fn counts(&self, rare: &Rare) -> bool {
        self.breaker.mode() == Mode::HalfOpen && rare.times == self.time
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let rare = self.breaker.lock();
        if self.counts(&rare) {
            self.breaker.free.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
