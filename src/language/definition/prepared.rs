//! Literal `with`s, each prepared only once.
//!
//! What a middleware prepares from a literal `with` depends on the phase and the value alone. So entries that
//! write the same can share it: ten thousand routes with one policy then hold it once.
//!
//! They may also share their text: a stack has one place in the file and is used by many routes. What is useless in one
//! route only is no mistake in the stack.

use std::collections::{HashMap, HashSet};

use crate::language::provider::{LoadId, Middleware, Phase, Prepared};
use crate::language::schema::Room;
use crate::language::value::Value;
use crate::source::{Diagnostics, Span};

/// What is known so far of the definitions of one configuration.
#[derive(Debug)]
pub struct PreparedCache {
    load: LoadId,
    prepared: HashMap<Key, (Value, Prepared)>,
    /// The warnings that do not hold everywhere, with their places.
    fine: HashSet<(&'static str, Span)>,
    /// What the schemas of all of them may cost.
    room: Room,
}

/// The middleware's URI, the phase and the value as compact JSON, each on a line.
type Key = Vec<u8>;

impl Default for PreparedCache {
    fn default() -> Self {
        let (prepared, fine) = (HashMap::new(), HashSet::new());
        Self { load: LoadId::next(), prepared, fine, room: Room::default() }
    }
}

impl PreparedCache {
    /// The load to which all these definitions belong.
    pub(super) const fn load(&self) -> LoadId {
        self.load
    }

    /// The key of a `with` of `middleware`.
    pub(super) fn key(middleware: &dyn Middleware, phase: Phase, value: &Value) -> Key {
        let uri = middleware.contract().uri.as_str();
        let mut key = [uri, phase.key(), ""].join("\n").into_bytes();
        // Writing to a vector cannot fail, and a value is JSON.
        serde_json::to_writer(&mut key, value).ok();
        key
    }

    /// The value, and what was prepared from it.
    pub(super) fn get(&self, key: &[u8]) -> Option<(Value, Prepared)> {
        self.prepared.get(key).cloned()
    }

    /// Keeps them for later entries.
    pub(super) fn insert(&mut self, key: Key, value: &Value, prepared: &Prepared) {
        self.prepared.insert(key, (value.clone(), Prepared::clone(prepared)));
    }

    /// What is left for schemas.
    pub(super) const fn room(&self) -> &Room {
        &self.room
    }

    /// Notes what is right in one of the definitions, though it may be useless in others.
    pub(super) fn note_fine(&mut self, fine: HashSet<(&'static str, Span)>) {
        self.fine.extend(fine);
    }

    /// The diagnostics of all definitions, without those that do not hold in each that shares their place.
    #[must_use]
    pub fn settle(&self, diagnostics: Diagnostics) -> Diagnostics {
        let Diagnostics(mut all) = diagnostics;
        all.retain(|found| !self.fine.contains(&(found.code, found.span)));
        Diagnostics(all)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Strictness, compile_with_cache};
    use super::*;
    use crate::language::plan::{Action, Plan, With};
    use crate::language::provider::Catalog;
    use crate::source::{Format, Sources};

    fn timeout(duration: &str, cache: &mut PreparedCache) -> Arc<Plan> {
        let text = format!(
            r#"{{ "$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": {{
                "a": {{ "action": "Call", "call": {{ "flow": "f" }}, "next": "b", "middleware": [
                    {{ "provider": "mwl:provider.middleware/mwl/timeout/v1",
                       "onEntry": {{ "with": {{ "duration": "{duration}" }} }} }}] }},
                "b": {{ "action": "Return" }} }},
              "flows": {{ "f": {{ "entrypoint": "c", "steps": {{ "c": {{ "action": "Return" }} }} }} }} }}"#
        );
        let node = Sources::default().parse("f.json", &text, Format::Json).unwrap();
        let catalog = Catalog::spec_defined(None);
        compile_with_cache(&node, &catalog, Strictness::Load, cache).unwrap().0
    }

    fn prepared(plan: &Plan) -> Prepared {
        let root = &plan.flows()[0];
        let Action::Call(step) = &root.step(root.entrypoint).action else { panic!("{root:?}") };
        match &step.stack[0].phase(Phase::Entry).with {
            With::Literal { prepared: Ok(prepared), .. } => Prepared::clone(prepared),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn equal_entries_of_two_definitions_share_what_was_prepared() {
        let mut cache = PreparedCache::default();
        let [one, same, other] =
            ["PT1S", "PT1S", "PT2S"].map(|duration| prepared(&timeout(duration, &mut cache)));
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &other));
        let alone = prepared(&timeout("PT1S", &mut PreparedCache::default()));
        assert!(!Arc::ptr_eq(&one, &alone));
    }
}
