//! Calls of operators and functions: ours replace the CEL crate's, and work is paid for before it is done.

use std::sync::Arc;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};

use super::super::references::{PathEnd, first, literal_index};
use super::super::{functions, signatures};
use super::nodes::{call, ident, is_operator, is_scalar, literal_list, qualified};
use super::{Names, Rewriter};

impl Rewriter<'_> {
    /// Rewrites a call of an operator, of a namespace's function, or of any other function.
    pub(super) fn call(&mut self, id: u64, mut parsed: CallExpr) -> IdedExpr {
        let mut place = self.places.of(id);
        if let Some(target) = parsed.target.as_deref()
            && let Some(space) = self.namespace(target, &parsed)
        {
            place = self.places.of(first(target).id);
            parsed.func_name = format!("{space}.{}", parsed.func_name);
            parsed.target = None;
        }
        if is_operator(&parsed) {
            return self.operator(id, parsed);
        }
        self.function(id, place, parsed)
    }

    /// The namespace that the target of a call names: `math` in `math.abs(x)`. As in cel-go, it is one if the
    /// function exists. If none does, it is one if the target cannot be anything else.
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
        if let Some(read) = self.guarded(|this| this.optional_read(id, &parsed)) {
            return read;
        }
        self.note_operation(&parsed);
        if parsed.func_name == operators::IN
            && let Some(found) = self.is_in(id, &parsed)
        {
            return found;
        }
        let scalar = parsed.args.iter().any(is_scalar);
        let key = if navigates { Some(self.key(&parsed)) } else { None };
        let mut args = Vec::with_capacity(parsed.args.len());
        for (index, arg) in parsed.args.into_iter().enumerate() {
            args.push(match (key, parsed.func_name.as_str()) {
                (Some(end), _) if index == 0 => self.indexed(arg, end),
                // Of a condition, one branch is evaluated. Of `&&` and `||`, either side may decide alone.
                (_, operators::CONDITIONAL) if index > 0 => self.guarded(|this| this.expr(arg)),
                (_, operators::LOGICAL_AND | operators::LOGICAL_OR) => {
                    self.guarded(|this| this.expr(arg))
                }
                _ => self.expr(arg),
            });
        }
        // With a literal scalar on one side, the CEL crate's own comparison is right and cheap.
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

    /// How `operand[key]` ends the path `operand`: with an element at a literal position, or with a member
    /// that only the evaluation knows.
    fn key(&mut self, parsed: &CallExpr) -> PathEnd {
        let key = parsed.args.get(1).map(|key| &key.expr);
        let is_path =
            parsed.args.first().is_some_and(|operand| self.static_path(operand).is_some());
        match key {
            Some(Expr::Literal(LiteralValue::String(member))) => {
                self.uses.dynamic.add(member.inner());
                PathEnd::Value
            }
            Some(Expr::Literal(_)) => PathEnd::Value,
            // For a path, this is noted with the path itself.
            _ if is_path => PathEnd::Unknown,
            _ => {
                self.uses.dynamic.add_any();
                PathEnd::Unknown
            }
        }
    }

    /// `'b' in root.a`, or `x in ['a', 'b']`.
    fn is_in(&mut self, id: u64, parsed: &CallExpr) -> Option<IdedExpr> {
        let [value, container] = parsed.args.as_slice() else {
            return None;
        };
        if let Expr::Literal(LiteralValue::String(member)) = &value.expr {
            let presence = self.presence(container, member.inner(), "in");
            if presence.is_none() {
                self.uses.dynamic.add(member.inner());
            }
            return presence.map(|expr| IdedExpr { id, expr });
        }
        if !matches!(self.names, Names::Roots(_)) {
            return None;
        }
        self.uses.lists.push(literal_list(container)?);
        let list = ident(container.id, format!("@list{}", self.uses.lists.len() - 1));
        let value = self.expr(value.clone());
        Some(call(id, "@contains", vec![value, list]))
    }

    /// `root.a.?b` or `root.a[?'b']`: reads only the member `b` of the value `root.a`.
    fn optional_read(&mut self, id: u64, parsed: &CallExpr) -> Option<IdedExpr> {
        let name = parsed.func_name.as_str();
        if !matches!(name, operators::OPT_INDEX | operators::OPT_SELECT) {
            return None;
        }
        let (operand, member) = literal_index(parsed)?;
        let (root, mut members) = self.static_path(operand)?;
        let variable = self.note(operand, root, members.clone(), PathEnd::Presence);
        members.push(Arc::from(member));
        self.note(operand, root, members, PathEnd::Value);
        let operand = ident(operand.id, format!("@p{variable}"));
        let mut args = parsed.args.iter().skip(1).cloned().collect::<Vec<_>>();
        args.insert(0, operand);
        Some(call(id, name, args))
    }

    /// Rewrites the call of a function whose name is written at `place`.
    fn function(&mut self, id: u64, place: usize, parsed: CallExpr) -> IdedExpr {
        let CallExpr { func_name: name, target, args } = parsed;
        if matches!(self.names, Names::Roots(_))
            && !self.has_enough()
            && let Some(problem) = signatures::problem(&name, target.is_some(), args.len())
        {
            self.refuse_at(place, problem);
        }
        match (name.as_str(), target.is_some(), args.len()) {
            ("now", false, 0) => {
                self.uses.pinned = true;
                return ident(id, "@now".to_owned());
            }
            ("wallTime", false, 0) => return ident(id, "@wallTime".to_owned()),
            ("matches", ..) => return self.matches(id, target, args),
            _ => {}
        }
        let walks = !is_constant(&name);
        let target = target.map(|target| self.argument(*target, walks));
        // Sorting goes through a list more than once.
        let target = match name.as_str() {
            "sort" | "@sortByAssociatedKeys" => {
                target.map(|target| call(target.id, "@charge", vec![target]))
            }
            _ => target,
        };
        let mut args: Vec<IdedExpr> =
            args.into_iter().map(|arg| self.argument(arg, walks)).collect();
        if name == "format" {
            args = args.into_iter().map(|arg| call(arg.id, "@charge", vec![arg])).collect();
        }
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
                // The result may be much larger than the argument.
                return if split { call(id, "@charge", vec![made]) } else { made };
            }
        };
        call(id, ours, target.into_iter().chain(args).collect())
    }

    /// Rewrites an argument. It is paid for if the function goes through it (`walks`).
    fn argument(&mut self, expr: IdedExpr, walks: bool) -> IdedExpr {
        let expr = self.copied(expr);
        let shared = matches!(&expr.expr, Expr::Ident(name) if name.starts_with("@p"));
        if shared && walks {
            return call(expr.id, "@charge", vec![expr]);
        }
        expr
    }

    /// `text.matches(pattern)` or `matches(text, pattern)`: a literal pattern is checked here.
    fn matches(&mut self, id: u64, target: Option<Box<IdedExpr>>, args: Vec<IdedExpr>) -> IdedExpr {
        let mut operands: Vec<IdedExpr> =
            target.map(|target| *target).into_iter().chain(args).collect();
        let pattern = match operands.get(1) {
            Some(IdedExpr { id, expr: Expr::Literal(LiteralValue::String(pattern)) }) => {
                self.pattern(*id, pattern.inner())
            }
            _ => None,
        };
        if pattern.is_some() {
            operands.truncate(1);
        }
        let mut operands: Vec<IdedExpr> =
            operands.into_iter().map(|operand| self.copied(operand)).collect();
        operands.extend(pattern);
        call(id, "@matches", operands)
    }

    fn pattern(&mut self, id: u64, pattern: &str) -> Option<IdedExpr> {
        match functions::Pattern::new(pattern) {
            Ok(pattern) => {
                self.uses.patterns.push(pattern);
                Some(ident(id, format!("@re{}", self.uses.patterns.len() - 1)))
            }
            // For the CEL suite, a wrong pattern that is never reached is not an error.
            Err(problem) => {
                if matches!(self.names, Names::Roots(_)) {
                    self.refuse(id, problem);
                }
                None
            }
        }
    }
}

/// Whether this function takes the same time whatever its arguments hold, or pays for itself.
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
    ) || ["math.", "sets.", "optional.", "get"].iter().any(|prefix| name.starts_with(prefix))
}
