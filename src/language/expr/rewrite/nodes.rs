//! Tells what kind a node is, and makes new nodes.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};

use super::super::convert::EXACT;
use crate::language::value::Value;

pub(super) fn is_operator(call: &CallExpr) -> bool {
    let name = call.func_name.as_str();
    let other = matches!(
        name,
        operators::CONDITIONAL
            | operators::ADD
            | operators::INDEX
            | operators::OPT_INDEX
            | operators::OPT_SELECT
            | operators::IN
            | operators::NOT_STRICTLY_FALSE
    );
    call.target.is_none() && (other || gives_scalar(name))
}

/// Whether this operator's result is a boolean or a number.
fn gives_scalar(name: &str) -> bool {
    matches!(
        name,
        operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::GREATER_EQUALS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::LESS
            | operators::NEGATE
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
    )
}

/// Whether `expr` is a literal, but not bytes.
pub(super) fn is_scalar(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Expr::Literal(literal) if !matches!(literal, LiteralValue::Bytes(_)))
}

/// The list that `expr` writes, if each element is a literal with one form in the data model: then a
/// comparison with it has the same result.
pub(super) fn literal_list(expr: &IdedExpr) -> Option<Value> {
    let Expr::List(list) = &expr.expr else {
        return None;
    };
    let items: Option<Vec<Value>> = list.elements.iter().map(literal).collect();
    items.filter(|_| list.optional_indices.is_empty()).map(Value::array)
}

/// The literal `expr` as a value of the data model, if it has exactly one form there.
pub(in super::super) fn literal(expr: &IdedExpr) -> Option<Value> {
    match &expr.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(Value::from(text.inner())),
        Expr::Literal(LiteralValue::Boolean(bool)) => Some(Value::Bool(*bool.inner())),
        Expr::Literal(LiteralValue::Null) => Some(Value::Null),
        Expr::Literal(LiteralValue::Double(double)) => Value::number(*double.inner()),
        Expr::Literal(LiteralValue::Int(int)) if int.inner().unsigned_abs() <= EXACT =>
        {
            #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
            Value::number(*int.inner() as f64)
        }
        _ => None,
    }
}

/// Whether copying the value of the rewritten `expr` costs nothing: a literal, a shared value, a boolean.
pub(super) fn is_small(expr: &IdedExpr) -> bool {
    match &expr.expr {
        Expr::Literal(_) => true,
        Expr::Ident(name) => name.starts_with('@'),
        Expr::Select(select) => select.test,
        Expr::List(list) => list.elements.is_empty(),
        Expr::Call(call) => match call.func_name.as_str() {
            "@charge" | "@equals" | "@contains" => true,
            name => gives_scalar(name),
        },
        _ => false,
    }
}

/// The qualified name that `expr` writes: `a`, `a.b`.
pub(super) fn qualified(expr: &IdedExpr) -> Option<String> {
    let mut names = Vec::new();
    let mut expr = &expr.expr;
    loop {
        match expr {
            Expr::Ident(name) => {
                names.push(name.as_str());
                names.reverse();
                return Some(names.join("."));
            }
            Expr::Select(select) if !select.test => {
                names.push(select.field.as_str());
                expr = &select.operand.expr;
            }
            _ => return None,
        }
    }
}

/// `@capture(expr)`, where `expr` is the whole expression.
pub(in super::super) fn capture(expr: IdedExpr) -> IdedExpr {
    call(expr.id, "@capture", vec![expr])
}

pub(super) fn ident(id: u64, name: String) -> IdedExpr {
    IdedExpr { id, expr: Expr::Ident(name) }
}

pub(super) fn call(id: u64, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }) }
}

/// `@tick(turn, expr)`: `expr`, once its turn is paid for.
pub(super) fn tick(id: u64, turn: usize, expr: IdedExpr) -> IdedExpr {
    let units = i64::try_from(turn).unwrap_or(i64::MAX);
    let units = IdedExpr { id, expr: Expr::Literal(LiteralValue::Int(units.into())) };
    call(id, "@tick", vec![units, expr])
}
