//! Turns the text of an expression into a checked tree that is safe to evaluate.
//!
//! The walk over a tree, its evaluation and even its destructor recurse, and a stack overflow aborts the
//! process. So the length of the text is bounded, and `syntax` makes no tree that is deeper than
//! `syntax::tree::DEPTH`: a worker's stack holds all of that.

use cel::IdedExpr;

use super::rewrite::{Names, Rewriter, Uses};
use super::{CompileError, environment, syntax};

/// The longest expression, in bytes.
pub(super) const LENGTH: usize = 16 * 1024;

/// The result of compiling.
pub(super) struct Compiled {
    /// The rewritten tree.
    pub(super) expr: IdedExpr,
    /// What it refers to.
    pub(super) uses: Uses,
}

/// Compiles `body` for a site where `names` may be used.
pub(super) fn compile(body: &str, names: Names) -> Result<Compiled, Vec<CompileError>> {
    check_length(body).map_err(|error| vec![error])?;
    let (expr, places) = syntax::parse(body).map_err(|error| vec![error])?;
    let mut rewriter = Rewriter::new(environment::shared(), names, &places);
    let expr = rewriter.expr(expr);
    if !rewriter.errors.is_empty() {
        rewriter.errors.sort_by_key(|error| error.offset);
        return Err(rewriter.errors);
    }
    Ok(Compiled { expr, uses: rewriter.uses })
}

fn check_length(body: &str) -> Result<(), CompileError> {
    let message = if body.trim().is_empty() {
        "the expression is empty".to_owned()
    } else if body.len() > LENGTH {
        format!(
            "the expression has {} bytes; the most is {LENGTH}: split it, with `assign`, into several",
            body.len()
        )
    } else {
        return Ok(());
    };
    Err(CompileError { message, offset: 0 })
}
