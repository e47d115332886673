//! Operations between a static path and a literal: enough to find some mistakes of types before there is data.

use std::sync::Arc;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};

use super::roots::Root;

/// An operation whose one side is a static path, and whose other side is a literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Where the path starts.
    pub root: Root,
    /// The members along it.
    pub members: Vec<Arc<str>>,
    /// What is done.
    pub kind: OperationKind,
    /// The other side.
    pub literal: LiteralType,
    /// Where the path is written: characters from the start of the body.
    pub offset: usize,
}

/// What an [`Operation`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// `==`, `!=`, or `in` a list of literals.
    Equality,
    /// `<` and the like.
    Order,
    /// `+` and the like.
    Arithmetic,
}

/// The type of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiteralType {
    /// `true` or `false`.
    Boolean,
    /// A number without a point.
    Integer(i64),
    /// A number with a point.
    Double,
    /// A text.
    String,
}

/// What `call` does, if it is an operation of two sides.
pub(super) fn kind(call: &CallExpr) -> Option<OperationKind> {
    Some(match call.func_name.as_str() {
        operators::EQUALS | operators::NOT_EQUALS | operators::IN => OperationKind::Equality,
        operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS => OperationKind::Order,
        operators::ADD
        | operators::SUBSTRACT
        | operators::MULTIPLY
        | operators::DIVIDE
        | operators::MODULO => OperationKind::Arithmetic,
        _ => return None,
    })
}

/// The type of `expr`, if it is a literal, or a list of literals of one type.
pub(super) fn literal_type(expr: &IdedExpr) -> Option<LiteralType> {
    match &expr.expr {
        Expr::Literal(LiteralValue::String(_)) => Some(LiteralType::String),
        Expr::Literal(LiteralValue::Boolean(_)) => Some(LiteralType::Boolean),
        Expr::Literal(LiteralValue::Double(_)) => Some(LiteralType::Double),
        Expr::Literal(LiteralValue::Int(int)) => Some(LiteralType::Integer(*int.inner())),
        Expr::List(list) => {
            let mut types = list.elements.iter().map(literal_type);
            let first = types.next()??;
            let alike = |ty: LiteralType| ty.name() == first.name();
            types.all(|ty| ty.is_some_and(alike)).then_some(first)
        }
        _ => None,
    }
}

impl LiteralType {
    /// The JSON type of such a value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Integer(_) | Self::Double => "number",
            Self::String => "string",
        }
    }
}
