//! Expressions: the `{{ }}` embedding and the CEL profile (MWL, "Expressions").
//!
//! This folder is a wall: nothing outside it names the CEL crate, so that the crate can be replaced, and so
//! that its evaluator is never met unprepared. What comes in is text, and the roots that a site may read;
//! what goes out is a [`Program`], checked as far as it can be without data. An evaluation takes shared
//! values and gives one, and whatever an expression does, it ends soon, on the stack that it began on:
//! `compile` bounds the tree, `work` the time.
//!
//! - `roots`: the names that a site may read;
//! - `compile`, `rewrite`, `signatures`, `references`: from text to the tree that is evaluated;
//! - `environment`, `functions`, `json`, `duration`: what can be called;
//! - `scope`, `values`, `equality`: the bindings as CEL values;
//! - `convert`: the result as a value of the data model;
//! - `work`: the bound on one evaluation.

use std::sync::Arc;

use cel::IdedExpr;

use self::compile::Compiled;
use self::functions::Pattern;
use self::made::Made;
use self::rewrite::Names;
use self::scope::Scope;
use super::code::system;
use super::value::{Missing, Value};

mod compile;
mod convert;
mod duration;
mod environment;
mod equality;
mod fault;
mod functions;
mod json;
mod made;
mod references;
mod rewrite;
mod roots;
mod scope;
mod signatures;
#[doc(hidden)]
pub mod testing;
mod values;
mod work;

use self::references::Elsewhere;
pub use self::references::{Path, PathEnd};
pub use self::roots::{Root, Roots};

/// What an expression is evaluated against. Asked only for what the evaluation comes to read.
pub trait Bindings: Sync {
    /// The value of `root`; `None` where it holds nothing here (reading it is an evaluation error).
    fn root(&self, root: Root) -> Option<Value>;

    /// What `path` leads to from `root`. Bindings that build their roots override this, so that nothing
    /// beside the path is built.
    ///
    /// # Errors
    /// Where the path ends before its end.
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
    /// The roots of `paths`.
    roots: Roots,
    /// The static paths that are read, each once.
    paths: Vec<Path>,
    /// The literal patterns of `matches`.
    patterns: Vec<Pattern>,
    /// The lists of literals that `in` looks into.
    lists: Vec<Value>,
    /// What is read of values that no static path leads to.
    elsewhere: Elsewhere,
    /// Whether it calls `now()`.
    pinned: bool,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// Nothing is called: no evaluator is needed.
    Made(Made),
    /// For the crate's evaluator.
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

impl Program {
    /// The body between the delimiters, if `text` is an expression ("The embedding"): it begins with `{{`,
    /// ends with `}}`, and that one pair spans the whole. So `{{ a }} and {{ b }}` is a literal, since its
    /// first pair closes before the end, while `{{ {'a': {'b': 1}} }}` is an expression: a `}}` that closes
    /// CEL braces, or stands in a CEL string, closes no pair.
    pub fn body(text: &str) -> Option<&str> {
        Self::placed_body(text).map(|(_, body)| body)
    }

    /// [`body`](Self::body), and how many characters stand before it in `text`.
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
    /// Everything that is wrong with it: syntax, a root that is unknown or not in scope here, a function
    /// that does not exist or takes other arguments, a pattern that is no regular expression, an expression
    /// that is too long or nests too deep.
    pub fn compile(body: &str, roots: Roots) -> Result<Self, Vec<CompileError>> {
        compile::compile(body, Names::Roots(roots)).map(|compiled| Self::of(body, compiled))
    }

    fn of(body: &str, compiled: Compiled) -> Self {
        let named: Vec<Root> = compiled.paths.iter().map(|path| path.root).collect();
        let evaluated = match Made::of(&compiled.expr) {
            Some(made) => Body::Made(made),
            None => Body::Tree(rewrite::giving(compiled.expr)),
        };
        Self(Arc::new(Inner {
            source: body.into(),
            roots: Roots::of(&named),
            paths: compiled.paths,
            patterns: compiled.patterns,
            lists: compiled.lists,
            elsewhere: compiled.elsewhere,
            pinned: compiled.pinned,
            body: evaluated,
        }))
    }

    /// The value of the expression against `bindings`.
    ///
    /// # Errors
    ///
    /// [`EvalError::Fault`] where it cannot be evaluated, or asks for more work than an evaluation may do;
    /// [`EvalError::Unrepresentable`] where its result is no value of the data model.
    pub fn evaluate(&self, bindings: &dyn Bindings) -> Result<Value, EvalError> {
        match &self.0.body {
            Body::Made(made) => made.evaluate(&self.0.paths, bindings, 0),
            Body::Tree(expr) => Scope::of(&self.0, bindings).evaluate(expr),
        }
    }

    /// What was written: the body.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The roots that the expression names.
    pub fn roots(&self) -> Roots {
        self.0.roots
    }

    /// The static paths that the expression reads: all of what an evaluation may reach in the bindings.
    pub fn reads(&self) -> &[Path] {
        &self.0.paths
    }

    /// Whether it calls `now()`.
    pub fn is_pinned(&self) -> bool {
        self.0.pinned
    }

    /// Whether evaluation may read a member `name` of a value that no static path leads to: of an element,
    /// of what a function gives, or by a key that is not known before. What it is a member of then lies
    /// below some path of [`reads`](Self::reads) that ends in a value.
    pub fn may_select(&self, name: &str) -> bool {
        self.0.elsewhere.may_be(name)
    }
}

mod embedding;

#[cfg(test)]
mod tests;
