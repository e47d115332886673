//! Objects that an expression only puts together: `{'id': execution.id, 'kind': 'charge'}`.
//!
//! It is what a body for an audit looks like, and every member of it is known to be a literal or a path:
//! the evaluator would add nothing but its price, which is many times that of the members.

use std::sync::Arc;

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, LiteralValue, MapExpr};

use super::convert::{self, NoValue};
use super::rewrite::literal;
use super::{Bindings, EvalError, fault};
use crate::language::expr::Path;
use crate::language::value::{Map, Value};

/// A rewritten expression without a call in it.
#[derive(Debug)]
pub(super) enum Made {
    /// What the path of this number leads to.
    Path(usize),
    /// A literal.
    Literal(Value),
    /// An object of such.
    Object {
        /// Its names, in the order in which they are shown: a copy of it is filled, and no name looked up.
        names: Map,
        /// Its members, in the order in which they are evaluated: as written. With the place of each.
        members: Box<[(usize, Self)]>,
    },
}

impl Made {
    /// `expr`, where it is one.
    pub(super) fn of(expr: &IdedExpr) -> Option<Self> {
        match &expr.expr {
            Expr::Ident(name) => Some(Self::Path(name.strip_prefix("@p")?.parse().ok()?)),
            Expr::Map(map) => Self::object(map),
            Expr::Literal(_) => literal(expr).map(Self::Literal),
            // What is paid for is a copy, and there is none.
            Expr::Call(call) if call.func_name == "@charge" => Self::of(call.args.first()?),
            _ => None,
        }
    }

    fn object(map: &MapExpr) -> Option<Self> {
        let mut written: Vec<(Arc<str>, Self)> = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return None;
            };
            let Expr::Literal(LiteralValue::String(name)) = &entry.key.expr else {
                return None;
            };
            let name: Arc<str> = name.inner().into();
            // A name that is written twice is the evaluator's to refuse.
            if entry.optional || written.iter().any(|(known, _)| *known == name) {
                return None;
            }
            written.push((name, Self::of(&entry.value)?));
        }
        let mut names: Map =
            written.iter().map(|(name, _)| (Arc::clone(name), Value::Null)).collect();
        names.sort_unstable_keys();
        let placed = |(name, made): (Arc<str>, Self)| Some((names.get_index_of(&name)?, made));
        let members: Option<Box<[_]>> = written.into_iter().map(placed).collect();
        Some(Self::Object { members: members?, names })
    }

    /// What it comes to at `depth` below the whole of the expression, whose paths are `paths`.
    pub(super) fn evaluate(
        &self,
        paths: &[Path],
        bindings: &dyn Bindings,
        depth: usize,
    ) -> Result<Value, EvalError> {
        match self {
            Self::Literal(value) => Ok(value.clone()),
            Self::Path(number) => {
                let Some(path) = paths.get(*number) else {
                    return Err(EvalError::Fault("there is no path to read".to_owned()));
                };
                let read = bindings.at(path.root, &path.members);
                let value =
                    read.map_err(|missing| EvalError::Fault(fault::missing(path, missing)))?;
                if depth > 0 && !convert::fits(&value, depth) {
                    return Err(EvalError::Fault(NoValue::TooDeep.to_string()));
                }
                Ok(value)
            }
            Self::Object { names, members } => {
                let mut map = names.clone();
                for (place, made) in members {
                    let value = made.evaluate(paths, bindings, depth + 1)?;
                    if let Some((_, member)) = map.get_index_mut(*place) {
                        *member = value;
                    }
                }
                Ok(Value::Object(Arc::new(map)))
            }
        }
    }
}
