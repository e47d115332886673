//! Expressions: the `{{ }}` embedding and the CEL profile (MWL, "Expressions").
//!
//! This folder is a wall: nothing outside it names the CEL crate.

use std::sync::Arc;

use super::value::Value;

/// The binding roots ("Evaluation context: the binding roots").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    Vars,
    Execution,
    Frame,
    Step,
    Call,
    Flow,
    Provider,
    Match,
    Middleware,
    Failure,
    /** of a route's classify rule */
    Response,
}

/// A set of roots: what a site may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roots(u16);

impl Roots {
    pub const fn of(roots: &[Root]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < roots.len() {
            bits |= 1 << roots[i] as u16;
            i += 1;
        }
        Self(bits)
    }
    pub const fn contains(self, root: Root) -> bool {
        self.0 & (1 << root as u16) != 0
    }
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What an expression is evaluated against. Asked only for roots that the program names.
pub trait Bindings {
    /// The value of `root`; `None` where it holds nothing here (reading it is an evaluation error).
    fn root(&self, root: Root) -> Option<Value>;
    /// The instant that `now()` returns: nanoseconds since the Unix epoch.
    fn now(&self) -> i128;
    /// The instant that `wallTime()` returns, read afresh.
    fn wall_time(&self) -> i128;
}

/// A compiled expression. Immutable and shared.
#[derive(Clone, Debug)]
pub struct Program(Arc<Inner>);
#[derive(Debug)]
struct Inner {}

/// Why an expression does not compile.
#[derive(Clone, Debug)]
pub struct CompileError {
    pub message: String,
    /** characters from the start of the body */
    pub offset: usize,
}

/// Why an evaluation gave no value.
#[derive(Clone, Debug)]
pub enum EvalError {
    /** `System.ExpressionEvaluationError` */
    Fault(String),
    /** `System.UnrepresentableValue` */
    Unrepresentable(String),
}

impl Program {
    /// The body between the delimiters, if `text` is an expression.
    pub fn body(text: &str) -> Option<&str> {
        unimplemented!()
    }
    pub fn compile(body: &str, roots: Roots) -> Result<Self, Vec<CompileError>> {
        unimplemented!()
    }
    pub fn evaluate(&self, bindings: &dyn Bindings) -> Result<Value, EvalError> {
        unimplemented!()
    }
    /// What was written.
    pub fn source(&self) -> &str {
        unimplemented!()
    }
    /// The roots that the expression names.
    pub fn roots(&self) -> Roots {
        unimplemented!()
    }
    /// Whether evaluation may read something at or below, or take whole a value that holds, a member named `member` below `root`...
    pub fn reads(&self) -> &[Path] {
        unimplemented!()
    }
}

/// A static path that an expression reads: `step.input.body` is `[step, input, body]`. `whole` where the value at its end is used as a value and not just navigated by a further static member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    pub root: Root,
    pub members: Vec<Arc<str>>,
}
