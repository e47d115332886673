//! What literal `with`s were made into, each once.
//!
//! A middleware makes of a literal `with` what depends on the phase and the value alone, so one that was made
//! serves every entry that writes the same. Ten thousand routes with one policy then hold one.

use std::collections::HashMap;

use crate::language::provider::{Middleware, Phase, Prepared};
use crate::language::value::Value;

/// What the definitions of one configuration were prepared with so far.
#[derive(Debug, Default)]
pub struct Known(HashMap<Key, (Value, Prepared)>);

/// The middleware's URI, the phase, and the value as compact JSON.
type Key = (Box<str>, Phase, Box<str>);

impl Known {
    /// Under what a `with` of `middleware` is known.
    pub(super) fn key(middleware: &dyn Middleware, phase: Phase, value: &Value) -> Key {
        let uri = middleware.contract().uri.as_str();
        (uri.into(), phase, value.to_string().into())
    }

    /// The value and what was made of it.
    pub(super) fn get(&self, key: &Key) -> Option<(Value, Prepared)> {
        self.0.get(key).cloned()
    }

    /// Keeps them for those that come after.
    pub(super) fn keep(&mut self, key: Key, value: &Value, prepared: &Prepared) {
        self.0.insert(key, (value.clone(), Prepared::clone(prepared)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Strictness, compile_beside};
    use super::*;
    use crate::language::plan::{Action, Plan, With};
    use crate::language::provider::Catalog;
    use crate::source::{Format, Sources};

    fn timeout(duration: &str, known: &mut Known) -> Arc<Plan> {
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
        compile_beside(&node, &catalog, Strictness::Load, known).unwrap().0
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
        let mut known = Known::default();
        let [one, same, other] =
            ["PT1S", "PT1S", "PT2S"].map(|duration| prepared(&timeout(duration, &mut known)));
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &other));
        let alone = prepared(&timeout("PT1S", &mut Known::default()));
        assert!(!Arc::ptr_eq(&one, &alone));
    }
}
