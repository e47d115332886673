//! The functions that the rewriting puts into a tree.

use std::cell::Cell;

use cel::ExecutionError;
use cel::common::types::{CelInt, DYN_TYPE, INT_TYPE};
use cel::common::value::CowVal;

use super::super::convert::{self, NoValue};
use super::super::{equality, work};
use super::{Args, CelResult, Overload, owned_bool, take};
use crate::language::value::Value;

pub(super) const OVERLOADS: &[Overload] = &[
    ("@equals", "any", &[DYN_TYPE, DYN_TYPE], equals),
    ("@contains", "any", &[DYN_TYPE, DYN_TYPE], contains),
    ("@add", "any", &[DYN_TYPE, DYN_TYPE], add),
    ("@charge", "any", &[DYN_TYPE], charge),
    ("@tick", "any", &[INT_TYPE, DYN_TYPE], tick),
    ("@prepay", "int", &[INT_TYPE], prepay),
    ("@capture", "any", &[DYN_TYPE], capture),
];

fn equals<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [a, b] = take(args)?;
    equality::equal(a.as_ref(), b.as_ref()).map(owned_bool)
}

/// `value in container`.
fn contains<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [value, container] = take(args)?;
    equality::contains(container.as_ref(), value.as_ref()).map(owned_bool)
}

/// `a + b`, paid for: the sum may be long.
fn add<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [a, b] = take(args)?;
    work::spend_copy(a.as_ref())?;
    work::spend_copy(b.as_ref())?;
    let adder = a.as_adder().ok_or_else(|| {
        let types = [&a, &b].map(|val| val.get_type().name().to_owned());
        ExecutionError::no_such_overload("_+_", types.into())
    })?;
    Ok(CowVal::Owned(adder.add(b.as_ref())?.into_owned()))
}

/// The argument, paid for because it is about to be copied.
fn charge<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [value] = take(args)?;
    work::spend_copy(value.as_ref())?;
    Ok(value)
}

/// The second argument, paid for with as many units as the first says.
fn tick<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [units, value] = take(args)?;
    let units = units.downcast_ref::<CelInt>().map_or(1, |units| *units.inner());
    work::spend(u64::try_from(units).unwrap_or(1))?;
    Ok(value)
}

/// The argument, a number of elements that are about to be made and are paid for here.
fn prepay<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [count] = take(args)?;
    let elements = count.downcast_ref::<CelInt>().map_or(0, |count| *count.inner());
    work::spend(1 + u64::try_from(elements).unwrap_or(0))?;
    Ok(count)
}

thread_local! {
    /// The result of the evaluation that runs on this thread, once it has one.
    static CAPTURED: Cell<Option<Result<Value, NoValue>>> = const { Cell::new(None) };
}

/// The result of the evaluation that just ran on this thread; `None` if it came to none.
pub(in super::super) fn take_captured() -> Option<Result<Value, NoValue>> {
    CAPTURED.take()
}

/// Converts the value of the whole expression and keeps it for [`take_captured`]. So it never passes through
/// the CEL crate's own result type, which would copy it.
fn capture<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [value] = take(args)?;
    CAPTURED.set(Some(convert::to_value(value.as_ref())));
    Ok(owned_bool(true))
}
