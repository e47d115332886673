//! What compiling refuses, and the place that it names.

use super::*;

#[test]
fn names_out_of_scope_are_refused_with_those_in_scope() {
    let site = Roots::of(&[Root::Vars, Root::Step]);
    insta::assert_snapshot!(refused("vars.x + call.input", site), @"9: `call` is not in scope; in scope here: `vars` and `step`");
    insta::assert_snapshot!(refused("vas.x", site), @"0: `vas` is unknown; did you mean `vars`? In scope here: `vars` and `step`");
    insta::assert_snapshot!(refused("x", Roots::NONE), @"0: `x` is unknown; no binding is in scope here");
    insta::assert_snapshot!(refused("[1].map(y, z)", site), @"11: `z` is unknown; in scope here: `vars` and `step`");
    insta::assert_snapshot!(refused("a + b", site), @"
    0: `a` is unknown; in scope here: `vars` and `step`
    4: `b` is unknown; in scope here: `vars` and `step`
    ");
    assert!(Program::compile("vars.x + step.y", site).is_ok());
    assert!(Program::compile("response.status == 503", site).is_err());
}

#[test]
fn local_variables_are_no_roots_and_hide_them() {
    let program = compile("step.input.features.map(step, step.step)");
    assert_eq!(program.roots(), Roots::of(&[Root::Step]));
    assert_eq!(program.evaluate(&Fixture(json(DATA))).unwrap().to_string(), "[1,2]");
    let site = Roots::of(&[Root::Vars]);
    assert!(Program::compile("vars.items.all(call, call != '')", site).is_ok());
    assert!(Program::compile("vars.items.all(call, call != '') && call.input", site).is_err());
    assert_eq!(value("[1, 2].map(x, [x].map(x, x * 2))"), "[[2],[4]]");
    assert_eq!(value("[1].map(vars, .vars.name)"), "[\"modis\"]");
}

#[test]
fn calls_that_cannot_be_right_are_refused() {
    insta::assert_snapshot!(refused("toJSON(vars)", EVERY), @"0: there is no function `toJSON`; did you mean `toJson`?");
    insta::assert_snapshot!(refused("vars.name.size(1)", EVERY), @"10: `size` takes no arguments, not 1");
    insta::assert_snapshot!(refused("vars.name.uuid()", EVERY), @"10: there is no function `uuid`; docs/language.md names them all");
    insta::assert_snapshot!(refused("vars.name.matches('(')", EVERY), @"18: the pattern is no regular expression: unclosed group");
    insta::assert_snapshot!(refused("1 + math.median([1])", EVERY), @"4: there is no function `math.median`; docs/language.md names them all");
    insta::assert_snapshot!(refused("math.greater(1, 2)", EVERY), @"0: there is no function `math.greater`; did you mean `math.greatest`?");
    insta::assert_snapshot!(refused("Money{amount: 1}", EVERY), @"0: there is no message type `Money`; write a map: {'field': value}");
}

#[test]
fn the_first_mistakes_are_told() {
    let body = vec!["f(v)"; 3000].join(",");
    let errors = Program::compile(&format!("[{body}]"), EVERY).unwrap_err();
    assert_eq!(errors.len(), MISTAKES);
    assert_eq!(errors[0].message, "there is no function `f`; docs/language.md names them all");
}

#[test]
fn syntax_errors_carry_the_place_in_characters() {
    insta::assert_snapshot!(refused("", EVERY), @"0: the expression is empty");
    insta::assert_snapshot!(refused("vars.", EVERY), @"5: the expression ends here, where the name of a member is wanted");
    insta::assert_snapshot!(refused("'é😀' + + 1", EVERY), @"7: a value is wanted here, not `+`");
    insta::assert_snapshot!(refused("'é😀' +\n  oops", Roots::NONE), @"9: `oops` is unknown; no binding is in scope here");
    insta::assert_snapshot!(refused("has(vars)", EVERY), @"4: `has` asks for a member that a dot leads to: `has(vars.name)`");
}
