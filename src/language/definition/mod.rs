//! From text to plan: all static checks, in one pass (MWL, "Static checks").
//!
//! The pass turns a tree with places into a [`Plan`]. There is no second tree between them that could
//! disagree with either. A construct that is wrong is reported at its place and left out, and the pass goes
//! on: so one run reports everything, and a plan comes out only if nothing was left out. Each expression is
//! compiled with exactly the bindings of its site (`site`). So a name that could never hold anything is an
//! error of the definition, not of a request.
//!
//! To add a field: add its name to the table of its construct, its place to the plan, and a case to `tests`.

#![expect(clippy::option_option, reason = "`None`: wrong and reported; `Some(None)`: not written")]

mod advice;
mod call;
mod fields;
mod flow;
mod install;
mod matcher;
mod middleware;
mod parts;
mod phase;
mod prepared;
mod site;
mod step;
mod template;
mod with;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

pub use self::prepared::PreparedCache;
use super::code::CodePattern;
use super::expr::Operation;
use super::plan::{FlowId, FlowPlan, Plan};
use super::provider::Catalog;
use super::value::Value;
use crate::source::{Diagnostic, Diagnostics, Kind, Node, Span, did_you_mean, with_article};

/// The `$schema` of a root definition ("Schema documents").
pub const SCHEMA_URI: &str = "https://mwl.dev/v0.1/flow/schema.json";

/// How strict the checks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// A literal that fails its schema or its field's type is left to run time. So is reading a member that a
    /// binding cannot have there. The specification gives both a failure of their own.
    Runtime,
    /// Both are errors here.
    Load,
}

/// Compiles a definition. `Ok` carries the warnings.
///
/// # Errors
/// Everything that was found, in the order of place. At least one of them is an error.
pub fn compile(
    document: &Node,
    catalog: &Catalog,
    strictness: Strictness,
) -> Result<(Arc<Plan>, Diagnostics), Diagnostics> {
    let mut cache = PreparedCache::default();
    let (plan, warnings) = compile_with_cache(document, catalog, strictness, &mut cache)?;
    Ok((plan, cache.settle(warnings)))
}

/// Like [`compile`], for one of many definitions: they share what they prepare, in `cache`. Of the warnings of all,
/// [`PreparedCache::settle`] tells which count.
///
/// # Errors
/// Like [`compile`].
pub fn compile_with_cache(
    document: &Node,
    catalog: &Catalog,
    strictness: Strictness,
    cache: &mut PreparedCache,
) -> Result<(Arc<Plan>, Diagnostics), Diagnostics> {
    cache.room().grow(document.span);
    let mut compiler = Compiler {
        catalog,
        cache,
        strictness,
        found: Diagnostics::default(),
        flows: Vec::new(),
        parameters: Vec::new(),
        edges: Vec::new(),
        arguments: Vec::new(),
        codes: Vec::new(),
        operations: Vec::new(),
        written: HashMap::new(),
        keeps_state: false,
    };
    compiler.root(document);
    compiler.check_cycles();
    compiler.check_arguments();
    let flows: Option<Vec<FlowPlan>> = std::mem::take(&mut compiler.flows).into_iter().collect();
    let plan = flows.filter(|_| !compiler.found.has_errors()).map(|mut flows| {
        compiler.install(&mut flows);
        flows
    });
    let Some(flows) = plan.filter(|_| !compiler.found.has_errors()) else {
        if !compiler.found.has_errors() {
            let message = "the definition could not be compiled";
            compiler.error("not-compiled", document.span, message);
        }
        return Err(compiler.found.sorted());
    };
    let plan = Plan::new(flows);
    compiler.advise(&plan);
    Ok((Arc::new(plan), compiler.found.sorted()))
}

/// The state of the pass.
struct Compiler<'a> {
    catalog: &'a Catalog,
    cache: &'a mut PreparedCache,
    strictness: Strictness,
    found: Diagnostics,
    /// By [`FlowId`]; `None` for a Flow that is not compiled yet, or is wrong.
    flows: Vec<Option<FlowPlan>>,
    /// The parameter schemas as written, by [`FlowId`].
    parameters: Vec<Option<Arc<serde_json::Value>>>,
    edges: Vec<Edge>,
    arguments: Vec<FlowArguments>,
    codes: Vec<CodeUse>,
    operations: Vec<PlacedOperation>,
    /// Middleware entries, by the places of their providers' names, and Steps that catch, by the places of their names.
    written: HashMap<Span, Node>,
    /// Whether an entry's middleware keeps state.
    keeps_state: bool,
}

/// An operation between a member of the bindings and a literal. It is checked once all providers are known.
struct PlacedOperation {
    operation: Operation,
    /// The expression, and the offset in it.
    span: Span,
    offset: usize,
}

/// A call from one Flow to another.
struct Edge {
    from: FlowId,
    to: FlowId,
    span: Span,
}

/// The `with` of a call to a Flow. It is checked once the parameters of all Flows are known.
struct FlowArguments {
    to: FlowId,
    /// `None` if it holds an expression: then only its names can be checked.
    value: Option<Value>,
    node: Option<Node>,
    span: Span,
}

/// A failure code that the definition names.
enum CodeUse {
    /// A matcher selects it.
    Matched(CodePattern, Span),
    /// A `Raise` or an `onFailure` makes it; `None` if an expression computes it.
    Raised(Option<Arc<str>>),
}

impl Compiler<'_> {
    fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>) {
        self.found.push(Diagnostic::error(code, span, message));
    }

    fn error_with_help(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.found.push(Diagnostic::error(code, span, message).with_help(help));
    }

    fn warn(&mut self, code: &'static str, span: Span, message: String, help: impl Into<String>) {
        self.found.push(Diagnostic::warning(code, span, message).with_help(help));
    }

    /// Reports a value of the wrong type. `rule` says what it must be.
    fn wrong_type(&mut self, node: &Node, rule: &str) {
        let seen = with_article(node.type_name());
        self.error("wrong-type", node.span, format!("{rule}; this is {seen}"));
    }

    /// Reports an error at load. At run time it is a failure instead.
    fn load_error(&mut self, diagnostic: Diagnostic) {
        if self.strictness == Strictness::Load {
            self.found.push(diagnostic);
        }
    }
}

/// The value that a tree writes. Expressions stay the strings that they are.
fn literal(node: &Node) -> Value {
    match &node.kind {
        Kind::Null => Value::Null,
        Kind::Bool(bool) => Value::Bool(*bool),
        Kind::Number(number) => Value::Number(*number),
        Kind::String(text) => Value::String(Arc::clone(text)),
        Kind::Array(items) => Value::array(items.iter().map(literal).collect()),
        Kind::Object(members) => Value::object(
            members.iter().map(|member| (Arc::clone(&member.key), literal(&member.value))),
        ),
    }
}

/// The part of `node` at a JSON Pointer, or the last one on the way to it that exists.
fn part<'n>(node: &'n Node, pointer: &str) -> &'n Node {
    let mut at = node;
    for token in pointer.split('/').skip(1) {
        let key = token.replace("~1", "/").replace("~0", "~");
        let next = match &at.kind {
            Kind::Array(items) => key.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => at.get(&key),
        };
        match next {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}

/// "did you mean `x`?", or a list of what there is.
fn suggestion<'k>(seen: &str, known: impl IntoIterator<Item = &'k str> + Clone) -> String {
    did_you_mean(seen, known.clone()).unwrap_or_else(|| format!("there is {}", list(known)))
}

/// Words for a message, of which one is to be written.
fn alternatives<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [most @ .., last] if !most.is_empty() => format!("{} or {last}", most.join(", ")),
        words => words.concat(),
    }
}

/// Names for a message: quoted and joined; of many, only the first are listed.
fn list<'k>(names: impl IntoIterator<Item = &'k str>) -> String {
    const SHOWN: usize = 12;
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count > SHOWN => {
            let shown = names.get(..SHOWN).unwrap_or_default().join(", ");
            format!("{shown} and {} more", count - SHOWN)
        }
        _ => names.join(", "),
    }
}
