//! The data model's values as CEL values. What is not read is not copied.
//!
//! CEL asks a value for one capability at a time (a member, an element, a size). These types answer from the
//! shared [`Value`] behind them. So a path costs only the lookups along it, and a host's object is asked only
//! for the members that the expression names. What an expression passes on unread (a body, a whole result)
//! comes out as the reference that went in. Every number is a `double` ("Numbers").

use std::sync::Arc;

use cel::ExecutionError;
use cel::common::traits;
use cel::common::types::{CelBool, CelDouble, CelInt, CelNull};
use cel::common::value::Val;

use crate::language::value::Value;

/// The capabilities that both containers have.
macro_rules! container_capabilities {
    ($type:expr) => {
        fn get_type(&self) -> &Type {
            &$type
        }

        fn cel_type() -> &'static Type {
            &$type
        }

        fn as_container(&self) -> Option<&dyn Container> {
            Some(self)
        }

        fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
        where
            Self: 'v,
        {
            Some(self)
        }

        fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
        where
            Self: 'v,
        {
            Some(self)
        }

        fn as_sizer(&self) -> Option<&dyn Sizer> {
            Some(self)
        }

        fn as_zeroer(&self) -> Option<&dyn Zeroer> {
            Some(self)
        }

        fn equals(&self, other: &dyn Val) -> bool {
            equality::equal(self, other).unwrap_or(false)
        }

        fn as_any(&self) -> Option<&dyn Any> {
            Some(self)
        }
    };
}

mod list;
mod object;
mod text;

pub(super) use self::list::List;
pub(super) use self::object::Object;
pub(super) use self::text::{Text, text_of};

/// `value` as a CEL value.
pub(super) fn wrap(value: Value) -> Box<dyn Val> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(bool) => Box::new(CelBool::from(bool)),
        Value::Number(number) => Box::new(CelDouble::from(number)),
        Value::String(shared) => Box::new(Text::of(shared)),
        Value::Array(items) => Box::new(List::of(items)),
        Value::Object(_) | Value::Native(_) => Box::new(Object::of(value)),
    }
}

/// The value behind `val`, if it came from the data model.
pub(super) fn unwrap(val: &dyn Val) -> Option<Value> {
    let any = val.as_any()?;
    if let Some(text) = any.downcast_ref::<Text>() {
        return Some(Value::String(Arc::clone(text.shared())));
    }
    if let Some(list) = any.downcast_ref::<List>() {
        return Some(Value::Array(list.items().clone()));
    }
    Some(any.downcast_ref::<Object>()?.shared().clone())
}

/// The error that `function` does not take `right` beside a `left`.
fn no_overload(function: &str, left: &str, right: &dyn Val) -> ExecutionError {
    let types = [left, right.get_type().name()].map(str::to_owned);
    ExecutionError::no_such_overload(function, types.into())
}

fn size(len: usize) -> CelInt {
    i64::try_from(len).unwrap_or(i64::MAX).into()
}

/// Iterates over elements that the container keeps.
struct Iter<I>(I);

impl<'b, 'v, I: Iterator<Item = &'b (dyn Val + 'static)>> traits::Iterator<'b, 'v> for Iter<I> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|item| item as &'b (dyn Val + 'v))
    }
}
