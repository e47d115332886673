//! The sets extension, and list functions that the CEL crate lacks or does not bound.

use cel::common::types::{CelList, CelOptional, LIST_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::super::equality;
use super::{Args, CelResult, Overload, owned_bool, take, unexpected};

pub(super) const OVERLOADS: &[Overload] = &[
    ("sets.contains", "sets_contains", &[LIST_TYPE, LIST_TYPE], sets_contains),
    ("sets.equivalent", "sets_equivalent", &[LIST_TYPE, LIST_TYPE], sets_equivalent),
    ("sets.intersects", "sets_intersects", &[LIST_TYPE, LIST_TYPE], sets_intersects),
    ("@distinct", "list", &[LIST_TYPE], distinct),
];

/// Declares the functions that are called on a list.
pub(super) fn declare_members(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_member_overload("first", "list_first", LIST_TYPE, vec![], list_first)?;
    env.add_member_overload("last", "list_last", LIST_TYPE, vec![], list_last)
}

/// Whether every element of the second list is in the first.
fn sets_contains<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [set, subset] = take(args)?;
    every(subset.as_ref(), &mut |element| equality::contains(set.as_ref(), element)).map(owned_bool)
}

/// Whether each list contains the other.
fn sets_equivalent<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [a, b] = take(args)?;
    let within = |a: &CowVal<'_, '_>, b: &CowVal<'_, '_>| {
        every(a.as_ref(), &mut |element| equality::contains(b.as_ref(), element))
    };
    Ok(owned_bool(within(&a, &b)? && within(&b, &a)?))
}

/// Whether the lists share an element.
fn sets_intersects<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [a, b] = take(args)?;
    let disjoint = every(a.as_ref(), &mut |element| Ok(!equality::contains(b.as_ref(), element)?))?;
    Ok(owned_bool(!disjoint))
}

/// Whether `test` holds for every element of `list`.
fn every(
    list: &dyn Val,
    test: &mut dyn FnMut(&dyn Val) -> Result<bool, ExecutionError>,
) -> Result<bool, ExecutionError> {
    let iterable = list.as_iterable().ok_or_else(|| unexpected(list, "list"))?;
    let mut items = iterable.iter();
    while let Some(item) = items.next() {
        if !test(item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The elements in their order, without repetitions by CEL's equality.
fn distinct<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [list] = take(args)?;
    let iterable = list.as_iterable().ok_or_else(|| unexpected(list.as_ref(), "list"))?;
    let mut items = iterable.iter();
    let mut seen: Vec<&dyn Val> = Vec::new();
    let mut kept: Vec<Box<dyn Val + 'v>> = Vec::new();
    while let Some(item) = items.next() {
        let mut repeated = false;
        for earlier in &seen {
            if equality::equal(*earlier, item)? {
                repeated = true;
                break;
            }
        }
        if !repeated {
            seen.push(item);
            kept.push(item.clone_as_boxed());
        }
    }
    Ok(CowVal::owned(CelList::from(kept)))
}

/// The first element as an optional value, `optional.none()` for an empty list.
fn list_first<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [list] = take(args)?;
    let iterable = list.as_iterable().ok_or_else(|| unexpected(list.as_ref(), "list"))?;
    Ok(CowVal::owned(match iterable.iter().next() {
        Some(item) => CelOptional::of(item.clone_as_boxed()),
        None => CelOptional::none(),
    }))
}

/// The last element as an optional value, `optional.none()` for an empty list.
fn list_last<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [list] = take(args)?;
    let iterable = list.as_iterable().ok_or_else(|| unexpected(list.as_ref(), "list"))?;
    let mut items = iterable.iter();
    let mut end = None;
    while let Some(item) = items.next() {
        end = Some(item);
    }
    Ok(CowVal::owned(match end {
        Some(item) => CelOptional::of(item.clone_as_boxed()),
        None => CelOptional::none(),
    }))
}
