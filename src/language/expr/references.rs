//! Which parts of the bindings an expression reads, found at compile time.
//!
//! From this the host decides what it need not build or buffer: a body that no expression of a route can
//! reach streams through. So the answer may err on one side only. A computed key may name any member; and a
//! member of a value that no static path leads to (an element, an argument) is noted by its name alone.

use std::fmt;
use std::sync::Arc;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};

use super::roots::Root;

/// A static path that an expression reads: `step.input.body` is the root `step` and the members `input`
/// and `body`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where it starts.
    pub root: Root,
    /// The members along it, as far as they are known at compile time.
    pub members: Vec<Arc<str>>,
    /// What happens at its end.
    pub end: PathEnd,
    /// Whether each read of it may be kept from happening: it is in a branch, in an operand of `&&` or `||`, in the
    /// body of a macro, or is optional.
    pub guarded: bool,
    /// Where it is first written: characters from the start of the body.
    pub offset: usize,
}

/// What an expression does at the end of a [`Path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathEnd {
    /// It uses the value there, whatever that holds.
    Value,
    /// A member or element that is computed at run time follows.
    Unknown,
    /// It only asks whether the value is there: `has(step.input.body)`.
    Presence,
}

/// The members that an expression reads of values that no static path leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DynamicReads {
    /// The members that it names.
    members: Vec<Arc<str>>,
    /// Whether it computes the name of one.
    computed: bool,
}

impl DynamicReads {
    /// The member `name` is read.
    pub(super) fn add(&mut self, name: &str) {
        self.members.push(Arc::from(name));
    }

    /// Any member may be read.
    pub(super) const fn add_any(&mut self) {
        self.computed = true;
    }

    /// Whether the member `name` may be read.
    pub(super) fn may_include(&self, name: &str) -> bool {
        self.computed || self.members.iter().any(|member| &**member == name)
    }
}

/// As an expression writes it: `step.input.body`.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.root.name())?;
        self.members.iter().try_for_each(|member| write!(f, ".{member}"))
    }
}

/// `expr` as a static path, if it is one: a root that no local variable hides, then fields and literal string
/// indices.
pub(super) fn static_path(
    expr: &IdedExpr,
    is_root: &impl Fn(&str) -> Option<Root>,
) -> Option<(Root, Vec<Arc<str>>)> {
    let mut members = Vec::new();
    let mut expr = &expr.expr;
    let root = loop {
        match expr {
            Expr::Ident(name) => break is_root(name)?,
            Expr::Select(select) if !select.test => {
                members.push(select.field.as_str());
                expr = &select.operand.expr;
            }
            Expr::Call(call) if call.func_name == operators::INDEX => {
                let (operand, member) = literal_index(call)?;
                members.push(member);
                expr = &operand.expr;
            }
            _ => return None,
        }
    };
    Some((root, members.into_iter().rev().map(Arc::from).collect()))
}

/// The operand and the member of `operand['member']`, or of one of its optional forms.
pub(super) fn literal_index(call: &CallExpr) -> Option<(&IdedExpr, &str)> {
    match call.args.as_slice() {
        [operand, index] => match &index.expr {
            Expr::Literal(LiteralValue::String(member)) => Some((operand, member.inner())),
            _ => None,
        },
        _ => None,
    }
}

/// The node with which the path `expr` begins.
pub(super) fn first(mut expr: &IdedExpr) -> &IdedExpr {
    loop {
        expr = match &expr.expr {
            Expr::Select(select) => &select.operand,
            Expr::Call(call) => match call.args.first() {
                Some(operand) => operand,
                None => return expr,
            },
            _ => return expr,
        };
    }
}
