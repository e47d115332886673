//! Makes the nodes of the tree, and knows of each how deep it is and where it is written.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, EntryExpr, Expr};

use super::super::CompileError;
use super::error;

/// The deepest tree that is evaluated.
pub(in super::super) const DEPTH: usize = 120;

/// The nodes so far, in the order of their ids, which begin with 1.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    place: usize,
    /// The levels from here to the deepest node below, both counted.
    height: usize,
}

/// Where each node of an expression is written.
#[derive(Debug)]
pub(in super::super) struct Places(Tree);

/// A new node, or why there is none.
pub(super) type Made = Result<IdedExpr, CompileError>;

impl Tree {
    /// The node of `expr`, which is written at `place`. No tree is ever deeper than [`DEPTH`], so whatever
    /// recurses over one, its destructor too, needs little stack.
    pub(super) fn node(&mut self, place: usize, expr: Expr) -> Made {
        let mut height = 1;
        each_child(&expr, &mut |child| height = height.max(1 + self.height(child.id)));
        if height > DEPTH {
            let message = format!(
                "the expression nests deeper than {DEPTH} levels (each term of a chain such as \
                 `a + b + c` is one): split it, with `assign`, into several, or use `join`"
            );
            return Err(error(message, place));
        }
        Ok(IdedExpr { id: self.add(place, height), expr })
    }

    /// The call `function(args)`, or `target.function(args)`.
    pub(super) fn call(
        &mut self,
        place: usize,
        function: &str,
        target: Option<IdedExpr>,
        args: Vec<IdedExpr>,
    ) -> Made {
        let target = target.map(Box::new);
        self.node(place, Expr::Call(CallExpr { func_name: function.to_owned(), target, args }))
    }

    /// The id of an entry of a map, which is written at `place`.
    pub(super) fn entry(&mut self, place: usize) -> u64 {
        self.add(place, 1)
    }

    /// The characters before the node `id`.
    pub(super) fn place(&self, id: u64) -> usize {
        self.get(id).map_or(0, |node| node.place)
    }

    pub(super) fn into_places(self) -> Places {
        Places(self)
    }

    fn add(&mut self, place: usize, height: usize) -> u64 {
        self.nodes.push(Node { place, height });
        u64::try_from(self.nodes.len()).unwrap_or(u64::MAX)
    }

    fn get(&self, id: u64) -> Option<&Node> {
        self.nodes.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    fn height(&self, id: u64) -> usize {
        self.get(id).map_or(0, |node| node.height)
    }
}

impl Places {
    /// The characters before the node `id`. A call is written where its name is, an operation where its
    /// operator is.
    pub(in super::super) fn of(&self, id: u64) -> usize {
        self.0.place(id)
    }
}

/// Calls `visit` for each direct child of `expr`.
pub(in super::super) fn each_child<'a>(expr: &'a Expr, visit: &mut impl FnMut(&'a IdedExpr)) {
    match expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).for_each(visit),
        Expr::Comprehension(fold) => {
            [&fold.iter_range, &fold.accu_init, &fold.loop_cond, &fold.loop_step, &fold.result]
                .into_iter()
                .for_each(visit);
        }
        Expr::List(list) => list.elements.iter().for_each(visit),
        Expr::Select(select) => visit(&select.operand),
        Expr::Map(map) => map.entries.iter().for_each(|entry| each_of_entry(&entry.expr, visit)),
        Expr::Struct(message) => {
            message.entries.iter().for_each(|entry| each_of_entry(&entry.expr, visit));
        }
    }
}

fn each_of_entry<'a>(entry: &'a EntryExpr, visit: &mut impl FnMut(&'a IdedExpr)) {
    match entry {
        EntryExpr::StructField(field) => visit(&field.value),
        EntryExpr::MapEntry(member) => {
            visit(&member.key);
            visit(&member.value);
        }
    }
}
