//! Which parts of the bindings an expression reads, found at compile time.
//!
//! The host decides with this what it need not build or buffer: a body that no expression of a route can
//! reach streams through. So the answer errs on one side only. Where a path is not known (a computed index,
//! a value handed on whole), everything below it counts as reachable.

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
}

/// What an expression does at the end of a [`Path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEnd {
    /// It uses the value there, whatever that holds.
    Value,
    /// A member or element that is computed at run time follows.
    Unknown,
    /// It only asks whether the value is there: `has(step.input.body)`.
    Presence,
}

impl Path {
    /// Whether evaluation may read the member at `members` below `root`, or something in it, by name: the
    /// path leads there or beyond, or turns unknown on the way.
    pub fn may_read(&self, root: Root, members: &[&str]) -> bool {
        if self.root != root {
            return false;
        }
        match self.shared(members) {
            shared if shared == members.len() => true,
            shared => shared == self.members.len() && self.end == PathEnd::Unknown,
        }
    }

    /// Whether evaluation takes a value whole that holds the member at `members` below `root`, or is it.
    pub fn takes_whole(&self, root: Root, members: &[&str]) -> bool {
        self.root == root
            && self.end == PathEnd::Value
            && self.members.len() <= members.len()
            && self.shared(members) == self.members.len()
    }

    /// How many leading members are the same.
    fn shared(&self, members: &[&str]) -> usize {
        let pairs = self.members.iter().zip(members);
        pairs.take_while(|(a, b)| a.as_ref() == **b).count()
    }
}

/// As an expression writes it: `step.input.body`.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.root.name())?;
        self.members.iter().try_for_each(|member| write!(f, ".{member}"))
    }
}

/// The static path that `expr` is, if it is one: a root that no local variable hides, then fields and
/// literal string indices.
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
                members.push(Arc::from(select.field.as_str()));
                expr = &select.operand.expr;
            }
            Expr::Call(call) if call.func_name == operators::INDEX => {
                let (operand, member) = literal_index(call)?;
                members.push(Arc::from(member));
                expr = &operand.expr;
            }
            _ => return None,
        }
    };
    members.reverse();
    Some((root, members))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn path(members: &[&str], end: PathEnd) -> Path {
        Path {
            root: Root::Step,
            members: members.iter().map(|member| Arc::from(*member)).collect(),
            end,
        }
    }

    #[test]
    fn a_path_reads_what_it_leads_to_and_what_it_cannot_exclude() {
        let body = ["input", "body"];
        for (members, end, reads, whole) in [
            (&["input", "body"][..], PathEnd::Value, true, true),
            (&["input", "body", "x"], PathEnd::Value, true, false),
            (&["input", "body"], PathEnd::Presence, true, false),
            (&["input"], PathEnd::Value, false, true),
            (&["input"], PathEnd::Unknown, true, false),
            (&["input"], PathEnd::Presence, false, false),
            (&[], PathEnd::Value, false, true),
            (&[], PathEnd::Unknown, true, false),
            (&["input", "headers"], PathEnd::Value, false, false),
            (&["input", "headers"], PathEnd::Unknown, false, false),
            (&["output"], PathEnd::Value, false, false),
        ] {
            let path = path(members, end);
            assert_eq!(path.may_read(Root::Step, &body), reads, "{path} {end:?}");
            assert_eq!(path.takes_whole(Root::Step, &body), whole, "{path} {end:?}");
            assert!(!path.may_read(Root::Call, &body));
            assert!(!path.takes_whole(Root::Call, &body));
        }
    }
}
