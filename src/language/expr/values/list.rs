//! An array of the data model as a CEL value.

use std::any::Any;
use std::sync::OnceLock;

use cel::ExecutionError;
use cel::common::traits::{self, Adder, Container, Indexer, Iterable, Sizer, Zeroer};
use cel::common::types::{CelDouble, CelInt, CelList, CelUInt, LIST_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};

use super::super::equality;
use super::{Iter, no_overload, size, wrap};
use crate::language::value::Array;

/// An array of the data model.
#[derive(Debug)]
pub(in super::super) struct List {
    items: Array,
    /// The elements as CEL values. Made when something iterates, because an iterator borrows them.
    wrapped: OnceLock<Vec<Box<dyn Val>>>,
}

impl List {
    pub(super) const fn of(items: Array) -> Self {
        Self { items, wrapped: OnceLock::new() }
    }

    pub(in super::super) const fn items(&self) -> &Array {
        &self.items
    }

    fn wrapped(&self) -> &[Box<dyn Val>] {
        self.wrapped.get_or_init(|| self.items.iter().map(wrap).collect())
    }
}

impl StaticVal for List {}

impl Val for List {
    container_capabilities!(LIST_TYPE);

    fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(Self::of(self.items.clone()))
    }
}

impl Adder for List {
    fn add<'b, 'v>(&'b self, rhs: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let Some(rhs) = rhs.as_iterable() else {
            return Err(no_overload("_+_", "list", rhs));
        };
        let mut sum: Vec<Box<dyn Val + 'v>> = Vec::with_capacity(self.items.len());
        sum.extend(self.items.iter().map(|item| wrap(item) as Box<dyn Val + 'v>));
        let mut items = rhs.iter();
        while let Some(item) = items.next() {
            sum.push(item.clone_as_boxed());
        }
        Ok(CowVal::owned(CelList::from(sum)))
    }
}

impl Container for List {
    fn contains(&self, value: &dyn Val) -> Result<bool, ExecutionError> {
        for item in self.wrapped() {
            if equality::equal(item.as_ref(), value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Indexer for List {
    fn get<'b, 'v>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let position = position(index)?;
        position
            .and_then(|position| self.items.get(position))
            .map(|item| CowVal::Owned(wrap(item) as Box<dyn Val + 'v>))
            .ok_or_else(|| out_of_bounds(index))
    }

    fn steal<'v>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(index).map(CowVal::into_owned)
    }
}

/// The position that `index` names: a whole number of any of the three types. `None` if no list is that long.
fn position(index: &dyn Val) -> Result<Option<usize>, ExecutionError> {
    if let Some(int) = index.downcast_ref::<CelInt>() {
        return Ok(usize::try_from(*int.inner()).ok());
    }
    if let Some(uint) = index.downcast_ref::<CelUInt>() {
        return Ok(usize::try_from(*uint.inner()).ok());
    }
    let double = index.downcast_ref::<CelDouble>().map(|double| *double.inner());
    match double {
        Some(double) if double.fract() == 0.0 => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole and in range; a list is never as long as the bound"
            )]
            let position = (0.0..9e15).contains(&double).then_some(double as usize);
            Ok(position)
        }
        _ => Err(no_overload("_[_]", "list", index)),
    }
}

fn out_of_bounds(index: &dyn Val) -> ExecutionError {
    ExecutionError::IndexOutOfBounds(cel::Value::try_from(index).unwrap_or(cel::Value::Null))
}

impl Iterable for List {
    fn iter<'b, 'v>(&'b self) -> Box<dyn traits::Iterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(Iter(self.wrapped().iter().map(AsRef::as_ref)))
    }
}

impl Sizer for List {
    fn size(&self) -> CelInt {
        size(self.items.len())
    }
}

impl Zeroer for List {
    fn is_zero_value(&self) -> bool {
        self.items.is_empty()
    }
}
