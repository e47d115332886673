//! One evaluation: the bindings that the program names, and the CEL crate's evaluator over them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::common::types::CelTimestamp;
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::{Context, IdedExpr};
use chrono::DateTime;

use super::convert::NoValue;
use super::functions::{owned_bool, take_captured};
use super::references::Path;
use super::work::{self, Account};
use super::{Bindings, EvalError, Inner, environment, fault, values};
use crate::language::value::{Missing, MissingFrom, Value};

/// An evaluation. The bindings are asked for each path when the evaluation comes to it.
pub(super) struct Evaluation<'a> {
    program: &'a Inner,
    bindings: &'a dyn Bindings,
}

impl<'a> Evaluation<'a> {
    /// An evaluation of `program`.
    pub(super) const fn of(program: &'a Inner, bindings: &'a dyn Bindings) -> Self {
        Self { program, bindings }
    }

    /// The path of this number, which a variable such as `@p3` stands for, and its value.
    pub(super) fn read(&self, number: usize) -> Option<(&'a Path, Result<Value, Missing>)> {
        let path = self.program.uses.paths.get(number)?;
        Some((path, self.bindings.at(path.root, &path.members)))
    }

    /// `has(root.a.b)`: whether the value `root.a`, which must be an object, has a `b`.
    fn has(&self, number: usize) -> Option<bool> {
        let (path, read) = self.read(number)?;
        match read {
            Ok(_) => Some(true),
            Err(missing) => lacks(missing, path).then_some(false),
        }
    }

    /// `'b' in root.a`: for an object the same as `has`; for an array, whether the text is an element.
    fn is_in(&self, number: usize) -> Option<bool> {
        let (path, read) = self.read(number)?;
        let (member, before) = path.members.split_last()?;
        match read {
            Ok(_) => Some(true),
            Err(missing) if lacks(missing, path) => Some(false),
            Err(_) => match self.bindings.at(path.root, before) {
                Ok(Value::Array(items)) => {
                    work::spend_elements(items.len()).ok()?;
                    Some(items.iter().any(|item| item.as_str() == Some(member)))
                }
                _ => None,
            },
        }
    }

    /// Evaluates `expr`, whose outermost node is `@capture`, to a value of the data model.
    pub(super) fn evaluate(&self, expr: &IdedExpr) -> Result<Value, EvalError> {
        let account = Account::open();
        let mut context = Context::with_env(Arc::clone(environment::shared()));
        context.set_variable_resolver(self);
        // A panic in the CEL crate or in a host's object is this expression's fault, not the worker's. This
        // calls the crate's own entry: inlined into a debug build of our crate, its evaluator would recurse
        // with frames of 50 KiB.
        let evaluation = AssertUnwindSafe(|| cel::Value::resolve(expr, &context));
        let result = catch_unwind(evaluation);
        let captured = take_captured();
        let Ok(result) = result else {
            return Err(EvalError::Fault("the evaluator failed on this expression".to_owned()));
        };
        // An expression can hide the error that stopped its work: `slow || true`.
        if account.overdrawn() {
            let shared = account.was_shared();
            let message = if shared { fault::TOO_MUCH_AT_ONCE } else { fault::TOO_MUCH_WORK };
            return Err(EvalError::Fault(message.to_owned()));
        }
        if let Err(error) = result {
            return Err(EvalError::Fault(fault::describe(&error, self)));
        }
        match captured {
            Some(Ok(value)) => Ok(value),
            Some(Err(problem @ NoValue::Unrepresentable { .. })) => {
                Err(EvalError::Unrepresentable(problem.to_string()))
            }
            Some(Err(NoValue::TooDeep)) => Err(EvalError::Fault(NoValue::TooDeep.to_string())),
            None => Err(EvalError::Fault("the evaluation gave nothing".to_owned())),
        }
    }
}

/// Whether only the last member of `path` is missing, from an object.
fn lacks(missing: Missing, path: &Path) -> bool {
    missing.from == MissingFrom::Object && missing.found + 1 == path.members.len()
}

/// The CEL timestamp at `nanos`, or the nearest one that the calendar has.
fn timestamp(nanos: i128) -> CelTimestamp {
    let nanos = i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX });
    CelTimestamp::from(DateTime::from_timestamp_nanos(nanos).fixed_offset())
}

/// Resolves the variables that the rewriting made.
impl VariableResolver for Evaluation<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        // All other names are asked for too: a comprehension's variable, a type.
        let name = variable.strip_prefix('@')?;
        match name {
            "now" => return Some(CowVal::owned(timestamp(self.bindings.now()))),
            "wallTime" => return Some(CowVal::owned(timestamp(self.bindings.wall_time()))),
            _ => {}
        }
        let (kind, number) = name.split_at_checked(name.find(|c: char| c.is_ascii_digit())?)?;
        let number: usize = number.parse().ok()?;
        match kind {
            "p" => {
                let value = self.read(number)?.1.ok()?;
                Some(CowVal::Owned(values::wrap(value)))
            }
            "has" => self.has(number).map(owned_bool),
            "in" => self.is_in(number).map(owned_bool),
            "re" => Some(CowVal::Borrowed(self.program.uses.patterns.get(number)?)),
            "list" => {
                Some(CowVal::Owned(values::wrap(self.program.uses.lists.get(number)?.clone())))
            }
            _ => None,
        }
    }
}
