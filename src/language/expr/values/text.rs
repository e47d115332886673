//! A string of the data model as a CEL value.

use std::any::Any;
use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use cel::ExecutionError;
use cel::common::traits::{Adder, Comparer, Zeroer};
use cel::common::types::{CelString, STRING_TYPE, Type};
use cel::common::value::{Builtin, BuiltinRef, StaticVal, Val};

use super::no_overload;

/// A string of the data model. The CEL crate's functions want its own string type; that copy is made when one
/// of them first asks.
#[derive(Debug)]
pub(in super::super) struct Text {
    shared: Arc<str>,
    copied: OnceLock<CelString<'static>>,
}

impl Text {
    pub(super) const fn of(shared: Arc<str>) -> Self {
        Self { shared, copied: OnceLock::new() }
    }

    pub(super) const fn shared(&self) -> &Arc<str> {
        &self.shared
    }

    pub(in super::super) fn as_str(&self) -> &str {
        &self.shared
    }

    fn cel(&self) -> &CelString<'static> {
        self.copied.get_or_init(|| CelString::from(self.shared.as_ref().to_owned()))
    }
}

impl StaticVal for Text {}

impl Val for Text {
    fn get_type(&self) -> &Type {
        &STRING_TYPE
    }

    fn cel_type() -> &'static Type {
        &STRING_TYPE
    }

    fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
    where
        Self: 'v,
    {
        self.cel().as_adder()
    }

    fn as_comparer(&self) -> Option<&dyn Comparer> {
        Some(self)
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        text_of(other) == Some(self.as_str())
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(Self::of(Arc::clone(&self.shared)))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn as_builtin<'b, 'v>(&'b self) -> BuiltinRef<'b, 'v>
    where
        Self: 'v,
    {
        BuiltinRef::String(self.cel())
    }

    fn into_builtin<'v>(self: Box<Self>) -> Option<Builtin<'v>>
    where
        Self: 'v,
    {
        Some(Builtin::String(self.cel().clone()))
    }
}

impl Comparer for Text {
    fn compare(&self, rhs: &dyn Val) -> Result<Ordering, ExecutionError> {
        let other = text_of(rhs).ok_or_else(|| no_overload("_<_", "string", rhs))?;
        Ok(self.as_str().cmp(other))
    }
}

impl Zeroer for Text {
    fn is_zero_value(&self) -> bool {
        self.shared.is_empty()
    }
}

/// The text of a string of either kind.
pub(in super::super) fn text_of(val: &dyn Val) -> Option<&str> {
    match val.as_any().and_then(|any| any.downcast_ref::<Text>()) {
        Some(text) => Some(text.as_str()),
        None => val.downcast_ref::<CelString<'_>>().map(CelString::inner),
    }
}
