//! Limits how many similar things are recorded or logged.
//!
//! Of plain requests, a few per second are recorded ([`RateLimiter`]). At thirty thousand requests per second the last
//! hundred successes would be three milliseconds of traffic; spread over seconds they tell more and cost almost
//! nothing.
//!
//! Of a route's failures the first is logged at once, and then one every few seconds, with the number of those in between
//! ([`LogLimiter`]); so are refusals of each reason ([`ReasonLimiter`]). One line tells that an upstream is down; thirty
//! thousand lines per second would be an outage of their own. Where no further one comes to tell the number, a line of
//! its own does, after the same interval ([`tell_held`]) or at the end of the process ([`tell_all_held`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::Level;

use super::aside::is_aside;

/// Admits a burst, then one per interval (the generic cell rate algorithm). Belongs to one worker, so its loads
/// and stores do not race.
#[derive(Debug)]
pub struct RateLimiter {
    origin: Instant,
    /// When the next one is due at a steady rate, in nanoseconds since `origin`.
    due: AtomicU64,
    /// The steady rate's interval, in nanoseconds.
    interval: u64,
    /// How far ahead of the steady rate something may come, in nanoseconds.
    ahead: u64,
}

/// Admits one line per interval, and counts those that it does not admit. If several threads use it, it may admit one more
/// at a time.
#[derive(Debug)]
pub struct LogLimiter {
    kind: Kind,
    list: &'static HeldLines,
    /// Made with the first line.
    paced: OnceLock<Arc<Paced>>,
}

/// Which lines are limited.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    /// What they say.
    line: &'static str,
    level: Level,
    /// What they are about, where there are several limiters of a line: a route, a reason.
    about: Option<Arc<str>>,
}

#[derive(Debug)]
struct Paced {
    pace: RateLimiter,
    kind: Kind,
    /// How many were not admitted since the last one that was.
    held: AtomicU64,
    /// Where it is listed while it holds some.
    list: &'static HeldLines,
    /// Whether it is in that list.
    listed: AtomicBool,
}

/// The limiters that may hold a number that nobody has been told.
#[derive(Debug)]
struct HeldLines {
    limiters: Mutex<Vec<Arc<Paced>>>,
    /// Tells that there is one more.
    more: Notify,
}

/// Those of the process.
static HELD: HeldLines = HeldLines::new();

/// A [`LogLimiter`] for each of a closed list of reasons: many refusals of one reason do not hide another.
#[derive(Debug)]
pub struct ReasonLimiter(Box<[LogLimiter]>);

/// The steady interval of plain requests.
const INTERVAL: Duration = Duration::from_millis(100);

/// How many of them may come at once after a pause.
const BURST: u32 = 32;

/// The interval between logged failures.
pub const QUIET: Duration = Duration::from_secs(10);

/// What a process tells of the lines that it held back.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    kind: Kind,
    untold: u64,
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self::new(BURST, INTERVAL, Instant::now())
    }
}

impl RateLimiter {
    fn new(burst: u32, interval: Duration, origin: Instant) -> Self {
        let ahead = interval.saturating_mul(burst.saturating_sub(1));
        let (interval, ahead) = (nanos(interval), nanos(ahead));
        Self { origin, due: AtomicU64::new(0), interval, ahead }
    }

    /// When the next one is due at a steady rate.
    fn due(&self) -> Instant {
        let due = Duration::from_nanos(self.due.load(Ordering::Relaxed));
        self.origin.checked_add(due).unwrap_or(self.origin)
    }

    /// Whether something that happens at `now` is admitted.
    pub fn admits(&self, now: Instant) -> bool {
        let now = nanos(now.saturating_duration_since(self.origin));
        let due = self.due.load(Ordering::Relaxed);
        if due.saturating_sub(now) > self.ahead {
            return false;
        }
        self.due.store(due.max(now).saturating_add(self.interval), Ordering::Relaxed);
        true
    }
}

impl LogLimiter {
    /// Limits the warning `line`. `about` tells it from other limiters of that line.
    pub const fn new(line: &'static str, about: Option<Arc<str>>) -> Self {
        Self { kind: Kind { line, level: Level::WARN, about }, list: &HELD, paced: OnceLock::new() }
    }

    /// The same for a line that informs.
    pub const fn of_info(line: &'static str, about: Option<Arc<str>>) -> Self {
        Self { kind: Kind { line, level: Level::INFO, about }, list: &HELD, paced: OnceLock::new() }
    }

    /// Whether something that happens at `now` is admitted; if so, how many were not since the last one.
    pub fn admits(&self, now: Instant) -> Option<u64> {
        let paced = self.paced.get_or_init(|| Paced::new(self.kind.clone(), self.list, now));
        if paced.pace.admits(now) {
            return Some(paced.held.swap(0, Ordering::Relaxed));
        }
        paced.hold();
        None
    }
}

impl Paced {
    fn new(kind: Kind, list: &'static HeldLines, now: Instant) -> Arc<Self> {
        let pace = RateLimiter::new(1, QUIET, now);
        let (held, listed) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { pace, kind, held, list, listed })
    }

    /// Counts one that is not admitted.
    fn hold(self: &Arc<Self>) {
        if is_aside() {
            return;
        }
        self.held.fetch_add(1, Ordering::Relaxed);
        // Rare: once for each line that was admitted.
        if !self.listed.swap(true, Ordering::AcqRel) {
            self.list.lock().push(Arc::clone(self));
            self.list.more.notify_one();
        }
    }

    /// What is to be told. Whatever is held from now on is listed anew.
    fn take(&self) -> Option<Told> {
        self.listed.store(false, Ordering::Release);
        let untold = self.held.swap(0, Ordering::AcqRel);
        (untold > 0).then(|| Told { kind: self.kind.clone(), untold })
    }
}

impl HeldLines {
    const fn new() -> Self {
        Self { limiters: Mutex::new(Vec::new()), more: Notify::const_new() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Paced>>> {
        self.limiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is held: `all` of it, or where nothing was admitted for an interval. Also returns when to look again, if
    /// something is left.
    fn take(&self, all: bool, now: Instant) -> (Vec<Told>, Option<Instant>) {
        let mut held = self.lock();
        let due: Vec<_> = held.extract_if(.., |paced| all || paced.pace.due() <= now).collect();
        let next = held.iter().map(|paced| paced.pace.due()).min();
        drop(held);
        (due.iter().filter_map(|paced| paced.take()).collect(), next)
    }

    fn tell(&self, all: bool) -> Option<Instant> {
        const MESSAGE: &str = "More lines of this kind were left out.";
        let (told, next) = self.take(all, Instant::now());
        for Told { kind: Kind { line, level, about }, untold } in told {
            let about = about.as_deref();
            if level == Level::WARN {
                tracing::warn!(line, about, untold, "{MESSAGE}");
            } else {
                tracing::info!(line, about, untold, "{MESSAGE}");
            }
        }
        next
    }

    /// Tells, for ever, what nothing else told.
    async fn keep_telling(&self) {
        loop {
            self.more.notified().await;
            while let Some(next) = self.tell(false) {
                sleep_until(next).await;
            }
        }
    }
}

/// Logs how many lines were not admitted, where none came later that says so. Runs for ever, once in the process.
pub async fn tell_held() {
    HELD.keep_telling().await;
}

/// The same at once, for the end of the process.
pub fn tell_all_held() {
    HELD.tell(true);
}

impl ReasonLimiter {
    /// Limits `line`, which informs, for each of these reasons.
    pub fn new(line: &'static str, reasons: impl IntoIterator<Item = &'static str>) -> Self {
        let limiter = |reason: &'static str| LogLimiter {
            kind: Kind { line, level: Level::INFO, about: Some(reason.into()) },
            list: &HELD,
            paced: OnceLock::new(),
        };
        Self(reasons.into_iter().map(limiter).collect())
    }

    /// Whether one more for the reason with this index is admitted; if so, how many were not since the last one.
    pub fn admits(&self, reason: usize, now: Instant) -> Option<u64> {
        self.0.get(reason)?.admits(now)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::aside::aside;

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_an_even_pace() {
        let pace = RateLimiter::default();
        let admitted = || (0..100).filter(|_| pace.admits(Instant::now())).count();
        assert_eq!(admitted(), 32);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(admitted(), 2);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(admitted(), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn one_reason_does_not_hide_another() {
        let paced = ReasonLimiter::new("It is refused.", ["one", "other"]);
        let admits = |reason| paced.admits(reason, Instant::now());
        assert_eq!((admits(0), admits(0), admits(1), admits(1)), (Some(0), None, Some(0), None));
        assert_eq!(admits(2), None);
        tokio::time::advance(QUIET).await;
        assert_eq!((admits(0), admits(1)), (Some(1), Some(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_at_once_and_then_one_for_all_that_came_meanwhile() {
        let sparse = LogLimiter::new("It failed.", None);
        let admits = || sparse.admits(Instant::now());
        assert_eq!((admits(), admits(), admits()), (Some(0), None, None));
        tokio::time::advance(QUIET.saturating_sub(Duration::from_nanos(1))).await;
        assert_eq!(admits(), None);
        tokio::time::advance(Duration::from_nanos(1)).await;
        assert_eq!((admits(), admits()), (Some(3), None));
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(admits(), Some(1));
    }

    /// A list of its own: the tests of a process run at once.
    fn list() -> &'static HeldLines {
        Box::leak(Box::new(HeldLines::new()))
    }

    fn listed(list: &'static HeldLines, about: &str) -> LogLimiter {
        LogLimiter { list, ..LogLimiter::new("It failed.", Some(about.into())) }
    }

    /// How much is told now of each kind, and after how many seconds there is more.
    fn told(list: &HeldLines, all: bool) -> (Vec<(String, u64)>, Option<u64>) {
        let (told, next) = list.take(all, Instant::now());
        let about = |told: Told| (told.kind.about.unwrap().to_string(), told.untold);
        let told = told.into_iter().map(about).collect();
        (told, next.map(|next| next.duration_since(Instant::now()).as_secs()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_told_once_whoever_tells_it() {
        let list = list();
        let told = |all| told(list, all);
        let (one, other) = (listed(list, "one"), listed(list, "other"));
        let fails = |limiter: &LogLimiter, times: u64| {
            (0..times).filter_map(|_| limiter.admits(Instant::now())).sum::<u64>()
        };
        // Sixty at once.
        assert_eq!(fails(&one, 60), 0);
        assert_eq!(told(false), (vec![], Some(10)));
        tokio::time::advance(QUIET / 2).await;
        assert_eq!(fails(&other, 3), 0);
        tokio::time::advance(QUIET / 2).await;
        assert_eq!(told(false), (vec![("one".into(), 59)], Some(5)));
        // The next line tells it: nothing is left for later.
        tokio::time::advance(QUIET / 2).await;
        assert_eq!(fails(&other, 1), 2);
        assert_eq!(told(false), (vec![], Some(10)));
        tokio::time::advance(QUIET).await;
        assert_eq!(told(false), (vec![], None));
        // What happens aside is no line of the log.
        assert_eq!(aside(|| fails(&one, 5)), 0);
        assert_eq!(told(true), (vec![], None));
        tokio::time::advance(QUIET).await;
        // Both again, and the process ends.
        assert_eq!((fails(&one, 5), fails(&other, 2)), (0, 0));
        drop((one, other));
        let all = (vec![("one".into(), 4), ("other".into(), 1)], None);
        assert_eq!(told(true), all);
        assert_eq!(told(true), (vec![], None));
    }

    #[tokio::test(start_paused = true)]
    async fn who_tells_it_waits_until_it_is_due() {
        let list = list();
        let telling = tokio::spawn(list.keep_telling());
        let limiter = listed(list, "one");
        for _ in 0..3 {
            limiter.admits(Instant::now());
        }
        tokio::time::sleep(QUIET.mul_f64(0.9)).await;
        assert_eq!(limiter.paced.get().unwrap().held.load(Ordering::Relaxed), 2);
        tokio::time::sleep(QUIET.mul_f64(0.2)).await;
        assert_eq!(limiter.paced.get().unwrap().held.load(Ordering::Relaxed), 0);
        assert!(!telling.is_finished());
    }
}
