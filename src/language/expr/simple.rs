//! Expressions that only build an object: `{'id': execution.id, 'kind': 'charge'}`.
//!
//! The body of an audit looks like this. Every member is a literal or a path, so the CEL crate's evaluator
//! would add nothing but cost: many times that of the members.

use std::collections::HashSet;
use std::sync::Arc;

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, LiteralValue, MapExpr};

use super::convert::{self, NoValue};
use super::rewrite::literal;
use super::{Bindings, EvalError, fault};
use crate::language::expr::Path;
use crate::language::value::{Map, Value};

/// A rewritten expression that calls nothing.
#[derive(Debug)]
pub(super) enum Simple {
    /// The value at the path of this number.
    Path(usize),
    /// A literal.
    Literal(Value),
    /// An object of these.
    Object {
        /// Its names, in the order of the result. The map is copied and filled, so that no name is looked up.
        names: Map,
        /// Its members in the order of evaluation, which is as written, each with its position in `names`.
        members: Box<[(usize, Self)]>,
    },
}

impl Simple {
    /// `expr`, if it is simple.
    pub(super) fn of(expr: &IdedExpr) -> Option<Self> {
        match &expr.expr {
            Expr::Ident(name) => Some(Self::Path(name.strip_prefix("@p")?.parse().ok()?)),
            Expr::Map(map) => Self::object(map),
            Expr::Literal(_) => literal(expr).map(Self::Literal),
            // The charge is for a copy, and here nothing is copied.
            Expr::Call(call) if call.func_name == "@charge" => Self::of(call.args.first()?),
            _ => None,
        }
    }

    fn object(map: &MapExpr) -> Option<Self> {
        let mut written: Vec<(Arc<str>, Self)> = Vec::with_capacity(map.entries.len());
        let mut known = HashSet::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return None;
            };
            let Expr::Literal(LiteralValue::String(name)) = &entry.key.expr else {
                return None;
            };
            let name: Arc<str> = name.inner().into();
            // The evaluator reports a name that is written twice.
            if entry.optional || !known.insert(Arc::clone(&name)) {
                return None;
            }
            written.push((name, Self::of(&entry.value)?));
        }
        let mut names: Map =
            written.iter().map(|(name, _)| (Arc::clone(name), Value::Null)).collect();
        names.sort_unstable_keys();
        let placed = |(name, value): (Arc<str>, Self)| Some((names.get_index_of(&name)?, value));
        let members: Option<Box<[_]>> = written.into_iter().map(placed).collect();
        Some(Self::Object { members: members?, names })
    }

    /// Its value, at `depth` levels below the whole expression, whose paths are `paths`.
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
                for (position, member) in members {
                    let value = member.evaluate(paths, bindings, depth + 1)?;
                    if let Some((_, member)) = map.get_index_mut(*position) {
                        *member = value;
                    }
                }
                Ok(Value::Object(Arc::new(map)))
            }
        }
    }
}
