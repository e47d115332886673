//! Files that are not valid configurations.

use super::{of_file, rendered};

#[test]
fn an_empty_file() {
    let text = "";
    insta::assert_snapshot!(rendered(text), @r"
    error[empty-document]: the file is empty; a YAML value was wanted
     --> c.yaml:1:1
      |
    1 | 
      | ^
    ");
}

#[test]
fn only_a_comment() {
    let text = "# nothing\n";
    insta::assert_snapshot!(rendered(text), @r"
    error[empty-document]: the file is empty; a YAML value was wanted
     --> c.yaml:1:1
      |
    1 | # nothing
      | ^
    ");
}

#[test]
fn a_list() {
    let text = "[]\n";
    insta::assert_snapshot!(rendered(text), @r"
    error[wrong-type]: the file holds one value of type array; wanted: an object with `listeners`, `upstreams` and `routes`
     --> c.yaml:1:1
      |
    1 | []
      | ^^
    ");
}

#[test]
fn half_a_file() {
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: \"bil";
    insta::assert_snapshot!(rendered(text), @r#"
    error[invalid-yaml]: not YAML: unclosed quote
     --> c.yaml:5:13
      |
    5 |   upstream: "bil
      |             ^
      = help: close each bracket, brace and quote before this place, and put texts with `: ` in quotes
    "#);
}

#[test]
fn unknown_and_missing_keys() {
    let text = "listners: []\n\
         routes: []\n";
    insta::assert_snapshot!(rendered(text), @r"
    error[unknown-key]: `listners` is not a key of the configuration
     --> c.yaml:1:1
      |
    1 | listners: []
      | ^^^^^^^^
      = help: did you mean `listeners`?

    error[empty-list]: `routes` is empty; at least one is wanted
     --> c.yaml:2:9
      |
    2 | routes: []
      |         ^^
    ");
    insta::assert_snapshot!(rendered("routes: []\n"), @r"
    error[missing-key]: the configuration needs `listeners`: Where clients connect. At least one.
     --> c.yaml:1:1
      |
    1 | routes: []
      | ^^^^^^^^^^

    error[empty-list]: `routes` is empty; at least one is wanted
     --> c.yaml:1:9
      |
    1 | routes: []
      |         ^^
    ");
}

#[test]
fn a_duplicate_key() {
    insta::assert_snapshot!(of_file("routes: []\nroutes: []"), @r"
    error[duplicate-key]: the key `routes` is written twice in one object
     --> c.yaml:4:1
      |
    4 | routes: []
      | ^^^^^^
     ::: c.yaml:3:1
      |
    3 | routes: []
      | ^^^^^^ first written here
      = help: remove one of the two
    ");
}

#[test]
fn yaml_1_1_on() {
    insta::assert_snapshot!(of_file("routes: [{ name: r, upstream: billing }]\non: 1"), @r"
    error[unknown-key]: `on` is not a key of the configuration
     --> c.yaml:4:1
      |
    4 | on: 1
      | ^^
      = help: the configuration has the keys `environment`, `listeners`, `admin`, `upstreams`, `stores`, `forwarded`, `requestIdHeader`, `paths`, `stacks`, `middleware`, `routes`, `metrics`, `log`, `tracing`, `limits`, `shutdown`
    ");
}

#[test]
fn null_for_a_list() {
    let text = "listeners:\n\
         routes: 1\n";
    insta::assert_snapshot!(rendered(text), @r"
    error[wrong-type]: `listeners` is null; wanted: a list
     --> c.yaml:1:10
      |
    1 | listeners:
      |          ^

    error[wrong-type]: `routes` is the number 1; wanted: a list
     --> c.yaml:2:9
      |
    2 | routes: 1
      |         ^
    ");
}
