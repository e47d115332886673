//! From the parsed expression to the one that is evaluated.
//!
//! One walk does what has to be known of every node: names are resolved against the site's roots, calls
//! against the functions that exist, and the paths that are read are noted. On the way it changes the tree
//! where the crate alone would not do:
//!
//! - a static path becomes one variable, which the scope looks up in the shared data in one go;
//! - what multiplies work pays for it first (`@charge`, `@tick`; see `work`);
//! - a few calls go to our own functions, where the crate's are wrong or unbounded (see `functions`).
//!
//! Names with `@` cannot be written in CEL, so no expression can meet or forge one. The walk recurses, and
//! so does the crate's evaluation of its result: `compile` bounds the depth of the tree before, and runs
//! both parser and walk on a stack of their own.

use std::sync::Arc;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    SourceInfo, operators,
};
use cel::{Env, IdedExpr};

use super::functions::Pattern;
use super::references::{Path, PathEnd, literal_index, static_path};
use super::roots::{Root, Roots, near_miss};
use super::{CompileError, compile, signatures};

/// How many evaluations of an operator one turn of a comprehension costs beside its body.
const TURN: usize = 6;

/// What identifiers may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Names {
    /// These roots, and nothing else that is not local.
    Roots(Roots),
    /// Anything: the caller binds the variables. For the CEL suite.
    Open,
}

/// The walk, and what it gathers.
pub(super) struct Rewriter<'a> {
    env: &'a Env,
    names: Names,
    source: &'a SourceInfo,
    /// The variables of the comprehensions around the current node, outermost first.
    locals: Vec<String>,
    /// The static paths that are read; `@p0` is the first.
    pub(super) paths: Vec<Path>,
    /// The literal patterns of `matches`; `@re0` is the first.
    pub(super) patterns: Vec<Pattern>,
    /// Whether the expression calls `now()` or `wallTime()`.
    pub(super) reads_clock: bool,
    /// What is wrong, in the order of the walk.
    pub(super) errors: Vec<CompileError>,
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(env: &'a Env, names: Names, source: &'a SourceInfo) -> Self {
        Self {
            env,
            names,
            source,
            locals: Vec::new(),
            paths: Vec::new(),
            patterns: Vec::new(),
            reads_clock: false,
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
                elements: list
                    .elements
                    .into_iter()
                    .map(|item| self.kept(item))
                    .collect(),
                optional_indices: list.optional_indices,
            }),
            Expr::Map(map) => Expr::Map(self.map(map)),
            Expr::Comprehension(fold) => Expr::Comprehension(Box::new(self.comprehension(*fold))),
            Expr::Struct(message) => {
                let name = &message.type_name;
                let problem =
                    format!("there is no message type `{name}`; write a map: {{'field': value}}");
                self.refuse_call(id, name, problem);
                Expr::Struct(message)
            }
            other @ (Expr::Literal(_) | Expr::Unspecified) => other,
        };
        IdedExpr {
            id,
            expr: rewritten,
        }
    }

    /// The variable for the static path that `expr` is, if it is one.
    fn path(&mut self, expr: &IdedExpr, end: PathEnd) -> Option<IdedExpr> {
        let (root, members) = self.static_path(expr)?;
        let variable = self.note(root, members, end);
        Some(ident(expr.id, format!("@p{variable}")))
    }

    /// The static path that `expr` is: from a root that may be read here and that no local variable hides.
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

    /// The number of this path, which is noted once.
    fn note(&mut self, root: Root, members: Vec<Arc<str>>, end: PathEnd) -> usize {
        let path = Path { root, members, end };
        let known = self.paths.iter().position(|known| *known == path);
        known.unwrap_or_else(|| {
            self.paths.push(path);
            self.paths.len() - 1
        })
    }

    /// Rewrites `expr`, of which a member is read that is not known before run time.
    fn navigated(&mut self, expr: IdedExpr) -> IdedExpr {
        match self.path(&expr, PathEnd::Unknown) {
            Some(variable) => variable,
            None => self.expr(expr),
        }
    }

    /// Rewrites `expr`, whose value is copied into what is made: that is paid for.
    fn kept(&mut self, expr: IdedExpr) -> IdedExpr {
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

    /// An identifier that is no local variable, no type and no root that may be read here.
    fn unknown(&mut self, id: u64, name: &str) {
        let Names::Roots(allowed) = self.names else {
            return;
        };
        let here = if allowed == Roots::NONE {
            "no binding is in scope here".to_owned()
        } else {
            format!("in scope here: {allowed}")
        };
        let message = if Root::named(name).is_some() {
            format!("`{name}` is not in scope; {here}")
        } else {
            match near_miss(name, allowed.iter().map(Root::name)) {
                Some(near) => format!(
                    "`{name}` is unknown; did you mean `{near}`? {}",
                    capital(&here)
                ),
                None => format!("`{name}` is unknown; {here}"),
            }
        };
        self.refuse(id, message);
    }

    fn refuse(&mut self, id: u64, message: String) {
        let offset = compile::offset(self.source, id);
        self.errors.push(CompileError { message, offset });
    }

    /// Refuses a call, whose place is its bracket, at the name before that.
    fn refuse_call(&mut self, id: u64, name: &str, message: String) {
        let bracket = compile::offset(self.source, id);
        let before: Vec<char> = self.source.source.chars().take(bracket).collect();
        let before: String = before.into_iter().collect();
        let head = before.trim_end();
        let offset = match head.strip_suffix(name) {
            Some(head) => head.chars().count(),
            None => bracket,
        };
        self.errors.push(CompileError { message, offset });
    }

    /// A selection that is no static path: a type's qualified name, `has(…)`, or a member of a made value.
    fn select(&mut self, mut select: SelectExpr) -> Expr {
        if !select.test && self.is_type(&select) {
            return Expr::Select(select);
        }
        let read = if select.test {
            self.static_path(&select.operand)
        } else {
            None
        };
        // `has(root.a.b)` asks the value `root.a` whether it has a `b`.
        if let Some((root, mut members)) = read {
            let variable = self.note(root, members.clone(), PathEnd::Presence);
            members.push(Arc::from(select.field.as_str()));
            self.note(root, members, PathEnd::Presence);
            select.operand = Box::new(ident(select.operand.id, format!("@p{variable}")));
        } else {
            select.operand = Box::new(self.expr(*select.operand));
        }
        Expr::Select(select)
    }

    /// Whether `select` spells a type's qualified name, such as `google.protobuf.Duration`.
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
                member.key = self.kept(std::mem::take(&mut member.key));
                member.value = self.kept(std::mem::take(&mut member.value));
            }
        }
        MapExpr { entries }
    }

    fn call(&mut self, id: u64, mut parsed: CallExpr) -> IdedExpr {
        if let Some(space) = parsed
            .target
            .as_deref()
            .and_then(|target| self.namespace(target, &parsed))
        {
            parsed.func_name = format!("{space}.{}", parsed.func_name);
            parsed.target = None;
        }
        if is_operator(&parsed) {
            return self.operator(id, parsed);
        }
        self.function(id, parsed)
    }

    /// The namespace that the target of a call spells: `math` in `math.abs(x)`. As in cel-go, the name of an
    /// existing function decides; for one that does not exist, whether the target could be anything else.
    fn namespace(&self, target: &IdedExpr, parsed: &CallExpr) -> Option<String> {
        let space = qualified(target)?;
        let exists = signatures::is_namespaced(&format!("{space}.{}", parsed.func_name));
        let nothing_else = matches!(self.names, Names::Roots(_))
            && signatures::is_namespace(&space)
            && !self.locals.contains(&space);
        (exists || nothing_else).then_some(space)
    }

    fn operator(&mut self, id: u64, parsed: CallExpr) -> IdedExpr {
        let navigates = matches!(
            parsed.func_name.as_str(),
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT
        );
        if let Some(read) = self.optional_read(id, &parsed) {
            return read;
        }
        let scalar = parsed.args.iter().any(is_scalar);
        let mut args = Vec::with_capacity(parsed.args.len());
        for (index, arg) in parsed.args.into_iter().enumerate() {
            let navigated = navigates && index == 0;
            args.push(if navigated {
                self.navigated(arg)
            } else {
                self.expr(arg)
            });
        }
        // Beside a literal scalar the crate's own comparison is right, and as cheap as that scalar.
        match parsed.func_name.as_str() {
            operators::EQUALS if !scalar => call(id, "@equals", args),
            operators::NOT_EQUALS if !scalar => {
                call(id, operators::LOGICAL_NOT, vec![call(id, "@equals", args)])
            }
            operators::IN => call(id, "@contains", args),
            operators::ADD if !scalar => call(id, "@add", args),
            name => call(id, name, args),
        }
    }

    /// `root.a.?b` or `root.a[?'b']`: the value `root.a` is asked for its `b`, and nothing else.
    fn optional_read(&mut self, id: u64, parsed: &CallExpr) -> Option<IdedExpr> {
        let name = parsed.func_name.as_str();
        if !matches!(name, operators::OPT_INDEX | operators::OPT_SELECT) {
            return None;
        }
        let (operand, member) = literal_index(parsed)?;
        let (root, mut members) = self.static_path(operand)?;
        let variable = self.note(root, members.clone(), PathEnd::Presence);
        members.push(Arc::from(member));
        self.note(root, members, PathEnd::Value);
        let operand = ident(operand.id, format!("@p{variable}"));
        let mut args = parsed.args.iter().skip(1).cloned().collect::<Vec<_>>();
        args.insert(0, operand);
        Some(call(id, name, args))
    }

    fn function(&mut self, id: u64, parsed: CallExpr) -> IdedExpr {
        let CallExpr {
            func_name: name,
            target,
            args,
        } = parsed;
        if let Some(problem) = signatures::problem(&name, target.is_some(), args.len())
            && matches!(self.names, Names::Roots(_))
        {
            self.refuse_call(id, &name, problem);
        }
        match (name.as_str(), target.is_some(), args.len()) {
            ("now", false, 0) => return self.clock(id, "@now"),
            ("wallTime", false, 0) => return self.clock(id, "@wallTime"),
            ("matches", ..) => return self.matches(id, target, args),
            _ => {}
        }
        let walks = !is_constant(&name);
        let target = target.map(|target| self.argument(*target, walks));
        let args: Vec<IdedExpr> = args
            .into_iter()
            .map(|arg| self.argument(arg, walks))
            .collect();
        let ours = match (name.as_str(), target.is_some()) {
            ("duration", false) => "@duration",
            ("getMilliseconds", true) if args.is_empty() => "@getMilliseconds",
            ("indexOf", true) => "@indexOf",
            ("lastIndexOf", true) => "@lastIndexOf",
            ("replace", true) => "@replace",
            ("distinct", true) => "@distinct",
            ("lists.range", false) => {
                return call(id, &name, vec![call(id, "@prepay", args)]);
            }
            _ => {
                let split = name == "split";
                let made = IdedExpr {
                    id,
                    expr: Expr::Call(CallExpr {
                        func_name: name,
                        target: target.map(Box::new),
                        args,
                    }),
                };
                // What it gives may be much larger than what it takes.
                return if split {
                    call(id, "@charge", vec![made])
                } else {
                    made
                };
            }
        };
        call(id, ours, target.into_iter().chain(args).collect())
    }

    /// An argument, paid for where the function goes through it; not where it is a mere scalar.
    fn argument(&mut self, expr: IdedExpr, walks: bool) -> IdedExpr {
        let expr = self.kept(expr);
        let shared = matches!(&expr.expr, Expr::Ident(name) if name.starts_with("@p"));
        if shared && walks {
            return call(expr.id, "@charge", vec![expr]);
        }
        expr
    }

    fn clock(&mut self, id: u64, variable: &str) -> IdedExpr {
        self.reads_clock = true;
        ident(id, variable.to_owned())
    }

    /// `text.matches(pattern)` or `matches(text, pattern)`: a literal pattern is compiled here.
    fn matches(&mut self, id: u64, target: Option<Box<IdedExpr>>, args: Vec<IdedExpr>) -> IdedExpr {
        let mut operands: Vec<IdedExpr> = target
            .map(|target| *target)
            .into_iter()
            .chain(args)
            .collect();
        let literal = match operands.get(1).map(|pattern| (pattern.id, &pattern.expr)) {
            Some((at, Expr::Literal(LiteralValue::String(pattern)))) => {
                Some((at, pattern.inner().to_owned()))
            }
            _ => None,
        };
        let pattern = literal.and_then(|(at, pattern)| self.pattern(at, &pattern));
        if let Some(pattern) = pattern {
            operands.truncate(1);
            let mut operands: Vec<IdedExpr> = operands
                .into_iter()
                .map(|operand| self.kept(operand))
                .collect();
            operands.push(pattern);
            return call(id, "@matches", operands);
        }
        let operands = operands
            .into_iter()
            .map(|operand| self.kept(operand))
            .collect();
        call(id, "@matches", operands)
    }

    fn pattern(&mut self, id: u64, pattern: &str) -> Option<IdedExpr> {
        match super::functions::pattern(pattern) {
            Ok(regex) => {
                self.patterns.push(Pattern::new(regex));
                Some(ident(id, format!("@re{}", self.patterns.len() - 1)))
            }
            // In the open, a pattern that is never reached is no error.
            Err(problem) => {
                if matches!(self.names, Names::Roots(_)) {
                    self.refuse(id, problem);
                }
                None
            }
        }
    }

    fn comprehension(&mut self, fold: ComprehensionExpr) -> ComprehensionExpr {
        let binds = matches!(&fold.loop_cond.expr, Expr::Literal(literal) if is_false(literal));
        let appends = !binds && is_append(&fold);
        let accu_init = self.kept(fold.accu_init);
        let iter_range = self.kept(fold.iter_range);
        let outer = self.locals.len();
        self.locals.push(fold.iter_var.clone());
        self.locals.extend(fold.iter_var2.clone());
        self.locals.push(fold.accu_var.clone());
        let turn = TURN + nodes(&fold.loop_step);
        let (loop_cond, loop_step) = if binds {
            (fold.loop_cond, fold.loop_step)
        } else if appends {
            (fold.loop_cond, self.append(fold.loop_step, turn))
        } else {
            let id = fold.loop_cond.id;
            let cond = self.expr(fold.loop_cond);
            (tick(id, turn, cond), self.step(fold.loop_step))
        };
        let result = self.expr(fold.result);
        self.locals.truncate(outer);
        ComprehensionExpr {
            iter_range,
            iter_var: fold.iter_var,
            iter_var2: fold.iter_var2,
            accu_var: fold.accu_var,
            accu_init,
            loop_cond,
            loop_step,
            result,
        }
    }

    /// The step of `all`, `exists` and `exists_one`, whose shape the crate looks at: only the operands of
    /// its outermost operator are rewritten.
    fn step(&mut self, step: IdedExpr) -> IdedExpr {
        let Expr::Call(parsed) = step.expr else {
            return self.expr(step);
        };
        let args = parsed.args.into_iter().map(|arg| self.expr(arg)).collect();
        call(step.id, &parsed.func_name, args)
    }

    /// The step of `map` and `filter`, `[guard ?] @result + [item] [: @result]`, whose shape lets the crate
    /// append in place. The turn is paid for in the guard, or else in the item.
    fn append(&mut self, step: IdedExpr, turn: usize) -> IdedExpr {
        let id = step.id;
        let Expr::Call(mut parsed) = step.expr else {
            return step;
        };
        if parsed.func_name == operators::CONDITIONAL {
            let mut args = parsed.args.into_iter();
            let (guard, then, otherwise) = (args.next(), args.next(), args.next());
            let guard = guard.map(|guard| {
                let guard = self.expr(guard);
                tick(guard.id, turn, guard)
            });
            let then = then.map(|then| self.append(then, 0));
            parsed.args = guard.into_iter().chain(then).chain(otherwise).collect();
            return IdedExpr {
                id,
                expr: Expr::Call(parsed),
            };
        }
        for arg in &mut parsed.args {
            if let Expr::List(list) = &mut arg.expr {
                let items = std::mem::take(&mut list.elements);
                list.elements = items
                    .into_iter()
                    .map(|item| self.turned(item, turn))
                    .collect();
            }
        }
        IdedExpr {
            id,
            expr: Expr::Call(parsed),
        }
    }

    fn turned(&mut self, item: IdedExpr, turn: usize) -> IdedExpr {
        let item = self.kept(item);
        if turn == 0 {
            item
        } else {
            tick(item.id, turn, item)
        }
    }
}

/// Whether the function of this name takes the same time whatever its arguments hold, or pays for itself.
fn is_constant(name: &str) -> bool {
    matches!(
        name,
        "size"
            | "type"
            | "dyn"
            | "startsWith"
            | "endsWith"
            | "first"
            | "toJson"
            | "fromJson"
            | "replace"
            | "distinct"
            | "or"
            | "orValue"
            | "hasValue"
            | "value"
    ) || ["math.", "sets.", "optional.", "get"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Whether the crate runs `fold` by appending to a list in place.
fn is_append(fold: &ComprehensionExpr) -> bool {
    let accumulates =
        |expr: &IdedExpr| matches!(&expr.expr, Expr::Ident(name) if *name == fold.accu_var);
    let appends = |expr: &IdedExpr| match &expr.expr {
        Expr::Call(call) if call.func_name == operators::ADD => match call.args.as_slice() {
            [left, right] => accumulates(left) && matches!(right.expr, Expr::List(_)),
            _ => false,
        },
        _ => false,
    };
    match &fold.loop_step.expr {
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => {
            match call.args.as_slice() {
                [_, then, otherwise] => appends(then) && accumulates(otherwise),
                _ => false,
            }
        }
        _ => appends(&fold.loop_step),
    }
}

fn is_false(literal: &LiteralValue) -> bool {
    matches!(literal, LiteralValue::Boolean(bool) if !*bool.inner())
}

fn is_operator(call: &CallExpr) -> bool {
    call.target.is_none()
        && matches!(
            call.func_name.as_str(),
            operators::CONDITIONAL
                | operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::SUBSTRACT
                | operators::ADD
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO
                | operators::EQUALS
                | operators::NOT_EQUALS
                | operators::GREATER_EQUALS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::LESS
                | operators::NEGATE
                | operators::INDEX
                | operators::OPT_INDEX
                | operators::OPT_SELECT
                | operators::IN
                | operators::NOT_STRICTLY_FALSE
        )
}

/// A literal that is no container and no bytes.
fn is_scalar(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Expr::Literal(literal) if !matches!(literal, LiteralValue::Bytes(_)))
}

/// Whether the value of the rewritten `expr` costs nothing to copy: a literal, a shared value, a boolean.
fn is_small(expr: &IdedExpr) -> bool {
    match &expr.expr {
        Expr::Literal(_) => true,
        Expr::Ident(name) => name.starts_with('@'),
        Expr::Select(select) => select.test,
        Expr::List(list) => list.elements.is_empty(),
        Expr::Call(call) => matches!(
            call.func_name.as_str(),
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
                | "@charge"
                | "@equals"
                | "@contains"
        ),
        _ => false,
    }
}

/// The qualified name that `expr` spells: `a`, `a.b`.
fn qualified(expr: &IdedExpr) -> Option<String> {
    match &expr.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => {
            Some(format!("{}.{}", qualified(&select.operand)?, select.field))
        }
        _ => None,
    }
}

/// The number of nodes of `expr`.
pub(super) fn nodes(expr: &IdedExpr) -> usize {
    let mut below = Vec::new();
    compile::children(&expr.expr, &mut below);
    1 + below.into_iter().map(nodes).sum::<usize>()
}

/// `@give(expr)`: the whole expression, whose result leaves the evaluator.
pub(super) fn giving(expr: IdedExpr) -> IdedExpr {
    call(expr.id, "@give", vec![expr])
}

fn ident(id: u64, name: String) -> IdedExpr {
    IdedExpr {
        id,
        expr: Expr::Ident(name),
    }
}

fn call(id: u64, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr {
        id,
        expr: Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: None,
            args,
        }),
    }
}

/// `@tick(turn, expr)`: `expr`, once its turn is paid for.
fn tick(id: u64, turn: usize, expr: IdedExpr) -> IdedExpr {
    let units = i64::try_from(turn).unwrap_or(i64::MAX);
    let units = IdedExpr {
        id,
        expr: Expr::Literal(LiteralValue::Int(units.into())),
    };
    call(id, "@tick", vec![units, expr])
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}
