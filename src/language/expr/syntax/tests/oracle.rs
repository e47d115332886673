//! The CEL crate's parser as the oracle: for every text, both make the same tree, or both refuse.
//!
//! More texts: `PROPTEST_CASES=100000 cargo nextest run -E 'test(syntax::tests::oracle)'`.

use std::path::Path;

use super::super::super::{environment, tests};
use super::super::tree::DEPTH;
use super::*;

/// The stack that the crate's parser needs for the longest expression.
const STACK: usize = 64 * 1024 * 1024;

/// The tree as text, in which each node has its place instead of its id.
pub(super) fn placed(expr: &IdedExpr, place: impl Fn(u64) -> usize) -> String {
    let text = format!("{expr:?}");
    let placed = text.split("id: ").enumerate().map(|(number, part)| {
        let digits = part.find(|char: char| !char.is_ascii_digit()).unwrap_or(part.len());
        let (id, rest) = part.split_at(digits);
        match id.parse() {
            Ok(id) if rest.starts_with(", expr: ") => format!("@{}{rest}", place(id)),
            _ if number == 0 => part.to_owned(),
            _ => format!("id: {part}"),
        }
    });
    placed.collect()
}

/// What our parser makes of `text`.
fn ours(text: &str) -> Option<String> {
    let (expr, places) = parse(text).ok()?;
    Some(placed(&expr, |id| bracket(text, places.of(id))))
}

/// Where the crate's parser would say that the node at `place` is: for a call and a message, that is the
/// bracket after the name.
fn bracket(text: &str, place: usize) -> usize {
    let rest: String = text.chars().skip(place).collect();
    let mut lexer = Lexer::new(&rest);
    let mut next = || lexer.next().ok().filter(|token| token.kind != Kind::End);
    let Some(Token { kind: Kind::Name, .. }) = next() else { return place };
    let mut names = 1;
    while let Some(token) = next() {
        if token.is("{") || (token.is("(") && names == 1) {
            return place + token.place;
        }
        let name = if token.is(".") { next() } else { None };
        if !name.is_some_and(|name| name.kind == Kind::Name) {
            return place;
        }
        names += 1;
    }
    place
}

/// What the crate's parser makes of `text`. What is too deep for us counts as refused.
fn theirs(text: &str) -> Option<String> {
    let parser = environment::shared().parser().enable_ident_escape_syntax(true);
    let (expr, source) = parser.parse_with_source_info(text).ok()?;
    let place = |id| {
        let start = source.offset_for(id).map_or(0, |(start, _)| start as usize);
        text.get(..start).unwrap().chars().count()
    };
    let shallow = depth(&expr) <= DEPTH;
    shallow.then(|| placed(&expr, place))
}

fn depth(expr: &IdedExpr) -> usize {
    let mut below = 0;
    each_child(&expr.expr, &mut |child| below = below.max(depth(child)));
    1 + below
}

/// Runs `test` where the crate's parser has stack enough.
fn with_stack<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, test);
        thread.unwrap().join().unwrap()
    })
}

/// Whether both made a tree. Panics if they differ.
fn agree(text: &str) -> bool {
    let (ours, theirs) = with_stack(|| (ours(text), theirs(text)));
    assert_eq!(ours, theirs, "{text:?}");
    ours.is_some()
}

proptest::proptest! {
    #[test]
    fn on_tokens_in_any_order(text in texts::soup()) {
        agree(&text);
    }

    #[test]
    fn on_whole_expressions(text in texts::whole()) {
        agree(&text);
    }

    #[test]
    fn on_changed_expressions(text in texts::changed()) {
        agree(&text);
    }
}

#[test]
fn on_the_expressions_of_the_tests() {
    for body in tests::bodies() {
        agree(&body);
    }
}

/// What stands between `{{` and `}}` in any file of the project: nearly all are expressions.
#[test]
fn on_the_expressions_of_the_project() {
    let mut bodies = std::collections::BTreeSet::new();
    let mut open = ["config", "docs", "src", "tests"]
        .map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
        .to_vec();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let parts = text.split("{{").skip(1).filter_map(|part| Some(part.split_once("}}")?.0));
            bodies.extend(parts.filter(|body| body.len() < 2000).map(str::to_owned));
        }
    }
    let made = bodies.iter().filter(|body| agree(body)).count();
    assert!(made > 500, "{made} of {}", bodies.len());
}

/// The expressions of the CEL suite, if `CEL_SPEC_TESTS` names it.
#[test]
fn on_the_cel_suite() {
    let Some(path) = std::env::var_os("CEL_SPEC_TESTS") else { return };
    let text = std::fs::read_to_string(path).unwrap();
    let tests: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let made = tests.iter().filter(|test| agree(test["expr"].as_str().unwrap())).count();
    assert!(made > 2000, "{made} of {}", tests.len());
}
