//! An object of the data model, plain or the host's, as a CEL value.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use cel::ExecutionError;
use cel::common::traits::{self, Container, Indexer, Iterable, Sizer, Zeroer};
use cel::common::types::{CelBool, CelDouble, CelInt, CelString, CelUInt, MAP_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};

use super::super::equality;
use super::{Iter, no_overload, size, text_of, wrap};
use crate::language::value::{Map, Value};

/// An object of the data model, plain or the host's.
#[derive(Debug)]
pub(in super::super) struct Object {
    value: Value,
    /// All members. Kept once something asks for more than one, because a host makes them anew each time.
    members: OnceLock<Arc<Map>>,
    /// The member names as CEL values. Made when something iterates.
    wrapped: OnceLock<Vec<CelString<'static>>>,
}

impl Object {
    pub(in super::super) const fn shared(&self) -> &Value {
        &self.value
    }

    pub(super) const fn of(value: Value) -> Self {
        Self { value, members: OnceLock::new(), wrapped: OnceLock::new() }
    }

    /// The member `name`.
    pub(in super::super) fn member(&self, name: &str) -> Option<Value> {
        self.value.get(name)
    }

    /// All members. A host's object makes all of them for this.
    pub(in super::super) fn members(&self) -> &Map {
        match &self.value {
            Value::Object(members) => members,
            value => self.members.get_or_init(|| value.as_object().unwrap_or_default()),
        }
    }

    fn wrapped(&self) -> &[CelString<'static>] {
        self.wrapped.get_or_init(|| {
            self.members().keys().map(|name| CelString::from(name.as_ref().to_owned())).collect()
        })
    }
}

impl StaticVal for Object {}

impl Val for Object {
    container_capabilities!(MAP_TYPE);

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(Self::of(self.value.clone()))
    }
}

impl Container for Object {
    /// Whether `key` names a member. CEL allows other types of key, but no object has them.
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        match text_of(key) {
            Some(name) => Ok(self.member(name).is_some()),
            None => written(key).map(|_| false),
        }
    }
}

impl Indexer for Object {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let Some(name) = text_of(key) else {
            return Err(ExecutionError::no_such_key(&written(key)?));
        };
        self.member(name)
            .map(|value| CowVal::Owned(wrap(value) as Box<dyn Val + 'v>))
            .ok_or_else(|| ExecutionError::no_such_key(name))
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

/// A key that is not a string, for a message; an error if it is no key at all.
fn written(key: &dyn Val) -> Result<String, ExecutionError> {
    if let Some(int) = key.downcast_ref::<CelInt>() {
        return Ok(int.inner().to_string());
    }
    if let Some(uint) = key.downcast_ref::<CelUInt>() {
        return Ok(uint.inner().to_string());
    }
    if let Some(double) = key.downcast_ref::<CelDouble>() {
        return Ok(double.inner().to_string());
    }
    let bool = key.downcast_ref::<CelBool>();
    bool.map(|bool| bool.inner().to_string()).ok_or_else(|| no_overload("_[_]", "map", key))
}

impl Iterable for Object {
    fn iter<'b, 'v>(&'b self) -> Box<dyn traits::Iterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(Iter(self.wrapped().iter().map(|name| name as &dyn Val)))
    }
}

impl Sizer for Object {
    fn size(&self) -> CelInt {
        size(self.members().len())
    }
}

impl Zeroer for Object {
    fn is_zero_value(&self) -> bool {
        self.members().is_empty()
    }
}
