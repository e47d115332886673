//! `circuit-breaker`: stops calling what keeps failing, and finds out when it works again.
//!
//! Each entry has a state of its own, or shares that of its name. The state lives for the process: over reloads, and for all
//! workers. A run that is interrupted says nothing of what it called; a probe that is interrupted gives its place to another.

mod settings;
mod state;
mod told;
mod window;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use self::settings::Settings;
use self::state::{Admission, Breaker, Mode, Probe};
use self::told::{Gauges, Shown, Told};
use super::failures::{Verdict, judge};
use super::installing::{self, acts_for};
use super::states::States;
use super::{Own, entry_host};
use crate::language::outcome::Failure;
use crate::language::provider::{
    Arguments, Ascent, Asked, Asker, Contract, Draws, Entry, EntryState, Installation, Middleware,
    Moment, Pass, Passage, Phase, Prepared, Role,
};
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::meaning::circuit_breaker::OPEN;
use crate::source::{Diagnostics, Node};

pub(super) const OWN: Own = Own { make };

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("circuit-breaker.v1.json")));

/// The pass of a run that is let through because the breaker is closed.
const COUNTED: Pass = Pass(1);
/// The pass of a run for which the entry does not act.
const PASSED_BY: Pass = Pass(0);

/// The `circuit-breaker` middleware.
#[derive(Debug)]
struct CircuitBreaker {
    shared: Arc<Shared>,
    /// Where this instance stands, unless it is the catalog's.
    installed: Option<Installed>,
}

/// What all instances share.
#[derive(Debug, Default)]
struct Shared {
    states: States<Settings, State>,
    gauges: Gauges,
}

/// A breaker, and who is told of it.
#[derive(Debug)]
struct State {
    breaker: Arc<Breaker>,
    told: Told,
}

/// An entry.
#[derive(Debug)]
struct Installed {
    state: Arc<State>,
    route: Arc<str>,
    entry: Arc<str>,
    /// Whether it stands in the stack of a cleanup: elsewhere it lets cleanups pass.
    cleanup: bool,
    _shown: Option<Shown>,
}

/// What a run that was not let through found.
#[derive(Debug)]
struct Refused(Mode, Duration);

fn make(_draws: Draws) -> Arc<dyn Middleware> {
    Arc::new(CircuitBreaker { shared: Arc::default(), installed: None })
}

impl Installed {
    fn changed(&self, mode: Option<Mode>) {
        if let Some(mode) = mode {
            let State { breaker, told } = &*self.state;
            told.changed((&self.route, &self.entry), mode, breaker.open_for());
        }
    }
}

impl Refused {
    fn failure(&self) -> Failure {
        let Self(mode, wait) = self;
        // A thousandth of a second is what a reader needs; rounded up, it is over by then.
        let millis = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let wait = Span::from_duration(Duration::from_millis(millis)).to_string();
        let message = match mode {
            Mode::HalfOpen => "the circuit breaker is half-open, and all its probes are under way",
            _ => "the circuit breaker is open",
        };
        let failure = Failure::error(OPEN, format!("{message}: ask again in {wait}"));
        let details = Value::object([
            ("state", Value::from(mode.as_str())),
            ("retryAfter", Value::string(wait)),
        ]);
        failure.with_retryable(true).with_details(details)
    }
}

impl CircuitBreaker {
    /// The state, if it acts for whoever asks.
    fn acting(&self, role: Role) -> Option<&Installed> {
        self.installed.as_ref().filter(|installed| acts_for(installed.cleanup, role))
    }
}

impl Middleware for CircuitBreaker {
    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn prepare(&self, phase: Phase, with: &Value) -> Result<Prepared, Failure> {
        match phase {
            Phase::Entry => Ok(Arc::new(Settings::read(with)?)),
            _ => Ok(Arc::new(())),
        }
    }

    fn keeps_state(&self) -> bool {
        true
    }

    fn installed(
        &self,
        at: &Installation<'_>,
        found: &mut Diagnostics,
    ) -> Option<Arc<dyn Middleware>> {
        let (_, settings) = installing::settings(at, &[], Settings::read, found)?;
        let (route, entry): (Arc<str>, Arc<str>) = (at.route().into(), at.entry.into());
        let make = || {
            let about = settings.name.clone().unwrap_or_else(|| format!("{route} {entry}").into());
            let breaker = Arc::new(Breaker::new(settings.clone()));
            State { breaker, told: Told::new(&about) }
        };
        let state = self.shared.states.state(at, settings.name.as_ref(), &settings, make);
        let state = state.map_err(|wrong| found.push(wrong)).ok()?;
        let shown = entry_host(at).map(|host| {
            let place = (Arc::clone(&route), Arc::clone(&entry));
            let shown = self.shared.gauges.show(at.load, place, &state.breaker, &host.metrics);
            state.told.shows(&shown);
            shown
        });
        let installed = Installed { state, route, entry, cleanup: at.cleanup, _shown: shown };
        Some(Arc::new(Self { shared: Arc::clone(&self.shared), installed: Some(installed) }))
    }

    fn patterns<'n>(&self, phase: Phase, with: &'n Node) -> Vec<&'n Node> {
        let codes = with.get("failures").filter(|_| phase == Phase::Entry);
        let codes = codes.and_then(|failures| failures.get("codes")?.as_array());
        codes.into_iter().flatten().collect()
    }

    fn describe(&self, phase: Phase, arguments: Arguments<'_>) -> Option<String> {
        match (phase, arguments) {
            (Phase::Entry, Arguments::Prepared(with)) => {
                Some(with.downcast_ref::<Settings>()?.words())
            }
            _ => None,
        }
    }

    fn decides_in_place(&self) -> bool {
        true
    }

    fn admit(&self, _with: &Prepared, asker: &Asker<'_>, _now: &mut Moment) -> Passage {
        let Some(installed) = self.acting(asker.role) else {
            return Passage::Passes(PASSED_BY);
        };
        let breaker = &installed.state.breaker;
        if breaker.mode() == Mode::Closed {
            return Passage::Passes(COUNTED);
        }
        let (admission, changed) = breaker.admit();
        installed.changed(changed);
        Passage::Otherwise(match admission {
            Admission::Passes => return Passage::Passes(COUNTED),
            Admission::Probe(probe) => Asked { wants: Entry::Proceed, own: Some(Box::new(probe)) },
            Admission::Refused(mode, wait) => {
                let refused = Refused(mode, wait);
                let wants = Entry::Substitute(refused.failure().into());
                Asked { wants, own: Some(Box::new(refused)) }
            }
        })
    }

    fn settle(&self, pass: Pass) {
        if let Some(installed) = self.installed.as_ref().filter(|_| pass == COUNTED) {
            installed.state.breaker.succeeded();
        }
    }

    fn on_success(
        &self,
        state: &mut EntryState,
        _with: &Prepared,
        _value: &Value,
        asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        if let Some(installed) = self.acting(asker.role) {
            match probe(state) {
                None => installed.state.breaker.succeeded(),
                Some(probe) => installed.changed(probe.succeeded()),
            }
        }
        Ok(Ascent::Pass)
    }

    fn on_failure(
        &self,
        state: &mut EntryState,
        _with: &Prepared,
        failure: &Arc<Failure>,
        asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        let Some(installed) = self.acting(asker.role) else {
            return Ok(Ascent::Pass);
        };
        let breaker = &installed.state.breaker;
        let verdict = judge(breaker.settings.failures.as_ref(), failure, asker);
        let changed = match (verdict, probe(state)) {
            (Verdict::Worked, None) => {
                breaker.succeeded();
                None
            }
            (Verdict::Worked, Some(probe)) => probe.succeeded(),
            (Verdict::Failed, None) => breaker.failed(),
            (Verdict::Failed, Some(probe)) => probe.failed(),
            // A probe gives its place back.
            (Verdict::Nothing, _) => None,
        };
        installed.changed(changed);
        Ok(Ascent::Pass)
    }

    fn decision(&self, state: &EntryState) -> Option<String> {
        let breaker = &self.installed.as_ref()?.state.breaker;
        let own = state.own.as_ref();
        if own.is_some_and(|own| own.is::<Probe>()) {
            let probes = breaker.settings.probes;
            let plural = if probes == 1 { "" } else { "s" };
            return Some(format!("half-open: lets this run through ({probes} probe{plural})"));
        }
        Some(match own.and_then(|own| own.downcast_ref::<Refused>()) {
            None => format!("closed: lets this run pass ({})", breaker.counted_in_words()),
            Some(Refused(mode, wait)) => {
                let wait = Span::from_duration(*wait);
                format!("{}: refuses this run (for {wait})", mode.in_words())
            }
        })
    }

    fn metadata(&self, state: &EntryState, member: &str) -> Option<Value> {
        let own = state.own.as_ref();
        let mode = if own.is_some_and(|own| own.is::<Probe>()) {
            Mode::HalfOpen
        } else {
            own.and_then(|own| own.downcast_ref::<Refused>()).map_or(Mode::Closed, |found| found.0)
        };
        (member == "state").then(|| Value::from(mode.as_str()))
    }
}

fn probe(state: &mut EntryState) -> Option<&mut Probe> {
    state.own.as_mut()?.downcast_mut()
}

#[cfg(test)]
mod tests;
