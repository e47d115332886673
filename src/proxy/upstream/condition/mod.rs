//! Whether an endpoint is well: what attempts, active checks and operators have found.
//!
//! All workers share a [`Condition`]. A request reads one atomic number of it; whatever changes it takes a lock, which
//! no request does as long as its attempts succeed. The states themselves are in `machine`.

mod machine;
mod told;

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use self::machine::{Change, Machine, Out};
use self::told::Told;
use crate::proxy::settings::health::{Ejection, Health};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::switches::SwitchKind;

/// How long the share of an endpoint that has become well again grows.
pub(crate) const SLOW_START: Duration = Duration::from_secs(10);
/// Its share when it returns.
const FIRST_SHARE: f64 = 0.1;

/// [`Condition::out`] of an endpoint that is well.
const WELL: u64 = 0;
/// The same of one that nothing but an event brings back.
const OPEN: u64 = u64::MAX;

/// The endpoints of one upstream, which may not all be ejected.
#[derive(Debug)]
pub(crate) struct EndpointGroup {
    /// The upstream's name.
    upstream: Arc<str>,
    metrics: Arc<Metrics>,
    rules: Rules,
    /// Locked before a member's state.
    members: Mutex<Vec<Weak<Condition>>>,
    /// Times are nanoseconds since then.
    origin: Instant,
    /// How many of them are out.
    out: AtomicUsize,
    /// When the last one that has returned gets its whole share again; 0 if none was ever out.
    whole: AtomicU64,
    /// Tells that an ejection has begun, which somebody should end in time.
    pub(crate) ejected: Notify,
}

/// What the states of an endpoint depend on.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// Whether there are active checks.
    checks: bool,
    healthy_after: u32,
    unhealthy_after: u32,
    ejection: Option<Ejection>,
}

/// Whether one endpoint is well.
#[derive(Debug)]
pub(crate) struct Condition {
    group: Arc<EndpointGroup>,
    /// That of its group, so that a report finds it here.
    ejection: Option<Ejection>,
    /// Times are nanoseconds since then.
    origin: Instant,
    /// Until when it is out; [`WELL`] or [`OPEN`].
    out: AtomicU64,
    /// When it last became well again, or will; 0 if it never was out.
    returned: AtomicU64,
    /// How many attempts have failed in a row.
    failures: AtomicU32,
    state: Mutex<State>,
    /// Its name, its metrics, and the pace of its lines. Locked after `state`.
    told: Mutex<Told>,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    /// When it last changed.
    since: Instant,
    /// What the last bad check found.
    found: Option<Arc<str>>,
    /// How many checks were good, and how many bad.
    checks: (u64, u64),
}

/// What an attempt says of its endpoint. An attempt that failed for reasons of our own, or of the client's, says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    /// The endpoint answered, and its answer was no failure of a server.
    Success,
    /// It failed.
    Failure(Cause),
}

/// How attempts failed: the label `cause`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// There was no connection.
    ConnectionFailed,
    /// The connection was lost.
    ConnectionClosed,
    /// There was no response in time.
    ResponseTimeout,
    /// What arrived was no response.
    ProtocolError,
    /// The response had a status from 500, or one of gRPC's for a server that fails.
    Status,
}

/// The state of an endpoint, for operators.
#[derive(Clone, Debug)]
pub(crate) struct ConditionState {
    /// Whether it gets attempts.
    pub(crate) standing: Standing,
    /// For how long.
    pub(crate) since: Duration,
    /// How much of its usual share it gets, from 0.1 to 1.
    pub(crate) share: f64,
    /// How many attempts have failed in a row.
    pub(crate) failures: u32,
    /// How often it was ejected in succession.
    pub(crate) ejections: u32,
    /// What the last check found, if it was bad.
    pub(crate) found: Option<Arc<str>>,
    /// How long it is still ejected, and why.
    pub(crate) ejected: Option<(Duration, Cause)>,
    /// How many checks were good, and how many bad.
    pub(crate) checks: (u64, u64),
}

/// Whether an endpoint gets attempts; if several things keep it out, the one that says most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It does.
    Up,
    /// An operator has drained it.
    Drained,
    /// Checks say that it is unhealthy.
    Unhealthy,
    /// It is ejected for a time.
    Ejected,
}

impl Cause {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::ConnectionFailed,
        Self::ConnectionClosed,
        Self::ResponseTimeout,
        Self::ProtocolError,
        Self::Status,
    ];

    /// The label's value.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ConnectionFailed => "connectionFailed",
            Self::ConnectionClosed => "connectionClosed",
            Self::ResponseTimeout => "responseTimeout",
            Self::ProtocolError => "protocolError",
            Self::Status => "status",
        }
    }
}

impl Standing {
    /// The name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Drained => "drained",
            Self::Unhealthy => "unhealthy",
            Self::Ejected => "ejected",
        }
    }
}

impl EndpointGroup {
    /// The endpoints of the upstream with this name. Without `ejection`, no number of failed attempts takes one out.
    pub(crate) fn new(
        upstream: Arc<str>,
        health: Option<&Health>,
        ejection: Option<Ejection>,
        metrics: &Arc<Metrics>,
    ) -> Arc<Self> {
        let (healthy_after, unhealthy_after) =
            health.map_or((1, 1), |health| (health.healthy_after, health.unhealthy_after));
        let rules = Rules { checks: health.is_some(), healthy_after, unhealthy_after, ejection };
        Arc::new(Self {
            upstream,
            metrics: Arc::clone(metrics),
            rules,
            members: Mutex::default(),
            origin: Instant::now(),
            out: AtomicUsize::new(0),
            whole: AtomicU64::new(0),
            ejected: Notify::new(),
        })
    }

    /// The name of the switch that keeps an endpoint drained, also when the configuration changes.
    pub(crate) fn switch(&self, endpoint: &str) -> Arc<str> {
        format!("{}/{endpoint}", self.upstream).into()
    }

    /// Whether all of its endpoints are well and get their usual shares, as nearly always.
    pub(crate) fn is_steady(&self) -> bool {
        let whole = self.whole.load(Ordering::Relaxed);
        self.out.load(Ordering::Relaxed) == 0
            && (whole == 0 || nanos(self.origin, Instant::now()) >= whole)
    }

    /// One of its endpoints leaves or returns: `before` and `after` are its [`Condition::out`]. `returned` is when it last
    /// became well again, or will.
    fn note(&self, (before, after): (u64, u64), returned: Option<Instant>) {
        if let Some(whole) = returned.and_then(|at| at.checked_add(SLOW_START)) {
            self.whole.fetch_max(nanos(self.origin, whole), Ordering::Relaxed);
        }
        match (before == WELL, after == WELL) {
            (true, false) => self.out.fetch_add(1, Ordering::Relaxed),
            (false, true) => self.out.fetch_sub(1, Ordering::Relaxed),
            (true, true) | (false, false) => return,
        };
    }

    /// Ends the ejections whose time is up. Returns when the next one is due.
    pub(crate) fn settle(&self, now: Instant) -> Option<Instant> {
        let members: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        members.iter().filter_map(|member| member.settle(now)).min()
    }

    /// Whether one more of its endpoints may be ejected: as many as `maxShare` says and at least one, but never the last
    /// one that is well.
    fn may_eject(members: &[Weak<Condition>], ejection: Ejection, now: Instant) -> bool {
        let members: Vec<_> = members.iter().filter_map(Weak::upgrade).collect();
        let ejected = members.iter().filter(|member| member.is_ejected(now)).count();
        let well = members.iter().filter(|member| member.is_well_at(now)).count();
        ejected < ejection.max_share.of(members.len()).max(1) && well > 1
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Condition>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Condition {
    /// The condition of an endpoint of `group`. It is well until something says otherwise, unless an operator has drained
    /// an endpoint of this name.
    pub(crate) fn new(endpoint: &Arc<str>, group: &Arc<EndpointGroup>) -> Arc<Self> {
        let (machine, origin) = (Machine::new(group.rules), Instant::now());
        let state = State { machine, since: origin, found: None, checks: (0, 0) };
        let condition = Arc::new(Self {
            group: Arc::clone(group),
            ejection: group.rules.ejection,
            origin,
            out: AtomicU64::new(WELL),
            returned: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            state: Mutex::new(state),
            told: Mutex::new(Told::new(endpoint, group)),
        });
        let switches = group.metrics.switches();
        if switches.of(SwitchKind::Drain, &group.switch(endpoint)).is_set() {
            condition.drain(origin);
        }
        let mut members = group.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(&condition));
        condition
    }

    /// Its endpoint is called this from now on.
    pub(crate) fn rename(&self, endpoint: &Arc<str>) {
        let up = self.is_well();
        let mut told = self.told();
        *told = Told::new(endpoint, &self.group);
        told.set_up(up);
    }

    /// Whether it is to get attempts.
    pub(crate) fn is_well(&self) -> bool {
        self.out.load(Ordering::Relaxed) == WELL || self.is_well_at(Instant::now())
    }

    /// The same at this time.
    pub(crate) fn is_well_at(&self, now: Instant) -> bool {
        match self.out.load(Ordering::Relaxed) {
            WELL => true,
            OPEN => false,
            until => self.nanos(now) >= until,
        }
    }

    /// Whether an operator has drained it.
    pub(crate) fn is_drained(&self) -> bool {
        !self.is_well() && self.lock().machine.is_drained()
    }

    /// How much of its usual share of attempts it gets, from 0.1 to 1: one that has become well again begins slowly.
    pub(crate) fn share(&self, now: Instant) -> f64 {
        let returned = self.returned.load(Ordering::Relaxed);
        if returned == 0 {
            return 1.0;
        }
        let since = Duration::from_nanos(self.nanos(now).saturating_sub(returned));
        (since.as_secs_f64() / SLOW_START.as_secs_f64()).clamp(FIRST_SHARE, 1.0)
    }

    /// An attempt has succeeded.
    pub(crate) fn succeeded(&self) {
        // A store would take the number's line from the other workers.
        if self.ejection.is_some() && self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Tells how an attempt ended. While the endpoint is out, attempts that began before say nothing new.
    pub(crate) fn report(&self, reported: Reported, now: Instant) {
        let Some(ejection) = self.ejection else {
            return;
        };
        match reported {
            Reported::Success => self.succeeded(),
            Reported::Failure(cause) => {
                if !self.is_well_at(now) {
                    return;
                }
                let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                if failures >= ejection.consecutive_failures {
                    self.eject(ejection, cause, now);
                }
            }
        }
    }

    /// An active check has ended: well, or with what it found instead.
    pub(crate) fn checked(&self, result: Result<(), Arc<str>>, now: Instant) {
        let good = result.is_ok();
        self.change(now, |state| {
            let (passed, failed) = &mut state.checks;
            let count = if good { passed } else { failed };
            *count = count.saturating_add(1);
            state.found = result.err();
            state.machine.checked(good, now)
        });
    }

    /// Takes it out, until it is restored.
    pub(crate) fn drain(&self, now: Instant) {
        self.change(now, |state| state.machine.drain());
    }

    /// Ends a drain.
    pub(crate) fn restore(&self, now: Instant) {
        self.change(now, |state| state.machine.restore(now));
    }

    /// Its state, for operators.
    pub(crate) fn state(&self, now: Instant) -> ConditionState {
        self.settle(now);
        let state = self.lock();
        let State { machine, since, found, checks } = &*state;
        let standing = match machine.ejected() {
            _ if machine.is_drained() => Standing::Drained,
            _ if machine.is_unhealthy() => Standing::Unhealthy,
            Some(_) => Standing::Ejected,
            None => Standing::Up,
        };
        ConditionState {
            standing,
            since: now.duration_since(*since),
            share: self.share(now),
            failures: self.failures.load(Ordering::Relaxed),
            ejections: machine.ejections(),
            found: found.clone(),
            ejected: machine.ejected().map(|out| (out.until.duration_since(now), out.cause)),
            checks: *checks,
        }
    }

    /// Ends an ejection whose time is up. Returns when the one that it is in ends.
    fn settle(&self, now: Instant) -> Option<Instant> {
        self.change(now, |_| None);
        self.lock().machine.ejected().map(|ejected| ejected.until)
    }

    fn eject(&self, ejection: Ejection, cause: Cause, now: Instant) {
        // Held meanwhile, so that two endpoints are not ejected where only one may be.
        let members = self.group.lock();
        self.failures.store(0, Ordering::Relaxed);
        if EndpointGroup::may_eject(&members, ejection, now) {
            self.change(now, |state| state.machine.eject(cause, now));
            self.group.ejected.notify_one();
        } else {
            self.told().spared(cause, now);
        }
    }

    fn is_ejected(&self, now: Instant) -> bool {
        self.lock().machine.ejected().is_some_and(|ejected| ejected.until > now)
    }

    /// Ends an ejection whose time is up, then makes a `change`, and tells of both.
    fn change(&self, now: Instant, change: impl FnOnce(&mut State) -> Option<Change>) {
        let mut state = self.lock();
        let settled = state.machine.settle(now);
        let changed = change(&mut state);
        if settled.or(changed).is_none() {
            return;
        }
        state.since = now;
        let out = match state.machine.out() {
            Out::No => WELL,
            Out::Until(until) => self.nanos(until).clamp(WELL + 1, OPEN - 1),
            Out::Open => OPEN,
        };
        let returned = state.machine.returned().map_or(0, |at| self.nanos(at).max(1));
        self.returned.store(returned, Ordering::Relaxed);
        let before = self.out.swap(out, Ordering::Relaxed);
        self.group.note((before, out), state.machine.returned());
        let told = self.told();
        for change in settled.into_iter().chain(changed) {
            told.tell(change, state.found.as_deref(), now);
        }
        told.set_up(out == WELL);
    }

    fn nanos(&self, at: Instant) -> u64 {
        nanos(self.origin, at)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        self.group.note((*self.out.get_mut(), WELL), None);
    }
}

/// From `origin` to `at`, less than [`OPEN`].
fn nanos(origin: Instant, at: Instant) -> u64 {
    let since = at.saturating_duration_since(origin);
    u64::try_from(since.as_nanos()).unwrap_or(OPEN - 1)
}

#[cfg(test)]
mod tests;
