//! Expressions: the `{{ }}` embedding and the CEL profile (MWL, "Expressions").
//!
//! This folder is a wall: nothing outside it names the CEL crate. So the crate can be replaced, and its
//! evaluator never runs unbounded. What comes in is text, and the roots that a site may read. What goes out
//! is a [`Program`], checked as far as is possible without data. An evaluation takes shared values and gives
//! one. Whatever the expression does, it ends soon and does not overflow the stack: `syntax` bounds the
//! tree, `work` bounds the time.
//!
//! - `roots`: the names that a site may read;
//! - `syntax`: from text to a tree;
//! - `compile`, `rewrite`, `signatures`, `references`: from that tree to the one that is evaluated;
//! - `operations`: what of types can be checked without data;
//! - `simple`: expressions that need no evaluator;
//! - `environment`, `functions`, `json`, `duration`: what can be called;
//! - `evaluation`, `values`, `equality`: the bindings as CEL values;
//! - `convert`: the result as a value of the data model;
//! - `work`: the bound on one evaluation.

use std::sync::Arc;

use cel::IdedExpr;

use self::compile::Compiled;
use self::evaluation::Evaluation;
use self::rewrite::{Names, Uses};
use self::simple::Simple;
use super::code::system;
use super::value::{Missing, Value};

mod compile;
mod convert;
mod duration;
mod environment;
mod equality;
mod evaluation;
mod fault;
mod functions;
mod json;
mod operations;
mod references;
mod rewrite;
mod roots;
mod signatures;
mod simple;
mod syntax;
#[doc(hidden)]
pub mod testing;
mod values;
mod work;

pub use self::operations::{LiteralType, Operation, OperationKind};
pub use self::references::{Path, PathEnd};
pub use self::roots::{Root, Roots};
pub(in crate::language) use self::work::Turn;

/// What an expression is evaluated against. It is asked only for what the evaluation really reads.
pub trait Bindings: Sync {
    /// The value of `root`. `None` if it holds nothing here: then reading it is an evaluation error.
    fn root(&self, root: Root) -> Option<Value>;

    /// The value at `path` below `root`. Bindings that build their roots override this, so that they build
    /// nothing but the path.
    ///
    /// # Errors
    /// If a member of the path is missing.
    fn at(&self, root: Root, path: &[Arc<str>]) -> Result<Value, Missing> {
        self.root(root).ok_or(Missing::UNSET)?.at(path)
    }

    /// The instant that `now()` returns: nanoseconds since the Unix epoch.
    fn now(&self) -> i128;

    /// The instant that `wallTime()` returns, read afresh.
    fn wall_time(&self) -> i128;
}

/// A compiled expression. Immutable and shared.
#[derive(Clone, Debug)]
pub struct Program(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Arc<str>,
    /// The roots of its paths.
    roots: Roots,
    uses: Uses,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// Nothing is called: no evaluator is needed.
    Simple(Simple),
    /// For the CEL crate's evaluator.
    Tree(IdedExpr),
}

/// Why an expression does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    /// What is wrong, and what would be right.
    pub message: String,
    /// Where: characters from the start of the body.
    pub offset: usize,
}

/// Why an evaluation gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// `System.ExpressionEvaluationError`: a type error, an absent value, too much work.
    #[error("{0}")]
    Fault(String),
    /// `System.UnrepresentableValue`: there is a result, and the data model has no form for it.
    #[error("{0}")]
    Unrepresentable(String),
}

impl EvalError {
    /// The code of the failure that this is.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Fault(_) => system::EXPRESSION_EVALUATION_ERROR,
            Self::Unrepresentable(_) => system::UNREPRESENTABLE_VALUE,
        }
    }
}

/// How many mistakes of one expression are told. Each costs time, and nobody reads hundreds.
pub const MISTAKES: usize = 20;

impl Program {
    /// The body between the delimiters, if `text` is an expression ("The embedding"): it begins with `{{`,
    /// ends with `}}`, and that one pair spans the whole. So `{{ a }} and {{ b }}` is a literal, since its
    /// first pair closes before the end. But `{{ {'a': {'b': 1}} }}` is an expression: a `}}` that closes CEL
    /// braces, or is inside a CEL string, does not close the pair.
    pub fn body(text: &str) -> Option<&str> {
        Self::placed_body(text).map(|(_, body)| body)
    }

    /// [`body`](Self::body), and the number of characters before it in `text`.
    pub fn placed_body(text: &str) -> Option<(usize, &str)> {
        let within = text.strip_prefix("{{")?.strip_suffix("}}")?;
        let body = within.trim_start();
        let blanks = within.chars().count() - body.chars().count();
        (!embedding::closes_within(within)).then(|| (2 + blanks, body.trim_end()))
    }

    /// Compiles `body` for a site that may read `roots`.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it: a syntax error, a root that is unknown or not in scope here, a
    /// function that does not exist or takes other arguments, a pattern that is not a regular expression, an
    /// expression that is too long or nests too deep.
    pub fn compile(body: &str, roots: Roots) -> Result<Self, Vec<CompileError>> {
        compile::compile(body, Names::Roots(roots)).map(|compiled| Self::of(body, compiled))
    }

    fn of(body: &str, compiled: Compiled) -> Self {
        let Compiled { expr, uses } = compiled;
        let roots: Vec<Root> = uses.paths.iter().map(|path| path.root).collect();
        let evaluated = match Simple::of(&expr) {
            Some(simple) => Body::Simple(simple),
            None => Body::Tree(rewrite::capture(expr)),
        };
        let (source, roots) = (body.into(), Roots::of(&roots));
        Self(Arc::new(Inner { source, roots, uses, body: evaluated }))
    }

    /// The value of the expression against `bindings`.
    ///
    /// # Errors
    ///
    /// [`EvalError::Fault`] if it cannot be evaluated, or asks for more work than an evaluation may do;
    /// [`EvalError::Unrepresentable`] if its result is not a value of the data model.
    pub fn evaluate(&self, bindings: &dyn Bindings) -> Result<Value, EvalError> {
        match &self.0.body {
            Body::Simple(simple) => simple.evaluate(&self.0.uses.paths, bindings, 0),
            Body::Tree(expr) => Evaluation::of(&self.0, bindings).evaluate(expr),
        }
    }

    /// The body, as it was written.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The roots that the expression names.
    pub fn roots(&self) -> Roots {
        self.0.roots
    }

    /// The static paths that the expression reads. An evaluation reaches nothing else in the bindings.
    pub fn reads(&self) -> &[Path] {
        &self.0.uses.paths
    }

    /// Its operations between a static path and a literal.
    pub fn operations(&self) -> &[Operation] {
        &self.0.uses.operations
    }

    /// Whether it calls `now()`.
    pub fn is_pinned(&self) -> bool {
        self.0.uses.pinned
    }

    /// Whether an evaluation may read a member `name` of a value that no static path leads to: of an element,
    /// of a function's result, or by a computed key. Such a value lies below some path of
    /// [`reads`](Self::reads) that ends in a value.
    pub fn may_select(&self, name: &str) -> bool {
        self.0.uses.dynamic.may_include(name)
    }
}

mod embedding;

#[cfg(test)]
mod tests;
