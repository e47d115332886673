//! Turns the parsed expression into the one that is evaluated.
//!
//! One walk visits every node. It resolves names against the site's roots and calls against the functions
//! that exist, and it notes the paths that are read. Where the CEL crate alone would not do, it changes the
//! tree:
//!
//! - a static path becomes one variable, which the evaluation looks up in the shared data in one go; the
//!   question whether it exists, `has(…)` or `'…' in …`, becomes one too;
//! - a list of literals to the right of `in` is made once, here;
//! - what multiplies work pays for it first (`@charge`, `@tick`; see `work`);
//! - a few calls go to our own functions, because the CEL crate's are wrong or unbounded (see `functions`).
//!
//! Names with `@` cannot be written in CEL, so no expression can clash with one or forge one. The walk
//! recurses, and so does the evaluation of its result: `syntax` has bounded the depth of the tree.

use std::collections::HashMap;
use std::sync::Arc;

use cel::common::ast::{CallExpr, EntryExpr, Expr, ListExpr, MapExpr, SelectExpr};
use cel::{Env, IdedExpr};

use self::nodes::{call, ident, is_small, qualified};
use super::functions::Pattern;
use super::operations::Operation;
use super::references::{DynamicReads, Path, PathEnd, first, static_path};
use super::roots::{Root, Roots};
use super::syntax::Places;
use super::{CompileError, MISTAKES, operations};
use crate::language::value::Value;
use crate::source::nearest;

mod calls;
mod folds;
mod nodes;

pub(super) use self::nodes::{capture, literal};

/// What identifiers may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Names {
    /// These roots and local variables, nothing else.
    Roots(Roots),
    /// Anything: the caller binds the variables. For the CEL suite.
    Open,
}

/// What an expression refers to.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// The static paths that are read, each once; `@p0` is the first.
    pub(super) paths: Vec<Path>,
    /// The operations between a static path and a literal.
    pub(super) operations: Vec<Operation>,
    /// The literal patterns of `matches`; `@re0` is the first.
    pub(super) patterns: Vec<Pattern>,
    /// The lists of literals to the right of `in`; `@list0` is the first.
    pub(super) lists: Vec<Value>,
    /// The members that are read of values that no static path leads to.
    pub(super) dynamic: DynamicReads,
    /// Whether `now()` is called.
    pub(super) pinned: bool,
}

/// The walk, and what it gathers.
pub(super) struct Rewriter<'a> {
    env: &'a Env,
    names: Names,
    places: &'a Places,
    /// The variables of the comprehensions around the current node, outermost first.
    locals: Vec<String>,
    /// The number of each path that was noted.
    numbers: HashMap<(Root, Vec<Arc<str>>, PathEnd), usize>,
    /// How many constructs around the current node may keep it from being evaluated, or may ignore that it fails.
    guards: usize,
    pub(super) uses: Uses,
    /// What is wrong, in the order of the walk.
    pub(super) errors: Vec<CompileError>,
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(env: &'a Env, names: Names, places: &'a Places) -> Self {
        Self {
            env,
            names,
            places,
            locals: Vec::new(),
            numbers: HashMap::new(),
            guards: 0,
            uses: Uses::default(),
            errors: Vec::new(),
        }
    }

    /// Rewrites `expr`, whose value is used.
    pub(super) fn expr(&mut self, expr: IdedExpr) -> IdedExpr {
        if let Some(variable) = self.path(&expr, PathEnd::Value) {
            return variable;
        }
        let id = expr.id;
        let rewritten = match expr.expr {
            Expr::Ident(name) => self.ident(id, name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => return self.call(id, call),
            Expr::List(list) => Expr::List(ListExpr {
                elements: list.elements.into_iter().map(|item| self.copied(item)).collect(),
                optional_indices: list.optional_indices,
            }),
            Expr::Map(map) => Expr::Map(self.map(map)),
            Expr::Comprehension(fold) => Expr::Comprehension(Box::new(self.comprehension(*fold))),
            Expr::Struct(message) => {
                let name = &message.type_name;
                let problem =
                    format!("there is no message type `{name}`; write a map: {{'field': value}}");
                self.refuse(id, problem);
                Expr::Struct(message)
            }
            other @ (Expr::Literal(_) | Expr::Unspecified) => other,
        };
        IdedExpr { id, expr: rewritten }
    }

    /// The variable for `expr`, if it is a static path.
    fn path(&mut self, expr: &IdedExpr, end: PathEnd) -> Option<IdedExpr> {
        let (root, members) = self.static_path(expr)?;
        let variable = self.note(expr, root, members, end);
        Some(ident(expr.id, format!("@p{variable}")))
    }

    /// `expr` as a static path, if it is one: its root may be read here, and no local variable hides it.
    fn static_path(&self, expr: &IdedExpr) -> Option<(Root, Vec<Arc<str>>)> {
        let Names::Roots(allowed) = self.names else {
            return None;
        };
        static_path(expr, &|name| {
            let absolute = name.strip_prefix('.');
            let hidden = absolute.is_none() && self.locals.iter().any(|local| local == name);
            let root = Root::named(absolute.unwrap_or(name)).filter(|_| !hidden)?;
            allowed.contains(root).then_some(root)
        })
    }

    /// The number of this path, which is noted once. It is written where `expr`, or a part of it, begins.
    fn note(&mut self, expr: &IdedExpr, root: Root, members: Vec<Arc<str>>, end: PathEnd) -> usize {
        let guarded = self.guards > 0;
        let paths = &mut self.uses.paths;
        let number =
            *self.numbers.entry((root, members, end)).or_insert_with_key(|(_, members, _)| {
                let offset = self.places.of(first(expr).id);
                paths.push(Path { root, members: members.clone(), end, guarded, offset });
                paths.len() - 1
            });
        if let Some(path) = paths.get_mut(number) {
            path.guarded &= guarded;
        }
        number
    }

    /// Rewrites with `rewrite` what a construct around it may keep from being evaluated.
    fn guarded<T>(&mut self, rewrite: impl FnOnce(&mut Self) -> T) -> T {
        self.guards += 1;
        let rewritten = rewrite(self);
        self.guards -= 1;
        rewritten
    }

    /// Notes an operation between a static path and a literal.
    fn note_operation(&mut self, call: &CallExpr) {
        let (Some(kind), [left, right]) = (operations::kind(call), call.args.as_slice()) else {
            return;
        };
        for (path, other) in [(left, right), (right, left)] {
            if let Some((root, members)) = self.static_path(path)
                && let Some(literal) = operations::literal_type(other)
            {
                let offset = self.places.of(first(path).id);
                let operation = Operation { root, members, kind, literal, offset };
                self.uses.operations.push(operation);
            }
        }
    }

    /// Rewrites `expr`, when an index reads an element or a member of it.
    fn indexed(&mut self, expr: IdedExpr, end: PathEnd) -> IdedExpr {
        match self.path(&expr, end) {
            Some(variable) => variable,
            None => self.expr(expr),
        }
    }

    /// Rewrites `expr`, whose value is copied into a new one: the copy is paid for.
    fn copied(&mut self, expr: IdedExpr) -> IdedExpr {
        let expr = self.expr(expr);
        if is_small(&expr) {
            return expr;
        }
        call(expr.id, "@charge", vec![expr])
    }

    fn ident(&mut self, id: u64, name: String) -> Expr {
        let plain = name.strip_prefix('.').unwrap_or(&name);
        if !self.locals.contains(&name) && self.env.types().find_type(plain).is_none() {
            self.unknown(id, plain);
        }
        Expr::Ident(name)
    }

    /// Reports an identifier that is not a local variable, a type or a root that may be read here.
    fn unknown(&mut self, id: u64, name: &str) {
        let Names::Roots(allowed) = self.names else {
            return;
        };
        if self.has_enough() {
            return;
        }
        let here = if allowed == Roots::NONE {
            "no binding is in scope here".to_owned()
        } else {
            format!("in scope here: {allowed}")
        };
        let message = if Root::named(name).is_some() {
            format!("`{name}` is not in scope; {here}")
        } else {
            match nearest(name, allowed.iter().map(Root::name)) {
                Some(near) => {
                    format!("`{name}` is unknown; did you mean `{near}`? {}", capital(&here))
                }
                None => format!("`{name}` is unknown; {here}"),
            }
        };
        self.refuse(id, message);
    }

    fn refuse(&mut self, id: u64, message: String) {
        self.refuse_at(self.places.of(id), message);
    }

    fn refuse_at(&mut self, offset: usize, message: String) {
        if !self.has_enough() {
            self.errors.push(CompileError { message, offset });
        }
    }

    /// Whether no more mistakes are to be told.
    fn has_enough(&self) -> bool {
        self.errors.len() >= MISTAKES
    }

    /// A selection that is not a static path: a type's qualified name, `has(…)`, or a member of a new value.
    fn select(&mut self, mut select: SelectExpr) -> Expr {
        if !select.test && self.is_type(&select) {
            return Expr::Select(select);
        }
        // `has(root.a.b)` asks the value `root.a` whether it has a `b`.
        if select.test
            && let Some(presence) = self.presence(&select.operand, &select.field, "has")
        {
            return presence;
        }
        self.uses.dynamic.add(&select.field);
        select.operand = Box::new(self.expr(*select.operand));
        Expr::Select(select)
    }

    /// The variable that asks whether the static path `operand` has this `member`.
    fn presence(&mut self, operand: &IdedExpr, member: &str, kind: &str) -> Option<Expr> {
        let (root, mut members) = self.static_path(operand)?;
        members.push(Arc::from(member));
        let variable = self.note(operand, root, members, PathEnd::Presence);
        Some(Expr::Ident(format!("@{kind}{variable}")))
    }

    /// Whether `select` is a type's qualified name, such as `google.protobuf.Duration`.
    fn is_type(&self, select: &SelectExpr) -> bool {
        let name = qualified(&select.operand).map(|space| format!("{space}.{}", select.field));
        name.is_some_and(|name| {
            let name = name.trim_start_matches('.');
            self.env.types().find_type(name).is_some()
        })
    }

    fn map(&mut self, map: MapExpr) -> MapExpr {
        let mut entries = map.entries;
        for entry in &mut entries {
            if let EntryExpr::MapEntry(member) = &mut entry.expr {
                member.key = self.copied(std::mem::take(&mut member.key));
                member.value = self.copied(std::mem::take(&mut member.value));
            }
        }
        MapExpr { entries }
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
