//! Which names of configurations are in use, so that the series of others end.
//!
//! A name is in use as long as somebody holds its counters: a configuration, or a request that began with one. When nobody
//! does any more, its series have had their last increment. They are shown once more, so that it is seen, and then removed.
//! A name that comes back begins at zero, as after a restart.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A label whose values are names of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Label {
    Route,
    Upstream,
    Listener,
    Endpoint,
    Store,
}

/// The names in use.
#[derive(Debug, Default)]
pub(super) struct LiveNames {
    /// How many handles there are of each.
    held: Mutex<Held>,
    /// Whether one has ended whose series are still there.
    ended: AtomicBool,
    /// Whether a configuration was loaded since then.
    reloaded: AtomicBool,
}

type Held = HashMap<(Label, Arc<str>), usize>;

/// The names in use at one moment.
#[derive(Debug)]
pub(super) struct HeldNames<'a>(MutexGuard<'a, Held>);

/// Holds a name until it is dropped.
#[derive(Debug)]
pub(super) struct NameGuard {
    names: Arc<LiveNames>,
    label: Label,
    name: Arc<str>,
}

impl Label {
    const ALL: [Self; 5] =
        [Self::Route, Self::Upstream, Self::Listener, Self::Endpoint, Self::Store];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Upstream => "upstream",
            Self::Listener => "listener",
            Self::Endpoint => "endpoint",
            Self::Store => "store",
        }
    }
}

impl LiveNames {
    /// Holds `name`.
    pub(super) fn hold(self: &Arc<Self>, label: Label, name: &str) -> NameGuard {
        let name: Arc<str> = name.into();
        let mut held = self.lock();
        let count = held.entry((label, Arc::clone(&name))).or_default();
        *count = count.saturating_add(1);
        NameGuard { names: Arc::clone(self), label, name }
    }

    /// Whether series that have ended were shown and may go.
    pub(super) fn take_shown(&self) -> bool {
        self.reloaded.store(false, Ordering::Relaxed);
        self.ended.swap(false, Ordering::Relaxed)
    }

    /// The same after a reload: without anybody who reads them, series go with the second reload after their end.
    pub(super) fn take_unread(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
            && self.reloaded.swap(true, Ordering::Relaxed)
            && self.take_shown()
    }

    /// The names in use. Nobody can take up another until this is dropped.
    pub(super) fn held(&self) -> HeldNames<'_> {
        HeldNames(self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldNames<'_> {
    /// Whether a series with these labels is in use.
    pub(super) fn keep<'l>(&self, labels: impl Iterator<Item = (&'l str, &'l str)>) -> bool {
        labels
            .filter_map(|(label, name)| {
                let label = Label::ALL.iter().find(|known| known.as_str() == label)?;
                Some((*label, Arc::from(name)))
            })
            .all(|named| self.0.contains_key(&named))
    }
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        let mut held = self.names.lock();
        let named = (self.label, Arc::clone(&self.name));
        if let Some(count) = held.get_mut(&named) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                held.remove(&named);
                self.names.ended.store(true, Ordering::Relaxed);
            }
        }
    }
}
