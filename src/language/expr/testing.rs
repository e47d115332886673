//! Our CEL environment, opened for the CEL suite's tests. Nothing else uses it.
//!
//! The suite's tests bind CEL-typed variables and expect CEL-typed results. MWL has neither. This module
//! takes them as [`Typed`] and runs the expression through the same parser, rewriting and functions that a
//! [`super::Program`] uses; only the roots are replaced by the test's variables.

use std::collections::HashMap;
use std::sync::Arc;

use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelDuration, CelInt, CelList, CelMap, CelMapKey, CelNull,
    CelOptional, CelString, CelTimestamp, CelType, CelUInt, Kind,
};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{Context, Env};
use chrono::{DateTime, TimeDelta};

use super::functions::Pattern;
use super::rewrite::Names;
use super::work::Account;
use super::{compile, environment, fault};

/// A CEL value of any type.
#[derive(Clone, Debug, PartialEq)]
pub enum Typed {
    /// `null`.
    Null,
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `uint`.
    Uint(u64),
    /// `double`; NaN is equal to NaN here.
    Double(NanEqual),
    /// `string`.
    String(String),
    /// `bytes`.
    Bytes(Vec<u8>),
    /// `list`.
    List(Vec<Self>),
    /// `map`, in any order.
    Map(Vec<(Self, Self)>),
    /// `timestamp`: seconds and nanoseconds since the Unix epoch.
    Timestamp(i64, u32),
    /// `duration`: seconds, and nanoseconds of the same sign.
    Duration(i64, i32),
    /// `type`.
    Type(String),
    /// `optional_type`.
    Optional(Option<Box<Self>>),
    /// A value of a type that the suite has no notation for.
    Other(String),
}

/// A double that is always equal to itself, NaN too.
#[derive(Clone, Copy, Debug)]
pub struct NanEqual(pub f64);

impl PartialEq for NanEqual {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || (self.0.is_nan() && other.0.is_nan())
    }
}

/// Evaluates `source` with these variables, in `container` where one is named.
///
/// # Errors
///
/// The message, if it does not compile or evaluate.
pub fn evaluate(
    source: &str,
    variables: &[(String, Typed)],
    container: Option<&str>,
) -> Result<Typed, String> {
    let env = env_in(container)?;
    let compiled = compile::compile(source, Names::Open).map_err(|errors| format!("{errors:?}"))?;
    let account = Account::open();
    let patterns = Patterns(&compiled.uses.patterns);
    let mut context = Context::with_env(env);
    context.set_variable_resolver(&patterns);
    for (name, value) in variables {
        context.add_variable_as_val(name, into_val(value));
    }
    let result =
        cel::Value::resolve_val(&compiled.expr, &context).map_err(|error| error.to_string())?;
    if account.overdrawn() {
        return Err(fault::TOO_MUCH_WORK.to_owned());
    }
    Ok(from_val(result.as_ref()))
}

fn env_in(container: Option<&str>) -> Result<Arc<Env>, String> {
    let Some(container) = container else {
        return Ok(Arc::clone(environment::shared()));
    };
    let mut env = Env::stdlib();
    environment::declare(&mut env).map_err(|error| error.to_string())?;
    env.set_container(container).map_err(|error| error.to_string())?;
    Ok(Arc::new(env))
}

/// The literal patterns of a test's expression.
struct Patterns<'a>(&'a [Pattern]);

impl VariableResolver for Patterns<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let number: usize = variable.strip_prefix("@re")?.parse().ok()?;
        self.0.get(number).map(|pattern| CowVal::Borrowed(pattern as &dyn Val))
    }
}

fn into_val(typed: &Typed) -> Box<dyn Val> {
    match typed {
        Typed::Null | Typed::Other(_) => Box::new(CelNull),
        Typed::Bool(bool) => Box::new(CelBool::from(*bool)),
        Typed::Int(int) => Box::new(CelInt::from(*int)),
        Typed::Uint(uint) => Box::new(CelUInt::from(*uint)),
        Typed::Double(double) => Box::new(CelDouble::from(double.0)),
        Typed::String(text) => Box::new(CelString::from(text.clone())),
        Typed::Bytes(bytes) => Box::new(CelBytes::from(bytes.clone())),
        Typed::List(items) => {
            Box::new(CelList::from(items.iter().map(into_val).collect::<Vec<_>>()))
        }
        Typed::Map(entries) => {
            let entries = entries.iter().filter_map(|(key, value)| {
                let key = CelMapKey::try_from(CowVal::Owned(into_val(key))).ok()?;
                Some((key, into_val(value)))
            });
            Box::new(CelMap::from(entries.collect::<HashMap<_, _>>()))
        }
        Typed::Timestamp(seconds, nanos) => Box::new(CelTimestamp::from(
            DateTime::from_timestamp(*seconds, *nanos).unwrap_or_default().fixed_offset(),
        )),
        Typed::Duration(seconds, nanos) => Box::new(CelDuration::from(
            TimeDelta::seconds(*seconds) + TimeDelta::nanoseconds(i64::from(*nanos)),
        )),
        Typed::Type(name) => Box::new(CelType::new(name.clone())),
        Typed::Optional(None) => Box::new(CelOptional::none()),
        Typed::Optional(Some(inner)) => Box::new(CelOptional::of(into_val(inner))),
    }
}

fn from_val(val: &dyn Val) -> Typed {
    if let Some(bool) = val.downcast_ref::<CelBool>() {
        return Typed::Bool(*bool.inner());
    }
    if let Some(int) = val.downcast_ref::<CelInt>() {
        return Typed::Int(*int.inner());
    }
    if let Some(uint) = val.downcast_ref::<CelUInt>() {
        return Typed::Uint(*uint.inner());
    }
    if let Some(double) = val.downcast_ref::<CelDouble>() {
        return Typed::Double(NanEqual(*double.inner()));
    }
    if let Some(text) = super::values::text_of(val) {
        return Typed::String(text.to_owned());
    }
    if let Some(bytes) = val.downcast_ref::<CelBytes<'_>>() {
        return Typed::Bytes(bytes.inner().to_vec());
    }
    if let Some(list) = val.downcast_ref::<CelList<'_>>() {
        return Typed::List(list.inner().iter().map(|item| from_val(item.as_ref())).collect());
    }
    if let Some(map) = val.downcast_ref::<CelMap<'_>>() {
        let entries = map.inner().iter();
        return Typed::Map(
            entries.map(|(key, value)| (from_val(key.inner()), from_val(value.as_ref()))).collect(),
        );
    }
    temporal_or_other(val)
}

fn temporal_or_other(val: &dyn Val) -> Typed {
    if let Some(timestamp) = val.downcast_ref::<CelTimestamp>() {
        let timestamp = timestamp.inner();
        return Typed::Timestamp(timestamp.timestamp(), timestamp.timestamp_subsec_nanos());
    }
    if let Some(duration) = val.downcast_ref::<CelDuration>() {
        return Typed::Duration(duration.inner().num_seconds(), duration.inner().subsec_nanos());
    }
    if let Some(name) = val.downcast_ref::<CelType>() {
        return Typed::Type(name.name().to_owned());
    }
    if let Some(optional) = val.downcast_ref::<CelOptional<'_>>() {
        return Typed::Optional(optional.inner().map(|inner| Box::new(from_val(inner))));
    }
    match val.get_type().kind() {
        Kind::NullType => Typed::Null,
        _ => Typed::Other(val.get_type().name().to_owned()),
    }
}
