//! What the middlewares that keep state do alike, when their entries are checked, installed and asked.

use std::sync::{Arc, Weak};

use super::{EntryHost, entry_host};
use crate::language::outcome::Failure;
use crate::language::provider::{Installation, Phase, Role, Surroundings, WrittenEntry};
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::store::Store;
use crate::source::{Diagnostic, Diagnostics, Node, did_you_mean};

/// Where an entry keeps what it keeps, for comparing: in this process, or in a store.
#[derive(Clone, Debug)]
pub(super) struct Keeper(Option<Weak<Store>>);

impl Keeper {
    /// That of an entry that names this store.
    pub(super) fn of(store: Option<&Arc<Store>>) -> Self {
        Self(store.map(Arc::downgrade))
    }
}

impl PartialEq for Keeper {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Weak::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// The arguments of an entry that are the same for all requests, and what `read` makes of them. Those that `computed` names may
/// be expressions. `None` if one of them is wrong, which is reported.
pub(super) fn settings<'a, T>(
    at: &'a Installation<'_>,
    computed: &[&str],
    read: impl FnOnce(&Value) -> Result<T, Failure>,
    found: &mut Diagnostics,
) -> Option<(&'a Value, T)> {
    let with = at.literals(computed).map_err(|wrong| found.push(wrong)).ok()?;
    let report = |wrong: Failure| {
        // Of a `with` without expressions it was reported when that was prepared.
        if !at.computed.is_empty() {
            let message = wrong.message.as_deref().unwrap_or("`with` is wrong");
            found.push(Diagnostic::error("invalid-with", at.span, message));
        }
    };
    Some((with, read(with).map_err(report).ok()?))
}

/// The store that an entry names, if it names one.
///
/// A definition that is run without a host has no stores, and a rehearsal asks none: what an entry keeps is then its own.
///
/// # Errors
/// If there is none of that name.
pub(super) fn store(at: &Installation<'_>, with: &Value) -> Result<Option<Arc<Store>>, Diagnostic> {
    let named = with.get("store").filter(|named| !named.is_null());
    let (Some(named), Some(host)) = (named, entry_host(at)) else {
        return Ok(None);
    };
    let EntryHost { stores, rehearsed, .. } = host;
    let named = named.as_str().unwrap_or_default();
    if let Some(store) = stores.get(named) {
        return Ok(Some(Arc::clone(store)).filter(|_| !rehearsed));
    }
    let message = format!("there is no store `{named}`");
    let help = did_you_mean(named, stores.names())
        .unwrap_or_else(|| "add it to `stores` of the configuration".to_owned());
    Err(Diagnostic::error("unknown-store", at.place("store"), message).with_help(help))
}

/// Whether an entry acts for whoever asks. It lets a cleanup pass that came upon it in a Flow that it shares with Steps: only in the
/// stack of a cleanup is it meant for one.
pub(super) fn acts_for(cleanup: bool, role: Role) -> bool {
    cleanup || role == Role::Step
}

/// Warns of a `key` that is the same for every request: what that means, and what to write for it.
pub(super) fn check_key(
    entry: WrittenEntry<'_>,
    (message, help): (&str, &str),
    found: &mut Diagnostics,
) {
    let key = entry.argument(Phase::Entry, "key");
    let key = key.filter(|key| key.as_str().is_some_and(|key| !key.contains("{{")));
    if let Some(key) = key {
        found.push(Diagnostic::warning("constant-key", key.span, message).with_help(help));
    }
}

/// Warns of a `wait` that the bound around its entry cuts off.
pub(super) fn check_wait(wait: Option<&Node>, around: Surroundings<'_>, found: &mut Diagnostics) {
    let longest = wait.and_then(|wait| Span::parse(wait.as_str()?));
    let (Some(wait), Some(longest), Some((bound, outer))) = (wait, longest, around.bound) else {
        return;
    };
    if longest.to_duration() < bound || longest == Span::ZERO {
        return;
    }
    let bound = Span::from_duration(bound);
    let message =
        format!("a run may wait {longest} here, but the bound around it fires after {bound}");
    let warning = Diagnostic::warning("idle-wait", wait.span, message);
    let warning = warning.with_related(outer, "the bound around it");
    found.push(warning.with_help("wait for less than the bound, or move this before it"));
}
