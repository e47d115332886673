//! One evaluation: the bindings that the program names, and the crate's evaluator over them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::common::types::CelTimestamp;
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::{Context, IdedExpr};
use chrono::DateTime;

use super::convert::NoValue;
use super::functions::Given;
use super::roots::Root;
use super::work::Account;
use super::{Bindings, EvalError, Inner, environment, fault, values};
use crate::language::value::Value;

/// What an evaluation reads. The roots are asked for once, before it begins: the crate's evaluator may not
/// borrow what is not `Sync`, and a root that is a host's object is still opened only where it is read.
pub(super) struct Scope<'a> {
    program: &'a Inner,
    /// By the root's place in [`Root::ALL`]; `None` where the program does not name it, or it is unset.
    roots: [Option<Value>; Root::ALL.len()],
    now: i128,
    wall_time: i128,
}

impl<'a> Scope<'a> {
    /// The scope of an evaluation of `program`.
    pub(super) fn of(program: &'a Inner, bindings: &dyn Bindings) -> Self {
        Self {
            program,
            roots: Root::ALL.map(|root| {
                let named = program.roots.contains(root);
                if named { bindings.root(root) } else { None }
            }),
            now: if program.reads_clock { bindings.now() } else { 0 },
            wall_time: if program.reads_clock { bindings.wall_time() } else { 0 },
        }
    }

    /// The value of `root`.
    pub(super) fn root(&self, root: Root) -> Option<&Value> {
        let place = Root::ALL.iter().position(|other| *other == root)?;
        self.roots.get(place)?.as_ref()
    }

    /// The value at the end of the program's path of this number.
    pub(super) fn path(&self, number: usize) -> Option<Value> {
        let path = self.program.paths.get(number)?;
        walk(self.root(path.root)?, &path.members)
    }

    /// Evaluates `expr`, which ends in a call of `@give`, to a value of the data model.
    pub(super) fn evaluate(&self, expr: &IdedExpr) -> Result<Value, EvalError> {
        let account = Account::open();
        let mut context = Context::with_env(Arc::clone(environment::shared()));
        context.set_variable_resolver(self);
        // A panic in the crate or in a host's object is this expression's fault, not the worker's.
        let evaluation = AssertUnwindSafe(|| cel::Value::resolve(expr, &context));
        let Ok(result) = catch_unwind(evaluation) else {
            return Err(EvalError::Fault("the evaluator failed on this expression".to_owned()));
        };
        // An expression may swallow the fault that stopped its work: `slow || true`.
        if account.overdrawn() {
            return Err(EvalError::Fault(fault::TOO_MUCH_WORK.to_owned()));
        }
        let given = result.map_err(|error| EvalError::Fault(fault::describe(&error, self)))?;
        let given = match &given {
            cel::Value::Opaque(given) => given.downcast_ref::<Given>(),
            _ => None,
        };
        match given {
            Some(Given(Ok(value))) => Ok(value.clone()),
            Some(Given(Err(problem @ NoValue::Unrepresentable { .. }))) => {
                Err(EvalError::Unrepresentable(problem.to_string()))
            }
            Some(Given(Err(NoValue::TooDeep))) => {
                Err(EvalError::Fault(NoValue::TooDeep.to_string()))
            }
            None => Err(EvalError::Fault("the evaluation gave nothing".to_owned())),
        }
    }

    /// The program's paths.
    pub(super) fn paths(&self) -> &[super::Path] {
        &self.program.paths
    }
}

/// The value that `members` lead to from `value`.
fn walk(value: &Value, members: &[Arc<str>]) -> Option<Value> {
    let Some((member, rest)) = members.split_first() else {
        return Some(value.clone());
    };
    match value {
        Value::Object(map) => walk(map.get(member.as_ref())?, rest),
        Value::Native(native) => walk(&native.member(member)?, rest),
        _ => None,
    }
}

/// The CEL timestamp at `nanos`; where that is beyond the calendar, at the epoch's far end of it.
fn timestamp(nanos: i128) -> CelTimestamp {
    let nanos = i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX });
    CelTimestamp::from(DateTime::from_timestamp_nanos(nanos).fixed_offset())
}

/// The variables that the rewriting made.
impl VariableResolver for Scope<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        // Every other name is asked for too: a comprehension's variable, a type.
        let name = variable.strip_prefix('@')?;
        if let Some(number) = name.strip_prefix('p') {
            return self.path(number.parse().ok()?).map(|value| CowVal::Owned(values::wrap(value)));
        }
        if let Some(number) = name.strip_prefix("re") {
            let pattern = self.program.patterns.get(number.parse::<usize>().ok()?)?;
            return Some(CowVal::Borrowed(pattern));
        }
        match name {
            "now" => Some(CowVal::owned(timestamp(self.now))),
            "wallTime" => Some(CowVal::owned(timestamp(self.wall_time))),
            _ => None,
        }
    }
}
