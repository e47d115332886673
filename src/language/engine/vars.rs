//! A frame's variables (MWL, "The `vars` model").
//!
//! They are shared until they are written. So the snapshot that a re-running entry takes at its `onEntry`
//! costs only a reference count, and restoring it is an assignment.

use std::sync::Arc;

use super::template::Captured;
use crate::language::value::{Map, Missing, Value};

/// One flat namespace: a name has one value at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Vars(Option<Arc<Map>>);

impl Vars {
    /// Variables with these initial values.
    pub(super) fn new(map: Map) -> Self {
        Self((!map.is_empty()).then(|| Arc::new(map)))
    }

    /// Binds `bindings`. All of them were evaluated before the block takes effect.
    pub(super) fn apply(&mut self, bindings: Captured) {
        if !bindings.is_empty() {
            Arc::make_mut(self.0.get_or_insert_default()).extend(bindings);
        }
    }

    /// The value at `path` below the `vars` root.
    pub(super) fn at(&self, path: &[Arc<str>]) -> Result<Value, Missing> {
        match (&self.0, path.split_first()) {
            (_, None) => Ok(self.to_value()),
            (None, _) => Err(Missing::MEMBER),
            (Some(map), Some((name, rest))) => {
                let value = map.get(name.as_ref()).ok_or(Missing::MEMBER)?;
                value.at(rest).map_err(Missing::below)
            }
        }
    }

    /// As the `vars` root shows them.
    pub(super) fn to_value(&self) -> Value {
        self.0.as_ref().map_or_else(Value::empty_object, |map| Value::Object(Arc::clone(map)))
    }
}
