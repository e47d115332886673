//! `concurrency-limit`: how many runs of its inner scope go on at once; others wait in turn, or are refused.
//!
//! Each entry has a limit of its own, for the process, or one for each key. A place is given back however its run ends: it
//! is in the entry's state.

mod gradient;
mod keyed;
mod places;
mod settings;

use std::any::Any;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use self::keyed::Keyed;
use self::places::{Admission, Place, Places, Taken, Went};
use self::settings::Settings;
use super::failures::{Verdict, judge};
use super::installing::{self, acts_for};
use super::states::States;
use super::{Own, written};
use crate::language::outcome::Failure;
use crate::language::provider::{
    Arguments, Ascent, Asked, Asker, Asking, Contract, Draws, Entry, EntryState, Installation,
    Middleware, Moment, Pass, Passage, Phase, Prepared, Surroundings, WrittenEntry,
};
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::meaning::concurrency_limit::FULL;
use crate::source::{Diagnostic, Diagnostics, Node};

pub(super) const OWN: Own = Own { make };

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("concurrency-limit.v1.json")));

/// The `concurrency-limit` middleware.
#[derive(Debug)]
struct ConcurrencyLimit {
    states: Arc<States<Settings, Limits>>,
    /// Where this instance stands, unless it is the catalog's.
    installed: Option<Installed>,
}

/// The places of an entry.
#[derive(Debug)]
enum Limits {
    One(Arc<Places>),
    Each(Box<Keyed>),
}

/// An entry.
#[derive(Debug)]
struct Installed {
    limits: Arc<Limits>,
    /// Whether it stands in the stack of a cleanup: elsewhere it lets cleanups pass.
    cleanup: bool,
}

/// What `onEntry` gets.
#[derive(Debug)]
struct LimitArguments {
    settings: Option<Settings>,
    key: Option<Arc<str>>,
}

/// What a run that got no place found.
#[derive(Clone, Copy, Debug)]
struct Refused {
    limit: usize,
    waiting: usize,
    waited: Option<Duration>,
}

fn make(_draws: Draws) -> Arc<dyn Middleware> {
    Arc::new(ConcurrencyLimit { states: Arc::default(), installed: None })
}

impl Limits {
    fn new(settings: Settings) -> Self {
        if settings.keyed {
            Self::Each(Box::new(Keyed::new(settings)))
        } else {
            Self::One(Arc::new(Places::new(&settings)))
        }
    }
}

impl Refused {
    fn of(places: &Places, waited: Option<Duration>) -> Self {
        Self { limit: places.limit(), waiting: places.waiting(), waited }
    }

    /// Emits its failure.
    fn entry(self) -> Entry {
        let Self { limit, waiting, waited } = self;
        let number = |count: usize| Value::from(u32::try_from(count).unwrap_or(u32::MAX));
        let mut details = vec![("limit", number(limit)), ("waiting", number(waiting))];
        let mut message = format!("{limit} at once is the limit");
        if let Some(waited) = waited {
            let waited = Span::from_duration(waited).to_string();
            message = format!("{message}, and no place became free within {waited}");
            details.push(("waited", Value::string(waited)));
        } else if waiting > 0 {
            message = format!("{message}, and {waiting} wait");
        }
        let failure = Failure::error(FULL, message).with_retryable(true);
        Entry::Substitute(failure.with_details(Value::object(details)).into())
    }
}

impl ConcurrencyLimit {
    /// The place of `pass`, if the entry acted. Only one limit for all gives places at once.
    fn taken(&self, pass: Pass) -> Option<(&Arc<Places>, Taken)> {
        match (Taken::of(pass), &*self.installed.as_ref()?.limits) {
            (Some(taken), Limits::One(places)) => Some((places, taken)),
            _ => None,
        }
    }
}

impl Middleware for ConcurrencyLimit {
    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn prepare(&self, phase: Phase, with: &Value) -> Result<Prepared, Failure> {
        if phase != Phase::Entry {
            return Ok(Arc::new(()));
        }
        let key = written::text(with, "key")?;
        // What is installed has read the rest.
        let read = || Settings::read(with, with.get("key").is_some());
        let settings = self.installed.is_none().then(read).transpose()?;
        Ok(Arc::new(LimitArguments { settings, key }))
    }

    fn keeps_state(&self) -> bool {
        true
    }

    fn installed(
        &self,
        at: &Installation<'_>,
        found: &mut Diagnostics,
    ) -> Option<Arc<dyn Middleware>> {
        let read = |with: &Value| {
            let keyed = with.get("key").is_some() || !at.computed.is_empty();
            Settings::read(with, keyed)
        };
        let (_, settings) = installing::settings(at, &["key"], read, found)?;
        let limits = self.states.state(at, None, &settings, || Limits::new(settings));
        let installed = Installed { limits: limits.ok()?, cleanup: at.cleanup };
        let states = Arc::clone(&self.states);
        Some(Arc::new(Self { states, installed: Some(installed) }))
    }

    fn check(&self, entry: WrittenEntry<'_>, found: &mut Diagnostics) {
        let argument = |name| entry.argument(Phase::Entry, name);
        let queue = argument("queue").map(Node::as_number);
        let none = queue.is_none_or(|queue| queue == Some(0.0));
        if let Some(wait) = argument("wait").filter(|_| none) {
            let message = "nothing ever waits here: there is no `queue`";
            let help = "write how many may wait (`queue`), or remove `wait`";
            found.push(Diagnostic::warning("idle-wait", wait.span, message).with_help(help));
        }
    }

    fn review(
        &self,
        entry: WrittenEntry<'_>,
        config: &Prepared,
        around: Surroundings<'_>,
        found: &mut Diagnostics,
    ) {
        let settings = config.downcast_ref::<LimitArguments>().and_then(|with| with.settings);
        let waits = settings.filter(|settings| settings.queue > 0);
        if waits.is_some() {
            installing::check_wait(entry.argument(Phase::Entry, "wait"), around, found);
        }
    }

    fn describe(&self, phase: Phase, arguments: Arguments<'_>) -> Option<String> {
        match (phase, arguments) {
            (Phase::Entry, Arguments::Prepared(with)) => {
                Some(with.downcast_ref::<LimitArguments>()?.settings?.words())
            }
            _ => None,
        }
    }

    fn decides_in_place(&self) -> bool {
        true
    }

    fn admit(&self, with: &Prepared, asker: &Asker<'_>, now: &mut Moment) -> Passage {
        let installed = self.installed.as_ref();
        let acting = installed.filter(|installed| acts_for(installed.cleanup, asker.role));
        let places = match acting.map(|installed| &*installed.limits) {
            None => return Passage::Passes(Pass::default()),
            Some(Limits::One(places)) => match places.take_at_once(now) {
                Some(taken) => return Passage::Passes(taken.into()),
                None => Arc::clone(places),
            },
            Some(Limits::Each(keyed)) => {
                let with = with.downcast_ref::<LimitArguments>();
                keyed.of(with.and_then(|with| with.key.as_deref()).unwrap_or_default())
            }
        };
        Passage::Otherwise(match places.ask() {
            Admission::Place(place) => Asked { wants: Entry::Proceed, own: Some(Box::new(place)) },
            Admission::Queued(waiting) => {
                let since = tokio::time::Instant::now();
                let wants = Entry::Ask(Asking::new(async move {
                    let Some(place) = waiting.place().await else {
                        let refused = Refused::of(&places, Some(since.elapsed()));
                        return Asked { wants: refused.entry(), own: Some(Box::new(refused)) };
                    };
                    Asked { wants: Entry::Proceed, own: Some(Box::new(place)) }
                }));
                Asked { wants, own: None }
            }
            Admission::Full => {
                let refused = Refused::of(&places, None);
                Asked { wants: refused.entry(), own: Some(Box::new(refused)) }
            }
        })
    }

    fn held(&self, _with: &Prepared, pass: Pass) -> Option<Box<dyn Any + Send + Sync>> {
        let (places, taken) = self.taken(pass)?;
        Some(Box::new(places.place(taken)))
    }

    fn settle(&self, pass: Pass) {
        if let Some((places, taken)) = self.taken(pass) {
            places.give_back(taken, Some(Went::Well));
        }
    }

    fn on_success(
        &self,
        state: &mut EntryState,
        _with: &Prepared,
        _value: &Value,
        _asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        if let Some(place) = place(state) {
            place.ended(Went::Well);
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
        if let Some(place) = place(state).filter(|place| place.is_timed()) {
            match judge(None, failure, asker) {
                Verdict::Worked => place.ended(Went::Well),
                Verdict::Failed => place.ended(Went::Badly),
                Verdict::Nothing => {}
            }
        }
        Ok(Ascent::Pass)
    }

    fn decision(&self, state: &EntryState) -> Option<String> {
        let own = state.own.as_ref()?;
        if let Some(place) = own.downcast_ref::<Place>() {
            let (taken, limit) = place.of();
            let waited = place
                .waited
                .map(|waited| format!(" after a wait of {}", Span::from_duration(waited)));
            let waited = waited.unwrap_or_default();
            return Some(format!("lets this run through{waited} ({taken} of {limit} at once)"));
        }
        let Refused { limit, waiting, waited } = own.downcast_ref()?;
        let after =
            waited.map(|waited| format!(" after a wait of {}", Span::from_duration(waited)));
        let after = after.unwrap_or_default();
        Some(format!("refuses this run{after} ({limit} at once, {waiting} wait)"))
    }

    fn metadata(&self, state: &EntryState, member: &str) -> Option<Value> {
        let own = state.own.as_ref()?;
        let place = own.downcast_ref::<Place>();
        let refused = own.downcast_ref::<Refused>();
        match member {
            "limit" => {
                let limit = place.map(|place| place.of().1).or_else(|| Some(refused?.limit))?;
                Some(Value::from(u32::try_from(limit).unwrap_or(u32::MAX)))
            }
            "waited" => {
                let waited = place.and_then(|place| place.waited);
                let waited = waited.or_else(|| refused?.waited)?;
                Some(Value::string(Span::from_duration(waited).to_string()))
            }
            _ => None,
        }
    }
}

fn place(state: &mut EntryState) -> Option<&mut Place> {
    state.own.as_mut()?.downcast_mut()
}

#[cfg(test)]
mod tests;
