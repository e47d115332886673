//! What middlewares keep from one request to the next: one state for the process, over all workers and reloads.
//!
//! A state belongs to an entry, by its route and place, or to a name, which several entries share. It lives as long as a
//! configuration in which such an entry stands. An equal entry of the next load gets the same state. One with other settings
//! gets a new one, while requests on the old configuration end with the old one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::language::provider::{Installation, LoadId};
use crate::source::{Diagnostic, Span};

/// The states of one middleware, each made for settings `C`.
pub(super) struct States<C, S>(Mutex<Known<C, S>>);

struct Known<C, S> {
    /// Those that an entry still has.
    states: HashMap<Owner, Vec<(C, Weak<S>)>>,
    /// The load that asked last.
    load: Option<LoadId>,
    /// The names that it has used so far, with the settings and the place of their first use.
    names: HashMap<Arc<str>, (C, Span)>,
    /// How often each place has come so far: Steps of two Flows may have one name.
    places: HashMap<(Arc<str>, Arc<str>), usize>,
}

/// Whose state it is.
#[derive(PartialEq, Eq, Hash)]
enum Owner {
    Name(Arc<str>),
    /// The entry at a place of a route.
    Entry {
        route: Arc<str>,
        entry: Arc<str>,
        nth: usize,
    },
}

impl<C: Clone + PartialEq, S> States<C, S> {
    /// The state of the entry `at` this place, or of `name`, with these settings.
    ///
    /// # Errors
    /// If another entry of the same load gives the name other settings.
    pub(super) fn state(
        &self,
        at: &Installation<'_>,
        name: Option<&Arc<str>>,
        settings: &C,
        make: impl FnOnce() -> S,
    ) -> Result<Arc<S>, Diagnostic> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { states, load, names, places } = &mut *known;
        if *load != Some(at.load) {
            *load = Some(at.load);
            names.clear();
            places.clear();
            states.retain(|_, kept| {
                kept.retain(|(_, state)| state.strong_count() > 0);
                !kept.is_empty()
            });
        }
        let owner = if let Some(name) = name {
            let first = names.entry(Arc::clone(name));
            let (first, place) = first.or_insert_with(|| (settings.clone(), at.span));
            if first != settings {
                return Err(conflict(name, at, *place));
            }
            Owner::Name(Arc::clone(name))
        } else {
            let (route, entry): (Arc<str>, Arc<str>) = (at.route().into(), at.entry.into());
            let nth = places.entry((Arc::clone(&route), Arc::clone(&entry))).or_default();
            *nth = nth.saturating_add(1);
            Owner::Entry { route, entry, nth: *nth }
        };
        let kept = states.entry(owner).or_default();
        let equal = kept.iter().find(|(made_for, _)| made_for == settings);
        if let Some(state) = equal.and_then(|(_, state)| state.upgrade()) {
            return Ok(state);
        }
        let state = Arc::new(make());
        kept.retain(|(_, state)| state.strong_count() > 0);
        kept.push((settings.clone(), Arc::downgrade(&state)));
        Ok(state)
    }
}

fn conflict(name: &str, at: &Installation<'_>, first: Span) -> Diagnostic {
    let message = format!("entries of the name `{name}` share a state, but not their settings");
    Diagnostic::error("conflicting-state", at.place("name"), message)
        .with_related(first, "has other settings")
        .with_help("give both the same settings, or another name")
}

impl<C, S> Default for States<C, S> {
    fn default() -> Self {
        Self(Mutex::new(Known {
            states: HashMap::new(),
            load: None,
            names: HashMap::new(),
            places: HashMap::new(),
        }))
    }
}

impl<C, S> fmt::Debug for States<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("States").finish_non_exhaustive()
    }
}
