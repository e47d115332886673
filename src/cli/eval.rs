//! `eval`: evaluates one expression as a route would.
//!
//! Which roots exist depends on the place of an expression, so here every root may be named. A root that
//! the bindings do not set is absent, and reading it fails as it would in a route.

use std::path::Path;
use std::process::ExitCode;

use super::arguments::Eval;
use super::flow;
use super::output::{fail, refuse, say};
use crate::language::clock::Clock;
use crate::language::expr::{Bindings, CompileError, Program, Root, Roots};
use crate::language::value::{Map, Value};
use crate::source::{Diagnostic, Diagnostics, Node, Sources};

/// The name of the expression in diagnostics.
const NAME: &str = "EXPR";

/// The roots, and the time of the call.
struct EvalBindings {
    roots: Map,
    clock: Clock,
    /// The value of `now()` for the whole evaluation.
    now: i128,
}

pub(super) fn eval(eval: &Eval) -> ExitCode {
    let (program, given) = match prepare(&eval.expression, eval.bindings.as_deref()) {
        Ok(prepared) => prepared,
        Err(message) => return refuse(&message),
    };
    match program.evaluate(&given) {
        Ok(value) => {
            say(&format!("{:#}", value.to_json()));
            ExitCode::SUCCESS
        }
        Err(error) => fail(&format!("{}: {error}", error.code())),
    }
}

fn prepare(expression: &str, bindings: Option<&Path>) -> Result<(Program, EvalBindings), String> {
    let program = compile(expression)?;
    let mut sources = Sources::default();
    let roots = match bindings {
        Some(path) => {
            let node = flow::read(&mut sources, path)?;
            roots(&node).map_err(|found| sources.render(&found))?
        }
        None => Map::new(),
    };
    Ok((program, EvalBindings::now(roots)))
}

/// Compiles `expression`, with or without its braces.
fn compile(expression: &str) -> Result<Program, String> {
    let (body, shift) = unwrap(expression);
    Program::compile(body, Roots::of(&Root::ALL)).map_err(|errors| {
        let mut sources = Sources::default();
        let span = sources.keep(NAME, expression);
        let diagnostic = |CompileError { message, offset }| {
            Diagnostic::error("invalid-expression", span, message).with_offset(shift + offset)
        };
        let found = Diagnostics(errors.into_iter().map(diagnostic).collect());
        sources.render(&found)
    })
}

/// The expression without its braces, and how many characters precede it.
fn unwrap(expression: &str) -> (&str, usize) {
    match Program::placed_body(expression.trim()) {
        Some((before, body)) => {
            let blanks = expression.chars().count() - expression.trim_start().chars().count();
            (body, blanks + before)
        }
        None => (expression, 0),
    }
}

/// The values of the roots in the bindings.
fn roots(bindings: &Node) -> Result<Map, Diagnostics> {
    let Some(members) = bindings.as_object() else {
        let message = format!(
            "the bindings must be an object of roots, such as {{\"vars\": {{}}}}; this is of type {}",
            bindings.type_name()
        );
        return Err(Diagnostic::error("wrong-type", bindings.span, message).into());
    };
    let unknown =
        members.iter().filter(|member| Root::named(&member.key).is_none()).map(|member| {
            let message =
                format!("`{}` is no root; the roots are {}", member.key, Roots::of(&Root::ALL));
            Diagnostic::error("unknown-root", member.key_span, message)
        });
    let unknown = Diagnostics(unknown.collect());
    if unknown.has_errors() {
        return Err(unknown);
    }
    let values =
        members.iter().map(|member| (member.key.clone(), Value::from(member.value.to_json())));
    Ok(values.collect())
}

impl EvalBindings {
    fn now(roots: Map) -> Self {
        let clock = Clock::system();
        Self { roots, clock, now: clock.now().as_nanos() }
    }
}

impl Bindings for EvalBindings {
    fn root(&self, root: Root) -> Option<Value> {
        self.roots.get(root.name()).cloned()
    }

    fn now(&self) -> i128 {
        self.now
    }

    fn wall_time(&self) -> i128 {
        self.clock.now().as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::expr::EvalError;
    use crate::source::Format;

    fn value(expression: &str, bindings: &str) -> Result<String, EvalError> {
        let node = Sources::default().parse("b.json", bindings, Format::Json);
        let given = EvalBindings::now(roots(&node.unwrap()).unwrap());
        let program = compile(expression).unwrap_or_else(|message| panic!("{message}"));
        program.evaluate(&given).map(|value| value.to_json().to_string())
    }

    fn refused(expression: &str) -> String {
        compile(expression).unwrap_err()
    }

    #[test]
    fn braces_may_stand_around_it() {
        for expression in
            ["vars.n * 2.0", "{{ vars.n * 2.0 }}", "{{vars.n*2.0}}", "  {{ vars.n * 2.0 }}\n"]
        {
            assert_eq!(value(expression, r#"{"vars": {"n": 21}}"#).unwrap(), "42");
        }
        assert_eq!(value("{{ {'a': {'b': 1}} }}", "{}").unwrap(), r#"{"a":{"b":1}}"#);
        assert_eq!(value("{'a': 1}", "{}").unwrap(), r#"{"a":1}"#);
    }

    #[test]
    fn every_root_can_be_bound() {
        for root in Root::ALL {
            let bindings = format!(r#"{{"{}": {{"member": [true]}}}}"#, root.name());
            let expression = format!("{}.member", root.name());
            assert_eq!(value(&expression, &bindings).unwrap(), "[true]");
        }
    }

    #[test]
    fn a_failure_has_the_code_that_a_route_would_see() {
        let absent = value("vars.n", "{}").unwrap_err();
        assert_eq!(absent.code(), "System.ExpressionEvaluationError");
        let none = value("[timestamp('2026-01-01T00:00:00Z')].size() / 0", "{}").unwrap_err();
        assert_eq!(none.code(), "System.ExpressionEvaluationError");
        let lossy = value("9007199254740993", "{}").unwrap_err();
        assert_eq!(lossy.code(), "System.UnrepresentableValue");
    }

    #[test]
    fn now_is_the_time_of_the_call_and_stands_still() {
        assert_eq!(value("now() == now()", "{}").unwrap(), "true");
        let before = EvalBindings::now(Map::new()).now;
        let program = compile("string(now())").unwrap();
        let given = EvalBindings::now(Map::new());
        let told = program.evaluate(&given).unwrap();
        let told = crate::language::temporal::Timestamp::parse(told.as_str().unwrap()).unwrap();
        assert_eq!(told.as_nanos(), given.now);
        assert!(told.as_nanos() >= before);
    }

    #[test]
    fn what_does_not_compile_is_pointed_at() {
        insta::assert_snapshot!(refused("vars.n + vrs.m"), @r##"
        error[invalid-expression]: `vrs` is unknown; did you mean `vars`? In scope here: `vars`, `execution`, `frame`, `step`, `call`, `flow`, `provider`, `match`, `middleware`, `failure` and `response`
         --> EXPR:1:10
          |
        1 | vars.n + vrs.m
          |          ^
        "##);
        insta::assert_snapshot!(refused("  {{ 'é' + nope(1) }}"), @r##"
        error[invalid-expression]: there is no function `nope`; did you mean `type`?
         --> EXPR:1:12
          |
        1 |   {{ 'é' + nope(1) }}
          |            ^
        "##);
        insta::assert_snapshot!(refused("\"a\" +"), @r##"
        error[invalid-expression]: the expression ends here, where a value is wanted
         --> EXPR:1:6
          |
        1 | "a" +
          |      ^
        "##);
        insta::assert_snapshot!(refused("{{  }}"), @r##"
        error[invalid-expression]: the expression is empty
         --> EXPR:1:5
          |
        1 | {{  }}
          |     ^
        "##);
    }

    #[test]
    fn bindings_that_are_none_are_pointed_at() {
        let refused = |bindings: &str| {
            let mut sources = Sources::default();
            let node = sources.parse("b.json", bindings, Format::Json).unwrap();
            sources.render(&roots(&node).unwrap_err())
        };
        insta::assert_snapshot!(refused(r#"{"vars": {}, "variables": 1}"#), @r##"
        error[unknown-root]: `variables` is no root; the roots are `vars`, `execution`, `frame`, `step`, `call`, `flow`, `provider`, `match`, `middleware`, `failure` and `response`
         --> b.json:1:14
          |
        1 | {"vars": {}, "variables": 1}
          |              ^^^^^^^^^^^
        "##);
        insta::assert_snapshot!(refused("[1]"), @r##"
        error[wrong-type]: the bindings must be an object of roots, such as {"vars": {}}; this is of type array
         --> b.json:1:1
          |
        1 | [1]
          | ^^^
        "##);
    }
}
