//! CEL's equality, across two kinds of containers: those that an expression builds, which the CEL crate only
//! compares with each other, and those that come from the data.
//!
//! Every comparison pays for itself (see `work`), so that an expression that compares large data in a loop
//! still ends soon.

use cel::ExecutionError;
use cel::common::traits::Indexer;
use cel::common::types::{CelList, CelMap, CelMapKey, CelOptional};
use cel::common::value::Val;

use super::values::{self, List, Object};
use super::work::spend;
use crate::language::value::{Array, Value};

/// Whether `a == b` in CEL: lists are compared pairwise, maps by their keys, and numbers by value across
/// their types; values of different types are unequal.
pub(super) fn equal(a: &dyn Val, b: &dyn Val) -> Result<bool, ExecutionError> {
    spend(2)?;
    if let (Some(a), Some(b)) = (values::unwrap(a), values::unwrap(b)) {
        return data(&a, &b);
    }
    if let (Some(a), Some(b)) = (Elements::of(a), Elements::of(b)) {
        return lists(a, b);
    }
    if let (Some(a), Some(b)) = (Members::of(a), Members::of(b)) {
        return maps(a, b);
    }
    let optional = |val: &dyn Val| val.downcast_ref::<CelOptional<'_>>().is_some();
    if optional(a) && optional(b) {
        let inner =
            |val| <dyn Val>::downcast_ref::<CelOptional<'_>>(val).and_then(CelOptional::inner);
        return match (inner(a), inner(b)) {
            (Some(a), Some(b)) => equal(a, b),
            (a, b) => Ok(a.is_none() && b.is_none()),
        };
    }
    if is_container(a) || is_container(b) {
        return Ok(false);
    }
    Ok(a.equals(b))
}

/// [`equal`] for two values of the data model, without turning them into CEL values.
fn data(a: &Value, b: &Value) -> Result<bool, ExecutionError> {
    spend(1)?;
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            all(a.iter().zip(b.iter()).map(|(a, b)| data(&a, &b)))
        }
        (Value::Object(_) | Value::Native(_), Value::Object(_) | Value::Native(_)) => {
            let (a, b) = (a.as_object().unwrap_or_default(), b.as_object().unwrap_or_default());
            if a.len() != b.len() {
                return Ok(false);
            }
            all(a.iter().map(|(name, a)| b.get(name).map_or(Ok(false), |b| data(a, b))))
        }
        _ => Ok(a == b),
    }
}

/// Whether all of them are true. Stops at the first that is false or fails.
fn all(
    outcomes: impl Iterator<Item = Result<bool, ExecutionError>>,
) -> Result<bool, ExecutionError> {
    for outcome in outcomes {
        if !outcome? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether `value` is in `container`: an element of a list, a key of a map.
pub(super) fn contains(container: &dyn Val, value: &dyn Val) -> Result<bool, ExecutionError> {
    let Some(elements) = Elements::of(container) else {
        spend(1)?;
        return container
            .as_container()
            .ok_or_else(|| {
                let types = [value, container].map(|val| val.get_type().name().to_owned());
                ExecutionError::no_such_overload("@in", types.into())
            })?
            .contains(value);
    };
    for index in 0..elements.len() {
        if elements.at(index, |element| equal(element, value))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_container(val: &dyn Val) -> bool {
    Elements::of(val).is_some() || Members::of(val).is_some()
}

/// The elements of a list of either kind.
#[derive(Clone, Copy)]
enum Elements<'a, 'v> {
    Cel(&'a [Box<dyn Val + 'v>]),
    Data(&'a Array),
}

impl<'a, 'v> Elements<'a, 'v> {
    fn of(val: &'a (dyn Val + 'v)) -> Option<Self> {
        if let Some(list) = val.as_any().and_then(|any| any.downcast_ref::<List>()) {
            return Some(Self::Data(list.items()));
        }
        val.downcast_ref::<CelList<'v>>().map(|list| Self::Cel(list.inner()))
    }

    fn len(self) -> usize {
        match self {
            Self::Cel(items) => items.len(),
            Self::Data(items) => items.len(),
        }
    }

    /// The answer of `test` for the element at `index`; `false` if there is none.
    fn at(
        self,
        index: usize,
        test: impl FnOnce(&dyn Val) -> Result<bool, ExecutionError>,
    ) -> Result<bool, ExecutionError> {
        match self {
            Self::Cel(items) => items.get(index).map_or(Ok(false), |item| test(item.as_ref())),
            Self::Data(items) => {
                items.get(index).map_or(Ok(false), |item| test(values::wrap(item).as_ref()))
            }
        }
    }
}

fn lists(a: Elements<'_, '_>, b: Elements<'_, '_>) -> Result<bool, ExecutionError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    all((0..a.len()).map(|index| a.at(index, |a| b.at(index, |b| equal(a, b)))))
}

/// The members of a map of either kind.
#[derive(Clone, Copy)]
enum Members<'a, 'v> {
    Cel(&'a CelMap<'v>),
    Data(&'a Object),
}

impl<'a, 'v> Members<'a, 'v> {
    fn of(val: &'a (dyn Val + 'v)) -> Option<Self> {
        if let Some(object) = val.as_any().and_then(|any| any.downcast_ref::<Object>()) {
            return Some(Self::Data(object));
        }
        val.downcast_ref::<CelMap<'v>>().map(Self::Cel)
    }
}

fn maps(a: Members<'_, '_>, b: Members<'_, '_>) -> Result<bool, ExecutionError> {
    match (a, b) {
        (Members::Data(a), Members::Data(b)) => data(a.shared(), b.shared()),
        (Members::Cel(cel), Members::Data(data)) | (Members::Data(data), Members::Cel(cel)) => {
            mixed(cel, data)
        }
        (Members::Cel(a), Members::Cel(b)) if a.inner().len() == b.inner().len() => {
            // The CEL crate also finds the same number of another type: `{1: 'a'} == {1u: 'a'}`.
            all(a.inner().iter().map(|(key, value)| match b.get(key.inner()) {
                Ok(other) => equal(value.as_ref(), other.as_ref()),
                Err(_) => Ok(false),
            }))
        }
        (Members::Cel(_), Members::Cel(_)) => Ok(false),
    }
}

fn mixed(cel: &CelMap<'_>, data: &Object) -> Result<bool, ExecutionError> {
    let members = data.members();
    if cel.inner().len() != members.len() {
        return Ok(false);
    }
    all(cel.inner().iter().map(|(key, value)| {
        let CelMapKey::String(name) = key else {
            return Ok(false);
        };
        let other = members.get(name.inner()).cloned().map(values::wrap);
        other.map_or(Ok(false), |other| equal(value.as_ref(), other.as_ref()))
    }))
}
