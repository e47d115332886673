//! The data model's values as CEL values, without a copy of what is not read.
//!
//! CEL asks a value for one capability at a time (a member, an element, a size), and these types answer
//! from the shared [`Value`] behind them. So a path costs the lookups along it, a host's object is asked
//! only for the members that the expression names, and what an expression passes on unread (a body, a whole
//! result) comes out as the reference that went in. Every number is a `double` ("Numbers").

use std::any::Any;
use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use cel::ExecutionError;
use cel::common::traits::{self, Adder, Comparer, Container, Indexer, Iterable, Sizer, Zeroer};
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelNull, CelString, CelUInt, LIST_TYPE, MAP_TYPE, STRING_TYPE, Type,
};
use cel::common::value::{Builtin, BuiltinRef, CowVal, StaticVal, Val};

use super::equality;
use crate::language::value::{Map, Value};

/// A string of the data model. The crate's functions want their own string type: the copy that they need
/// is made when one of them first asks.
#[derive(Debug)]
pub(super) struct Text {
    shared: Arc<str>,
    copied: OnceLock<CelString<'static>>,
}

/// An array of the data model.
#[derive(Debug)]
pub(super) struct List {
    items: Arc<Vec<Value>>,
    /// The elements as CEL values: made when something iterates, because an iterator lends them out.
    lent: OnceLock<Vec<Box<dyn Val>>>,
}

/// An object of the data model, plain or the host's.
#[derive(Debug)]
pub(super) struct Object {
    value: Value,
    /// All members: taken when something asks for more than one, because a host makes them anew each time.
    members: OnceLock<Arc<Map>>,
    /// The member names as CEL values: made when something iterates.
    lent: OnceLock<Vec<CelString<'static>>>,
}

/// `value` as a CEL value.
pub(super) fn wrap(value: Value) -> Box<dyn Val> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(bool) => Box::new(CelBool::from(bool)),
        Value::Number(number) => Box::new(CelDouble::from(number)),
        Value::String(shared) => Box::new(Text {
            shared,
            copied: OnceLock::new(),
        }),
        Value::Array(items) => Box::new(List {
            items,
            lent: OnceLock::new(),
        }),
        Value::Object(_) | Value::Native(_) => Box::new(Object::of(value)),
    }
}

/// The data model's value that `val` is, where it came from there whole.
pub(super) fn unwrap(val: &dyn Val) -> Option<Value> {
    let any = val.as_any()?;
    if let Some(text) = any.downcast_ref::<Text>() {
        return Some(Value::String(Arc::clone(&text.shared)));
    }
    if let Some(list) = any.downcast_ref::<List>() {
        return Some(Value::Array(Arc::clone(&list.items)));
    }
    Some(any.downcast_ref::<Object>()?.value.clone())
}

impl Text {
    pub(super) fn as_str(&self) -> &str {
        &self.shared
    }

    fn cel(&self) -> &CelString<'static> {
        self.copied
            .get_or_init(|| CelString::from(self.shared.as_ref().to_owned()))
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
        Box::new(Self {
            shared: Arc::clone(&self.shared),
            copied: OnceLock::new(),
        })
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
        match text_of(rhs) {
            Some(other) => Ok(self.as_str().cmp(other)),
            None => Err(ExecutionError::no_such_overload(
                "_<_",
                vec!["string".to_owned(), rhs.get_type().name().to_owned()],
            )),
        }
    }
}

impl Zeroer for Text {
    fn is_zero_value(&self) -> bool {
        self.shared.is_empty()
    }
}

/// The text of a string of either kind.
pub(super) fn text_of(val: &dyn Val) -> Option<&str> {
    match val.as_any().and_then(|any| any.downcast_ref::<Text>()) {
        Some(text) => Some(text.as_str()),
        None => val.downcast_ref::<CelString<'_>>().map(CelString::inner),
    }
}

impl List {
    pub(super) fn items(&self) -> &[Value] {
        &self.items
    }

    fn lent(&self) -> &[Box<dyn Val>] {
        self.lent
            .get_or_init(|| self.items.iter().cloned().map(wrap).collect())
    }
}

impl StaticVal for List {}

impl Val for List {
    fn get_type(&self) -> &Type {
        &LIST_TYPE
    }

    fn cel_type() -> &'static Type {
        &LIST_TYPE
    }

    fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
    where
        Self: 'v,
    {
        Some(self)
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

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(Self {
            items: Arc::clone(&self.items),
            lent: OnceLock::new(),
        })
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Adder for List {
    fn add<'b, 'v>(&'b self, rhs: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let Some(rhs) = rhs.as_iterable() else {
            return Err(ExecutionError::no_such_overload(
                "_+_",
                vec!["list".to_owned(), rhs.get_type().name().to_owned()],
            ));
        };
        let mut sum: Vec<Box<dyn Val + 'v>> = Vec::with_capacity(self.items.len());
        for item in self.items.iter() {
            sum.push(wrap(item.clone()));
        }
        let mut items = rhs.iter();
        while let Some(item) = items.next() {
            sum.push(item.clone_as_boxed());
        }
        Ok(CowVal::owned(cel::common::types::CelList::from(sum)))
    }
}

impl Container for List {
    fn contains(&self, value: &dyn Val) -> Result<bool, ExecutionError> {
        for item in self.lent() {
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
            .map(|item| CowVal::Owned(wrap(item.clone()) as Box<dyn Val + 'v>))
            .ok_or_else(|| out_of_bounds(index))
    }

    fn steal<'v>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(index).map(CowVal::into_owned)
    }
}

/// The element that `index` names: a whole number of any of the three types. `None` where no list is as
/// long.
fn position(index: &dyn Val) -> Result<Option<usize>, ExecutionError> {
    if let Some(int) = index.downcast_ref::<CelInt>() {
        return Ok(usize::try_from(*int.inner()).ok());
    }
    if let Some(uint) = index.downcast_ref::<CelUInt>() {
        return Ok(usize::try_from(*uint.inner()).ok());
    }
    let double = index
        .downcast_ref::<CelDouble>()
        .map(|double| *double.inner());
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
        _ => Err(ExecutionError::no_such_overload(
            "_[_]",
            vec!["list".to_owned(), index.get_type().name().to_owned()],
        )),
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
        Box::new(Lent(self.lent().iter().map(AsRef::as_ref)))
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

fn size(len: usize) -> CelInt {
    i64::try_from(len).unwrap_or(i64::MAX).into()
}

/// Lends out the elements of a slice that the container keeps.
struct Lent<I>(I);

impl<'b, 'v, I: std::iter::Iterator<Item = &'b (dyn Val + 'static)>> traits::Iterator<'b, 'v>
    for Lent<I>
{
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|item| item as &'b (dyn Val + 'v))
    }
}

impl Object {
    fn of(value: Value) -> Self {
        Self {
            value,
            members: OnceLock::new(),
            lent: OnceLock::new(),
        }
    }

    /// The member `name`.
    pub(super) fn member(&self, name: &str) -> Option<Value> {
        self.value.get(name)
    }

    /// All members. A host's object is taken whole.
    pub(super) fn members(&self) -> &Map {
        match &self.value {
            Value::Object(members) => members,
            value => self
                .members
                .get_or_init(|| value.as_object().unwrap_or_default()),
        }
    }

    fn lent(&self) -> &[CelString<'static>] {
        self.lent.get_or_init(|| {
            self.members()
                .keys()
                .map(|name| CelString::from(name.as_ref().to_owned()))
                .collect()
        })
    }
}

impl StaticVal for Object {}

impl Val for Object {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
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

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(Self::of(self.value.clone()))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Container for Object {
    /// Whether `key` names a member. The other types of key are legal in CEL, and never in an object.
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        match text_of(key) {
            Some(name) => Ok(self.member(name).is_some()),
            None if is_key(key) => Ok(false),
            None => Err(no_key(key)),
        }
    }
}

impl Indexer for Object {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let Some(name) = text_of(key) else {
            return Err(if is_key(key) {
                ExecutionError::no_such_key(&format!("of type {}", key.get_type().name()))
            } else {
                no_key(key)
            });
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

fn is_key(key: &dyn Val) -> bool {
    key.downcast_ref::<CelInt>().is_some()
        || key.downcast_ref::<CelUInt>().is_some()
        || key.downcast_ref::<CelBool>().is_some()
        || key.downcast_ref::<CelDouble>().is_some()
}

fn no_key(key: &dyn Val) -> ExecutionError {
    ExecutionError::no_such_overload(
        "_[_]",
        vec!["map".to_owned(), key.get_type().name().to_owned()],
    )
}

impl Iterable for Object {
    fn iter<'b, 'v>(&'b self) -> Box<dyn traits::Iterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(Lent(self.lent().iter().map(|name| name as &dyn Val)))
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
