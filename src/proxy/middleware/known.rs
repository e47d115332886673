//! What the entries of a middleware keep, from one load to the next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::language::provider::Installation;

/// What the entries of a middleware keep, by route and entry. An entry that a reload leaves as it is keeps it.
#[derive(Debug)]
pub(super) struct Known<T>(Mutex<Places<T>>);

#[derive(Debug)]
struct Places<T> {
    all: HashMap<Place, Vec<Weak<T>>>,
    /// At how many places it is searched for those that ended.
    full: usize,
}

/// A route, and an entry's place in its definition.
type Place = (Arc<str>, Arc<str>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Mutex::new(Places { all: HashMap::new(), full: 64 }))
    }
}

impl<T> Known<T> {
    /// What is known of the entry `at` its place, if that is `alike`; else what is `made` for it.
    pub(super) fn entry(
        &self,
        at: &Installation<'_>,
        alike: impl Fn(&T) -> bool,
        made: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.all.len() >= known.full {
            known.all.retain(|_, all| all.iter().any(|one| one.strong_count() > 0));
            known.full = known.all.len().saturating_mul(2).max(64);
        }
        let place = (Arc::from(at.route()), Arc::from(at.entry));
        let all = known.all.entry(place).or_default();
        all.retain(|one| one.strong_count() > 0);
        // A load that is refused leaves another one behind for a while.
        if let Some(entry) = all.iter().filter_map(Weak::upgrade).find(|one| alike(one)) {
            return entry;
        }
        let entry = Arc::new(made());
        all.push(Arc::downgrade(&entry));
        entry
    }
}
