//! Macros: calls that stand for a longer expression.
//!
//! They are those of CEL's standard library, of its optional values, and of the extensions `lists` and
//! `math`. Each becomes exactly what the CEL crate's own parser would make of it, because the crate's
//! evaluator recognises some of these shapes.

use cel::IdedExpr;
use cel::common::ast::{ComprehensionExpr, Expr, ListExpr, LiteralValue, operators};

use super::super::CompileError;
use super::error;
use super::tree::{Made, Tree};

/// What a comprehension gathers.
const RESULT: &str = "@result";

/// The variable of a comprehension that only binds another.
const UNUSED: &str = "#unused";

/// What `optMap` binds its target to.
const TARGET: &str = "@target";

/// What `sortBy` binds its list to.
const SORTED: &str = "@__sortBy_input__";

/// The call of `name` at `place`, or what it stands for if that is a macro.
pub(super) fn call(
    tree: &mut Tree,
    place: usize,
    name: &str,
    target: Option<IdedExpr>,
    args: Vec<IdedExpr>,
) -> Made {
    let mut expansion = Expansion { tree, place };
    let Some(target) = target else {
        return match <[_; 1]>::try_from(args) {
            Ok([member]) if name == operators::HAS => expansion.has(member),
            Ok([arg]) => expansion.call(name, vec![arg]),
            Err(args) => expansion.call(name, args),
        };
    };
    match <[_; 2]>::try_from(args).map_err(<[_; 3]>::try_from) {
        Ok([first, second]) => expansion.of_two(name, target, first, second),
        Err(Ok([variable, guard, item])) if name == operators::MAP => {
            let variable = expansion.variable(&variable)?;
            expansion.gather(target, variable, Some(guard), item)
        }
        Err(Ok(args)) => expansion.of_any(name, target, args.into()),
        Err(Err(args)) => expansion.of_any(name, target, args),
    }
}

/// Where the nodes of an expansion go. All are written where the macro is.
struct Expansion<'t> {
    tree: &'t mut Tree,
    place: usize,
}

/// A comprehension over one variable.
struct Fold {
    range: IdedExpr,
    variable: String,
    gathered: String,
    start: IdedExpr,
    condition: IdedExpr,
    step: IdedExpr,
    result: IdedExpr,
}

impl Expansion<'_> {
    /// `target.name(first, second)`
    fn of_two(&mut self, name: &str, target: IdedExpr, first: IdedExpr, second: IdedExpr) -> Made {
        match name {
            operators::ALL | operators::EXISTS | operators::EXISTS_ONE | "existsOne" => {
                self.test(name, target, &first, second)
            }
            operators::MAP => {
                let variable = self.variable(&first)?;
                self.gather(target, variable, None, second)
            }
            operators::FILTER => {
                let variable = self.variable(&first)?;
                self.gather(target, variable, Some(second), first)
            }
            "optMap" | "optFlatMap" => self.map_optional(name, target, &first, second),
            "sortBy" => self.sort_by(target, &first, second),
            _ => self.of_any(name, target, vec![first, second]),
        }
    }

    /// `target.name(args)`, where the number of arguments does not matter.
    fn of_any(&mut self, name: &str, target: IdedExpr, args: Vec<IdedExpr>) -> Made {
        let is_math = matches!(&target.expr, Expr::Ident(name) if name == "math");
        match name {
            "greatest" if is_math => self.extreme(name, "math.@max", args),
            "least" if is_math => self.extreme(name, "math.@min", args),
            _ => self.tree.call(self.place, name, Some(target), args),
        }
    }

    fn node(&mut self, expr: Expr) -> Made {
        self.tree.node(self.place, expr)
    }

    fn call(&mut self, function: &str, args: Vec<IdedExpr>) -> Made {
        self.tree.call(self.place, function, None, args)
    }

    fn ident(&mut self, name: &str) -> Made {
        self.node(Expr::Ident(name.to_owned()))
    }

    fn bool(&mut self, bool: bool) -> Made {
        self.node(Expr::Literal(LiteralValue::Boolean(bool.into())))
    }

    fn int(&mut self, int: i64) -> Made {
        self.node(Expr::Literal(LiteralValue::Int(int.into())))
    }

    fn list(&mut self, elements: Vec<IdedExpr>) -> Made {
        self.node(Expr::List(ListExpr::new(elements)))
    }

    fn fold(&mut self, fold: Fold) -> Made {
        let Fold { range, variable, gathered, start, condition, step, result } = fold;
        self.node(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: range,
            iter_var: variable,
            iter_var2: None,
            accu_var: gathered,
            accu_init: start,
            loop_cond: condition,
            loop_step: step,
            result,
        })))
    }

    /// `has(a.b)`
    fn has(&mut self, member: IdedExpr) -> Made {
        let IdedExpr { id, expr } = member;
        let Expr::Select(mut select) = expr else {
            let message = "`has` asks for a member that a dot leads to: `has(vars.name)`";
            return Err(error(message, self.tree.place(id)));
        };
        select.test = true;
        self.node(Expr::Select(select))
    }

    /// `range.all(variable, test)`, and its likes.
    fn test(&mut self, name: &str, range: IdedExpr, variable: &IdedExpr, test: IdedExpr) -> Made {
        let variable = self.variable(variable)?;
        let result = self.ident(RESULT)?;
        let (start, condition, step, result) = match name {
            operators::ALL => {
                let gathered = self.ident(RESULT)?;
                let condition = self.call(operators::NOT_STRICTLY_FALSE, vec![gathered])?;
                let gathered = self.ident(RESULT)?;
                let step = self.call(operators::LOGICAL_AND, vec![gathered, test])?;
                (self.bool(true)?, condition, step, result)
            }
            operators::EXISTS => {
                let gathered = self.ident(RESULT)?;
                let none = self.call(operators::LOGICAL_NOT, vec![gathered])?;
                let condition = self.call(operators::NOT_STRICTLY_FALSE, vec![none])?;
                let gathered = self.ident(RESULT)?;
                let step = self.call(operators::LOGICAL_OR, vec![gathered, test])?;
                (self.bool(false)?, condition, step, result)
            }
            _ => {
                let sum = vec![self.ident(RESULT)?, self.int(1)?];
                let sum = self.call(operators::ADD, sum)?;
                let gathered = self.ident(RESULT)?;
                let step = self.call(operators::CONDITIONAL, vec![test, sum, gathered])?;
                let one = self.int(1)?;
                let result = self.call(operators::EQUALS, vec![result, one])?;
                (self.int(0)?, self.bool(true)?, step, result)
            }
        };
        let gathered = RESULT.to_owned();
        self.fold(Fold { range, variable, gathered, start, condition, step, result })
    }

    /// `range.map(variable, item)`, `range.map(variable, guard, item)` and `range.filter(variable, guard)`: a
    /// list of each item for which the guard holds.
    fn gather(
        &mut self,
        range: IdedExpr,
        variable: String,
        guard: Option<IdedExpr>,
        item: IdedExpr,
    ) -> Made {
        let sum = vec![self.ident(RESULT)?, self.list(vec![item])?];
        let mut step = self.call(operators::ADD, sum)?;
        if let Some(guard) = guard {
            let gathered = self.ident(RESULT)?;
            step = self.call(operators::CONDITIONAL, vec![guard, step, gathered])?;
        }
        let (start, condition) = (self.list(Vec::new())?, self.bool(true)?);
        let (gathered, result) = (RESULT.to_owned(), self.ident(RESULT)?);
        self.fold(Fold { range, variable, gathered, start, condition, step, result })
    }

    /// `result` with `name` bound to `value`: a comprehension over nothing.
    fn bind(&mut self, name: &str, value: IdedExpr, result: IdedExpr) -> Made {
        let (range, condition) = (self.list(Vec::new())?, self.bool(false)?);
        let (variable, gathered, step) = (UNUSED.to_owned(), name.to_owned(), self.ident(name)?);
        self.fold(Fold { range, variable, gathered, start: value, condition, step, result })
    }

    /// `target.optMap(variable, item)` is `target.hasValue() ? optional.of(item) : optional.none()`, with the
    /// target's value as the variable. For `optFlatMap`, the item is an optional value already.
    fn map_optional(
        &mut self,
        name: &str,
        target: IdedExpr,
        variable: &IdedExpr,
        item: IdedExpr,
    ) -> Made {
        let variable = self.variable(variable)?;
        let (held, bound) = match &target.expr {
            Expr::Ident(name) => (name.clone(), None),
            _ => (TARGET.to_owned(), Some(target)),
        };
        let has_value = self.asked(&held, "hasValue")?;
        let value = self.asked(&held, "value")?;
        let mut some = self.bind(&variable, value, item)?;
        if name == "optMap" {
            some = self.optional("of", vec![some])?;
        }
        let none = self.optional("none", Vec::new())?;
        let result = self.call(operators::CONDITIONAL, vec![has_value, some, none])?;
        match bound {
            Some(target) => self.bind(TARGET, target, result),
            None => Ok(result),
        }
    }

    /// `name.function()`
    fn asked(&mut self, name: &str, function: &str) -> Made {
        let name = self.ident(name)?;
        self.tree.call(self.place, function, Some(name), Vec::new())
    }

    /// `optional.function(args)`
    fn optional(&mut self, function: &str, args: Vec<IdedExpr>) -> Made {
        let space = self.ident("optional")?;
        self.tree.call(self.place, function, Some(space), args)
    }

    /// `list.sortBy(variable, key)`: the list is sorted by the list of its keys.
    fn sort_by(&mut self, list: IdedExpr, variable: &IdedExpr, key: IdedExpr) -> Made {
        if matches!(list.expr, Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_)) {
            return Err(error("`sortBy` sorts a list", self.tree.place(list.id)));
        }
        let range = self.ident(SORTED)?;
        let variable = self.variable(variable)?;
        let keys = self.gather(range, variable, None, key)?;
        let target = self.ident(SORTED)?;
        let sorted =
            self.tree.call(self.place, "@sortByAssociatedKeys", Some(target), vec![keys])?;
        self.bind(SORTED, list, sorted)
    }

    /// `math.greatest(args)` or `math.least(args)`: of one, of two, or of a list.
    fn extreme(&mut self, name: &str, function: &str, mut args: Vec<IdedExpr>) -> Made {
        let wrong = match args.as_slice() {
            [] => Some(self.place),
            [arg] if is_numbers(arg) => None,
            args => args.iter().find(|arg| !is_number(arg)).map(|arg| self.tree.place(arg.id)),
        };
        if let Some(place) = wrong {
            let message = format!("`math.{name}` takes numbers, or one list of numbers");
            return Err(error(message, place));
        }
        if args.len() > 2 {
            args = vec![self.list(args)?];
        }
        self.call(function, args)
    }

    /// The name of the variable that `expr` declares.
    fn variable(&self, expr: &IdedExpr) -> Result<String, CompileError> {
        if let Expr::Ident(name) = &expr.expr {
            return Ok(name.clone());
        }
        let message = "the name of a variable is wanted here: `list.map(x, x + 1)`";
        Err(error(message, self.tree.place(expr.id)))
    }
}

/// Whether `expr` may be a number.
fn is_number(expr: &IdedExpr) -> bool {
    match &expr.expr {
        Expr::Literal(literal) => matches!(
            literal,
            LiteralValue::Int(_) | LiteralValue::UInt(_) | LiteralValue::Double(_)
        ),
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => false,
        _ => true,
    }
}

/// Whether `expr` writes a list of what may be numbers.
fn is_numbers(expr: &IdedExpr) -> bool {
    match &expr.expr {
        Expr::List(list) => !list.elements.is_empty() && list.elements.iter().all(is_number),
        _ => false,
    }
}
