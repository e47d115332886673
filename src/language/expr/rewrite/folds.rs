//! Comprehensions: each turn is paid for, without changing the shapes that the CEL crate recognises.

use cel::IdedExpr;
use cel::common::ast::{ComprehensionExpr, Expr, LiteralValue, operators};

use super::super::syntax::each_child;
use super::Rewriter;
use super::nodes::{call, tick};

/// What one turn of a comprehension costs beside its body, in units of work.
const TURN: usize = 6;

impl Rewriter<'_> {
    pub(super) fn comprehension(&mut self, fold: ComprehensionExpr) -> ComprehensionExpr {
        let binds = matches!(&fold.loop_cond.expr, Expr::Literal(literal) if is_false(literal));
        let appends = !binds && is_append(&fold);
        let accu_init = self.copied(fold.accu_init);
        let iter_range = self.copied(fold.iter_range);
        let outer = self.locals.len();
        self.locals.push(fold.iter_var.clone());
        self.locals.extend(fold.iter_var2.clone());
        self.locals.push(fold.accu_var.clone());
        let turn = TURN + nodes(&fold.loop_step);
        // Of an empty list there is no turn.
        self.guards += 1;
        let (loop_cond, loop_step) = if binds {
            (fold.loop_cond, fold.loop_step)
        } else if appends {
            (fold.loop_cond, self.append(fold.loop_step, turn))
        } else {
            let id = fold.loop_cond.id;
            let cond = self.expr(fold.loop_cond);
            (tick(id, turn, cond), self.step(fold.loop_step))
        };
        self.guards -= 1;
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

    /// The step of `all`, `exists` and `exists_one`. The CEL crate recognises its shape, so only the operands
    /// of its outermost operator are rewritten.
    fn step(&mut self, step: IdedExpr) -> IdedExpr {
        let Expr::Call(parsed) = step.expr else {
            return self.expr(step);
        };
        let args = parsed.args.into_iter().map(|arg| self.expr(arg)).collect();
        call(step.id, &parsed.func_name, args)
    }

    /// The step of `map` and `filter`, `[guard ?] @result + [item] [: @result]`. The CEL crate recognises
    /// this shape and appends in place. The turn is paid for in the guard, or in the item if there is no
    /// guard.
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
            return IdedExpr { id, expr: Expr::Call(parsed) };
        }
        for arg in &mut parsed.args {
            if let Expr::List(list) = &mut arg.expr {
                let items = std::mem::take(&mut list.elements);
                list.elements = items.into_iter().map(|item| self.turned(item, turn)).collect();
            }
        }
        IdedExpr { id, expr: Expr::Call(parsed) }
    }

    fn turned(&mut self, item: IdedExpr, turn: usize) -> IdedExpr {
        let item = self.copied(item);
        if turn == 0 { item } else { tick(item.id, turn, item) }
    }
}

/// Whether the CEL crate runs `fold` by appending to a list in place.
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

/// The number of nodes of `expr`.
fn nodes(expr: &IdedExpr) -> usize {
    let mut count = 1;
    each_child(&expr.expr, &mut |child| count += nodes(child));
    count
}
