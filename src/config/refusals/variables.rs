//! Environment variables.

use super::{of_route, rendered};

#[test]
fn unset() {
    let text = "listeners: [{ address: \"${LISTEN}\" }]\n\
         routes: [{ name: r, call: {} }]\n";
    insta::assert_snapshot!(rendered(text), @r#"
    error[unset-variable]: the environment variable `LISTEN` is not set
     --> c.yaml:1:25
      |
    1 | listeners: [{ address: "${LISTEN}" }]
      |                         ^
      = help: set it, or give a default: `${LISTEN:-default}`
    "#);
}

#[test]
fn not_closed() {
    let text = "listeners: [{ address: \"127.0.0.1:${PORT\" }]\n\
         routes: [{ name: r, call: {} }]\n";
    insta::assert_snapshot!(rendered(text), @r#"
    error[bad-variable]: `${` without its `}`
     --> c.yaml:1:35
      |
    1 | listeners: [{ address: "127.0.0.1:${PORT" }]
      |                                   ^
      = help: write `${NAME}`, or `$${` for the text `${`
    "#);
}

#[test]
fn no_name() {
    let text = "listeners: [{ address: \"127.0.0.1:${a-b:-1}\" }]\n\
         routes: [{ name: r, call: {} }]\n";
    insta::assert_snapshot!(rendered(text), @r#"
    error[bad-variable]: `a-b` is not the name of a variable
     --> c.yaml:1:35
      |
    1 | listeners: [{ address: "127.0.0.1:${a-b:-1}" }]
      |                                   ^
      = help: write `${NAME}` or `${NAME:-default}`; NAME has letters, digits and `_`
    "#);
}

#[test]
fn one_that_makes_an_expression() {
    insta::assert_snapshot!(of_route(r#"output: "${EXPRESSION}""#), @r#"
    error[variable-makes-expression]: the variables in `${EXPRESSION}` make an expression of it
     --> c.yaml:6:11
      |
    6 |   output: "${EXPRESSION}"
      |           ^^^^^^^^^^^^^^^
      = help: write the expression itself; a variable gives text
    "#);
}
