//! The rows of the spec's tables, the MWL functions, names in and out of scope, offsets, limits.

use std::sync::Mutex;

use super::*;
use crate::language::value::{Map, Native};

/// Bindings from a JSON object, with two clocks that stand still.
struct Fixture(Value);

impl Bindings for Fixture {
    fn root(&self, root: Root) -> Option<Value> {
        self.0.get(root.name())
    }

    fn now(&self) -> i128 {
        1_705_311_000_250_000_000
    }

    fn wall_time(&self) -> i128 {
        1_705_311_001_000_000_000
    }
}

const EVERY: Roots = Roots::of(&Root::ALL);

const DATA: &str = r#"{
    "vars": {
        "count": 5, "ratio": 2.5, "big": 1e300, "name": "modis", "none": null, "yes": true, "one": 1,
        "items": ["a", "b", "c"], "numbers": [3, 1, 2], "i": 1, "half": 0.5,
        "object": {"a": 1, "b": {"c": [1, 2]}}, "same": {"b": {"c": [1.0, 2.0]}, "a": 1.0},
        "list": [{"a": 1}, {"a": 2}], "odd key": "odd", "empty": {}, "pattern": "^m.*s$", "emoji": "é😀x"
    },
    "step": {"input": {"features": [{"id": "x", "step": 1}, {"id": "y", "step": 2}]}},
    "failure": {"details": {"status": 503}}
}"#;

fn json(text: &str) -> Value {
    serde_json::from_str::<serde_json::Value>(text)
        .unwrap()
        .into()
}

fn compile(body: &str) -> Program {
    Program::compile(body, EVERY).unwrap_or_else(|errors| panic!("{body}: {errors:?}"))
}

fn evaluate(body: &str) -> Result<Value, EvalError> {
    compile(body).evaluate(&Fixture(json(DATA)))
}

/// The value as JSON text.
fn value(body: &str) -> String {
    evaluate(body)
        .unwrap_or_else(|error| panic!("{body}: {error:?}"))
        .to_string()
}

fn fault(body: &str) -> String {
    match evaluate(body) {
        Err(EvalError::Fault(message)) => message,
        other => panic!("{body}: {other:?}"),
    }
}

fn unrepresentable(body: &str) -> String {
    match evaluate(body) {
        Err(EvalError::Unrepresentable(message)) => message,
        other => panic!("{body}: {other:?}"),
    }
}

fn refused(body: &str, roots: Roots) -> String {
    let errors = Program::compile(body, roots).expect_err(body);
    let lines = errors
        .iter()
        .map(|error| format!("{}: {}", error.offset, error.message));
    lines.collect::<Vec<_>>().join("\n")
}

fn check(table: &[(&str, &str)]) {
    for (body, expected) in table {
        assert_eq!(value(body), *expected, "{body}");
    }
}

// === Result values ===

#[test]
fn types_with_one_json_form_pass() {
    check(&[
        ("true", "true"),
        ("1", "1"),
        ("1u", "1"),
        ("1.5", "1.5"),
        ("-0.0", "0"),
        ("'text'", "\"text\""),
        ("[1, 'a', null, [true]]", "[1,\"a\",null,[true]]"),
        ("{'b': 1, 'a': {'c': 2u}}", "{\"a\":{\"c\":2},\"b\":1}"),
        ("null", "null"),
        ("{}", "{}"),
        ("[]", "[]"),
    ]);
}

#[test]
fn types_without_one_are_unrepresentable() {
    insta::assert_snapshot!(unrepresentable("b'x'"), @"the result is bytes: write `base64.encode(…)` for text");
    insta::assert_snapshot!(unrepresentable("now()"), @"the result is a timestamp: write `string(…)` for RFC 3339 text");
    insta::assert_snapshot!(unrepresentable("duration('1s')"), @"the result is a duration: write `durationToIso8601(…)` for ISO 8601 text, or `string(…)` for seconds");
    insta::assert_snapshot!(unrepresentable("type(1)"), @"the result is a type: compare it, or write its name as a string");
    insta::assert_snapshot!(unrepresentable("int"), @"the result is a type: compare it, or write its name as a string");
    insta::assert_snapshot!(unrepresentable("{1: 'a'}"), @"the result is a map with the int key 1: build it with string keys");
    insta::assert_snapshot!(unrepresentable("{true: 'a'}"), @"the result is a map with the bool key true: build it with string keys");
    insta::assert_snapshot!(unrepresentable("optional.of(1)"), @"the result is an optional: write `….orValue(…)` for the value or a default");
    insta::assert_snapshot!(unrepresentable("{'a/b': [1, {'~': b'x'}]}"), @"the result holds, at /a~1b/1/~0, bytes: write `base64.encode(…)` for text");
    insta::assert_snapshot!(unrepresentable("[[1.0 / 0.0]]"), @"the result holds, at /0/0, +Inf, which JSON has no number for");
}

#[test]
fn the_conversions_of_the_table_give_values() {
    check(&[
        ("base64.encode(b'hello')", "\"aGVsbG8=\""),
        ("string(now())", "\"2024-01-15T09:30:00.25Z\""),
        ("string(duration('5m'))", "\"300s\""),
        ("durationToIso8601(duration('30s'))", "\"PT30S\""),
        ("double(9007199254740993)", "9007199254740992"),
        ("string(9007199254740993)", "\"9007199254740993\""),
    ]);
}

// === Numbers ===

#[test]
fn integers_pass_up_to_two_to_the_53rd() {
    check(&[
        ("9007199254740992", "9007199254740992"),
        ("-9007199254740992", "-9007199254740992"),
        ("9007199254740992u", "9007199254740992"),
        ("vars.big", "1e+300"),
        ("vars.big + 0.0", "1e+300"),
    ]);
    insta::assert_snapshot!(unrepresentable("9007199254740993"), @"the result is the integer 9007199254740993, beyond 2^53: write `double(…)` to accept the loss, or `string(…)` to keep every digit");
    for body in [
        "-9007199254740993",
        "9007199254740993u",
        "-9223372036854775808",
        "18446744073709551615u",
        "[9007199254740993]",
        "{'a': 9007199254740993}",
        "0.0 / 0.0",
        "-5.0 / 0.0",
        "5.0 / 0.0",
        "double('NaN')",
        "vars.big * vars.big",
    ] {
        unrepresentable(body);
    }
}

#[test]
fn numbers_from_data_are_doubles() {
    check(&[
        ("type(vars.count) == double", "true"),
        ("type(vars.numbers[0]) == double", "true"),
        ("vars.numbers.all(n, type(n) == double)", "true"),
        ("vars.count / 2.0", "2.5"),
        ("vars.count * vars.ratio", "12.5"),
        ("1.0 + vars.ratio", "3.5"),
        ("double(1) + vars.ratio", "3.5"),
        ("1 + int(vars.ratio)", "3"),
        ("double(size(vars.items)) + vars.ratio", "5.5"),
        ("vars.items[int(vars.half)]", "\"a\""),
        ("vars.items[vars.i]", "\"b\""),
        ("vars.items[1]", "\"b\""),
        ("vars.items[2u]", "\"c\""),
        ("vars.count == 5", "true"),
        ("vars.count == 5u && 5 == vars.count", "true"),
        ("vars.one in [1, 2]", "true"),
        ("1 in vars.numbers", "true"),
        (
            "size(vars.items) < 4 && size(vars.items) < vars.count",
            "true",
        ),
        ("vars.count > 4 && vars.count <= 5", "true"),
        ("5 / 2", "2"),
        ("{1: 'one'}[vars.one]", "\"one\""),
        ("type(fromJson('5')) == double", "true"),
    ]);
    insta::assert_snapshot!(fault("1 + vars.ratio"), @"`+` takes no (int, double); numbers from data are `double`: write the literal with a fraction (`1.0`), or convert with `double(…)` or `int(…)`");
    insta::assert_snapshot!(fault("vars.count - 1"), @"`-` takes no (double, int); numbers from data are `double`: write the literal with a fraction (`1.0`), or convert with `double(…)` or `int(…)`");
    insta::assert_snapshot!(fault("size(vars.items) * vars.ratio"), @"`*` takes no (int, double); numbers from data are `double`: write the literal with a fraction (`1.0`), or convert with `double(…)` or `int(…)`");
    insta::assert_snapshot!(fault("5 / 0"), @"an integer was divided by zero");
    insta::assert_snapshot!(fault("vars.items[vars.half]"), @"`[]` takes no (list, double)");
    insta::assert_snapshot!(fault("vars.items[-1]"), @"the list has no element -1");
    insta::assert_snapshot!(fault("vars.items[3]"), @"the list has no element 3");
    insta::assert_snapshot!(fault("9223372036854775807 + 1"), @"`+` went beyond the range of its type");
}

// === Binding access ===

#[test]
fn members_are_reached_by_dot_and_index() {
    check(&[
        ("vars.name", "\"modis\""),
        ("vars['name']", "\"modis\""),
        ("vars['odd key']", "\"odd\""),
        ("vars.`odd key`", "\"odd\""),
        ("vars.object.b.c[1]", "2"),
        ("vars[vars.name == 'modis' ? 'count' : 'name']", "5"),
        ("vars.list[0].a", "1"),
        ("vars.list.map(x, x.a)", "[1,2]"),
        ("vars.object.map(k, k)", "[\"a\",\"b\"]"),
        ("'a' in vars.object && !('z' in vars.object)", "true"),
        ("vars.none", "null"),
        (".vars.name", "\"modis\""),
        ("'/granules/' + vars.name", "\"/granules/modis\""),
        ("vars.name + '/' + vars.name", "\"modis/modis\""),
        ("vars.items + ['d']", "[\"a\",\"b\",\"c\",\"d\"]"),
        ("['d'] + vars.items", "[\"d\",\"a\",\"b\",\"c\"]"),
        (
            "{'n': vars.name, vars.name: 1}",
            "{\"modis\":1,\"n\":\"modis\"}",
        ),
        ("vars.?absent.orValue('none')", "\"none\""),
        ("vars.object[?'a'].value()", "1"),
    ]);
    insta::assert_snapshot!(fault("vars.absent"), @"`vars` has no member `absent`; test it with `has(vars.absent)` first");
    insta::assert_snapshot!(fault("vars.object.b.z > 1.0"), @"`vars.object.b` has no member `z`; test it with `has(vars.object.b.z)` first");
    insta::assert_snapshot!(fault("vars.name.length"), @"`vars.name` is string, which has no member `length`");
    insta::assert_snapshot!(fault("vars.none.x"), @"`vars.none` is null, which has no member `x`");
    insta::assert_snapshot!(fault("match.value"), @"`match` holds nothing here");
    insta::assert_snapshot!(fault("vars.list[0].z"), @"there is no member `z`; test it with `has(…)` first");
    insta::assert_snapshot!(fault("vars[1]"), @"there is no member `of type int`; test it with `has(…)` first");
}

#[test]
fn defensive_constructs_prevent_faults() {
    check(&[
        ("has(vars.name)", "true"),
        ("has(vars.absent)", "false"),
        ("has(vars.object.b.c)", "true"),
        ("has(vars.none)", "true"),
        ("has(vars.absent) ? vars.absent : 'default'", "\"default\""),
        ("has(vars.absent) && vars.absent > 1.0", "false"),
        ("!has(vars.absent) || vars.absent > 1.0", "true"),
        ("vars.absent == 1 || true", "true"),
        ("vars.absent == 1 && false", "false"),
        ("vars.list.exists(x, has(x.b) || x.a == 2)", "true"),
    ]);
    insta::assert_snapshot!(fault("has(vars.absent.more)"), @"`vars` has no member `absent`; test it with `has(vars.absent)` first");
}

#[test]
fn shared_data_compares_with_made_data() {
    check(&[
        ("vars.object == vars.same", "true"),
        ("vars.object == {'a': 1, 'b': {'c': [1, 2u]}}", "true"),
        ("{'a': 1, 'b': {'c': [1, 2]}} == vars.object", "true"),
        ("{'a': 1} != vars.object", "true"),
        (
            "vars.numbers == [3, 1, 2] && [3.0, 1.0, 2.0] == vars.numbers",
            "true",
        ),
        ("vars.numbers != [3, 1]", "true"),
        ("{'a': 2} in vars.list", "true"),
        ("vars.list[1] in [{'a': 1}, {'a': 2}]", "true"),
        ("[vars.object] == [vars.same]", "true"),
        (
            "{'k': vars.object} == {'k': {'a': 1, 'b': {'c': [1, 2]}}}",
            "true",
        ),
        ("vars.items == vars.name", "false"),
        ("vars.name == 'modis' && 'modis' == vars.name", "true"),
        ("vars.none == null && null == vars.none", "true"),
        ("vars.empty == {}", "true"),
        ("[vars.name, 'modis'].distinct()", "[\"modis\"]"),
    ]);
}

// === MWL functions ===

#[test]
fn json_is_written_canonically_and_read() {
    check(&[
        (
            "toJson({'b': 1, 'a': [1.5, null, true]})",
            r#""{\"a\":[1.5,null,true],\"b\":1}""#,
        ),
        ("toJson(vars.object)", r#""{\"a\":1,\"b\":{\"c\":[1,2]}}""#),
        ("toJson('é\\n')", r#""\"é\\n\"""#),
        ("toJson(1e21)", "\"1e+21\""),
        ("fromJson('{\"a\": [1, 2.5]}').a", "[1,2.5]"),
        ("fromJson(toJson(vars.object)) == vars.object", "true"),
    ]);
    insta::assert_snapshot!(fault("fromJson('{')"), @"`fromJson`: not JSON: EOF while parsing an object at line 1 column 1");
    insta::assert_snapshot!(fault("toJson(now())"), @"`toJson`: the result is a timestamp: write `string(…)` for RFC 3339 text");
    insta::assert_snapshot!(fault("fromJson(1)"), @"`fromJson` takes no (int)");
}

#[test]
fn durations_cross_to_iso_8601_and_back() {
    check(&[
        ("durationToIso8601(duration('1h30m'))", "\"PT1H30M\""),
        ("durationToIso8601(duration('26h'))", "\"PT26H\""),
        ("durationToIso8601(duration('0.5s'))", "\"PT0.5S\""),
        ("durationToIso8601(duration('0s'))", "\"PT0S\""),
        ("durationToIso8601(duration('-30s'))", "\"-PT30S\""),
        ("durationFromIso8601('P1D') == duration('24h')", "true"),
        ("durationFromIso8601('-PT1M') < duration('0s')", "true"),
        (
            "durationToIso8601(durationFromIso8601('P1W') + duration('1s'))",
            "\"PT168H1S\"",
        ),
        ("durationFromIso8601('PT1.5S').getMilliseconds()", "500"),
        ("duration('-1.5s').getMilliseconds()", "-500"),
        ("duration('90s').getSeconds()", "90"),
    ]);
    insta::assert_snapshot!(fault("durationFromIso8601('1h')"), @r#"`durationFromIso8601`: "1h" is not an ISO 8601 duration; one is "PT1M30S""#);
    insta::assert_snapshot!(fault("durationFromIso8601('P300Y')"), @r#"`durationFromIso8601`: "P300Y" is beyond the range of a CEL duration, about 292 years"#);
    insta::assert_snapshot!(fault("duration('1h 1s') == duration('1h')"), @r#"`duration`: "1h 1s" is not a duration; one is "1h30m" or "0.5s""#);
}

#[test]
fn the_clocks_are_those_of_the_bindings() {
    check(&[
        ("now() == now()", "true"),
        ("string(wallTime())", "\"2024-01-15T09:30:01Z\""),
        ("durationToIso8601(wallTime() - now())", "\"PT0.75S\""),
        ("now().getMilliseconds()", "250"),
        (
            "[1, 2].map(x, string(now()))[1]",
            "\"2024-01-15T09:30:00.25Z\"",
        ),
    ]);
    assert_eq!(compile("now()").roots(), Roots::NONE);
}

// === The extensions that the crate lacks or gets wrong ===

#[test]
fn lists_and_sets_follow_cel_go() {
    check(&[
        ("[1, 2, 3, 4].slice(1, 3)", "[2,3]"),
        ("[1, [2, [3]]].flatten()", "[1,2,[3]]"),
        ("[1, [2, [3]]].flatten(2)", "[1,2,3]"),
        ("vars.numbers.sort()", "[1,2,3]"),
        ("vars.items.reverse()", "[\"c\",\"b\",\"a\"]"),
        ("[{'n': 2}, {'n': 1}].sortBy(x, x.n)[0].n", "1"),
        ("vars.list.sortBy(x, -x.a).map(x, x.a)", "[2,1]"),
        ("[1, 2, 1.0, 2u].distinct()", "[1,2]"),
        ("lists.range(3)", "[0,1,2]"),
        ("vars.items.first().value()", "\"a\""),
        ("vars.items.last().orValue('z')", "\"c\""),
        ("[].first().orValue('z')", "\"z\""),
        ("vars.items.join('-')", "\"a-b-c\""),
        ("sets.contains([1, 2, 3], [3, 1u])", "true"),
        ("sets.contains([1], [1, 2])", "false"),
        ("sets.contains([1], [])", "true"),
        ("sets.contains(vars.list, [{'a': 2}])", "true"),
        ("sets.equivalent([1, 2], [2, 1, 1])", "true"),
        ("sets.equivalent([1, 2], [1])", "false"),
        ("sets.equivalent([], [])", "true"),
        ("sets.intersects([1, 2], [2u, 3])", "true"),
        ("sets.intersects([1, 2], [3])", "false"),
        ("sets.intersects([], [])", "false"),
    ]);
}

#[test]
fn text_is_searched_by_code_points() {
    check(&[
        ("vars.emoji.indexOf('x')", "2"),
        ("vars.emoji.indexOf('😀', 1)", "1"),
        ("vars.emoji.lastIndexOf('😀')", "1"),
        ("vars.emoji.lastIndexOf('é', 2)", "0"),
        ("vars.emoji.lastIndexOf('x', 1)", "-1"),
        ("vars.emoji.indexOf('')", "0"),
        ("vars.emoji.lastIndexOf('')", "3"),
        ("vars.emoji.replace('é', 'ab')", "\"ab😀x\""),
        ("'aaa'.replace('a', 'b', 2)", "\"bba\""),
        ("'ab'.replace('', '-')", "\"-a-b-\""),
        (
            "vars.name.upperAscii() + vars.name.substring(2)",
            "\"MODISdis\"",
        ),
        (
            "vars.name.matches('^m.*s$') && matches(vars.name, vars.pattern)",
            "true",
        ),
        ("vars.name.split('o')", "[\"m\",\"dis\"]"),
        ("size(vars.emoji)", "3"),
    ]);
    insta::assert_snapshot!(fault("vars.emoji.indexOf('x', 3)"), @"`indexOf`: index out of range: 3");
    insta::assert_snapshot!(fault("vars.name.matches(vars.name + '[')"), @"`matches`: the pattern is no regular expression: unclosed character class");
    insta::assert_snapshot!(fault("vars.count.matches('5')"), @"`matches` takes no (double, @pattern)");
}

// === What compile refuses ===

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
    assert_eq!(
        program.evaluate(&Fixture(json(DATA))).unwrap().to_string(),
        "[1,2]"
    );
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
    insta::assert_snapshot!(refused("vars.name.uuid()", EVERY), @"10: there is no function `uuid`");
    insta::assert_snapshot!(refused("vars.name.matches('(')", EVERY), @"18: the pattern is no regular expression: unclosed group");
    insta::assert_snapshot!(refused("1 + math.median([1])", EVERY), @"4: there is no function `math.median`");
    insta::assert_snapshot!(refused("math.greater(1, 2)", EVERY), @"0: there is no function `math.greater`; did you mean `math.greatest`?");
    insta::assert_snapshot!(refused("Money{amount: 1}", EVERY), @"0: there is no message type `Money`; write a map: {'field': value}");
}

#[test]
fn syntax_errors_carry_the_place_in_characters() {
    insta::assert_snapshot!(refused("", EVERY), @"0: the expression is empty");
    insta::assert_snapshot!(refused("vars.", EVERY), @"5: Syntax error: no viable alternative at input '.'");
    insta::assert_snapshot!(refused("'é😀' + + 1", EVERY), @"7: Syntax error: extraneous input '+' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}");
    insta::assert_snapshot!(refused("'é😀' +\n  oops", Roots::NONE), @"9: `oops` is unknown; no binding is in scope here");
    insta::assert_snapshot!(refused("has(vars)", EVERY), @"4: invalid argument to has() macro");
}

// === What is read ===

#[test]
fn the_paths_of_an_expression_are_known() {
    let paths = |body: &str| {
        let program = compile(body);
        let shown = program
            .reads()
            .iter()
            .map(|path| format!("{path} {:?}", path.end));
        shown.collect::<Vec<_>>().join(", ")
    };
    for (body, expected) in [
        ("step.input.body.x", "step.input.body.x Value"),
        ("step['input'].body", "step.input.body Value"),
        (
            "has(step.input.body)",
            "step.input Presence, step.input.body Presence",
        ),
        ("step.input[vars.key]", "step.input Unknown, vars.key Value"),
        ("step.results[0].body", "step.results Unknown"),
        (
            "step.input.?body",
            "step.input Presence, step.input.body Value",
        ),
        (
            "step.input[?'body']",
            "step.input Presence, step.input.body Value",
        ),
        ("step.input.items.map(i, i.body)", "step.input.items Value"),
        ("{'r': middleware.result}", "middleware.result Value"),
        ("vars.a + vars.a", "vars.a Value"),
        ("[1].map(step, step.input)", ""),
    ] {
        assert_eq!(paths(body), expected, "{body}");
    }
    let program = compile("has(step.input.body) && middleware.result != null");
    assert!(program.may_read(Root::Step, &["input", "body"]));
    assert!(!program.may_read(Root::Middleware, &["result", "body"]));
    assert!(program.takes_whole(Root::Middleware, &["result", "body"]));
    assert!(!program.takes_whole(Root::Step, &["input", "body"]));
}

/// A host's object that notes what is asked of it.
#[derive(Debug, Default)]
struct Host(Mutex<Vec<String>>);

impl Native for Host {
    fn member(&self, name: &str) -> Option<Value> {
        self.0.lock().unwrap().push(name.to_owned());
        (name != "absent").then(|| Value::from(name))
    }

    fn to_map(&self) -> Map {
        self.0.lock().unwrap().push("*".to_owned());
        Map::from_iter([("body".into(), Value::from("text"))])
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[test]
fn a_host_object_is_asked_only_for_what_is_named() {
    let asked = |body: &str| {
        let host = Arc::new(Host::default());
        let native: Arc<dyn Native> = host.clone();
        let vars = Value::object([("host", Value::Native(native))]);
        let fixture = Fixture(Value::object([("vars", vars)]));
        let result = compile(body).evaluate(&fixture).unwrap();
        let asked = host.0.lock().unwrap().join(",");
        (result, asked)
    };
    for (body, expected) in [
        ("vars.host.path", "path"),
        (
            "vars.host.path == 'path' && vars.host['method'] != ''",
            "path,method",
        ),
        ("has(vars.host.absent)", "absent"),
        ("[vars.host].map(h, h.path)", "path"),
        ("'path' in vars.host", "path"),
        ("size(vars.host)", "*"),
        ("vars.host == {'body': 'text'}", "*"),
        ("toJson(vars.host)", "*"),
        ("vars.host.map(k, k)", "*"),
        ("vars.host", ""),
        ("{'h': vars.host, 'l': [vars.host]}", ""),
        ("true ? vars.host : null", ""),
    ] {
        assert_eq!(asked(body).1, expected, "{body}");
    }
    assert!(asked("vars.host").0.as_native::<Host>().is_some());
    assert!(
        asked("{'h': vars.host}")
            .0
            .get("h")
            .unwrap()
            .as_native::<Host>()
            .is_some()
    );
}

/// Bindings that note which roots are asked for.
struct Asked(Mutex<Vec<Root>>);

impl Bindings for Asked {
    fn root(&self, root: Root) -> Option<Value> {
        self.0.lock().unwrap().push(root);
        Some(Value::empty_object())
    }

    fn now(&self) -> i128 {
        0
    }

    fn wall_time(&self) -> i128 {
        0
    }
}

#[test]
fn only_roots_that_are_named_are_asked_for() {
    let asked = Asked(Mutex::default());
    compile("has(vars.x) || has(step.y)")
        .evaluate(&asked)
        .unwrap();
    compile("1 + 1").evaluate(&asked).unwrap();
    assert_eq!(*asked.0.lock().unwrap(), [Root::Vars, Root::Step]);
}

#[test]
fn what_is_passed_on_is_the_same_value() {
    let items = |value: &Value| match value.get("vars").and_then(|vars| vars.get("items")) {
        Some(Value::Array(items)) => items,
        other => panic!("{other:?}"),
    };
    let data = json(DATA);
    let before = items(&data);
    for body in [
        "vars.items",
        "vars.yes ? vars.items : []",
        "{'a': [vars.items]}.a[0]",
    ] {
        match compile(body).evaluate(&Fixture(data.clone())) {
            Ok(Value::Array(after)) => assert!(Arc::ptr_eq(&before, &after), "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}

// === Limits ===

/// Expressions of `n` parts whose trees are as deep as `n`, in every way in which one can be.
fn deep(n: usize) -> Vec<String> {
    vec![
        vec!["vars.one"; n].join(" + "),
        vec!["1"; n].join(" - "),
        vec!["'a'"; n].join(" + "),
        format!("vars{}", ".a".repeat(n)),
        format!("vars.list{}", "[0]".repeat(n)),
        format!("vars.items{}", ".map(x, [x, x])".repeat(n)),
        format!("vars.items{}", ".filter(x, true)".repeat(n)),
        format!("{}1", "true ? ".repeat(n)) + &" : 2".repeat(n),
        format!("{}vars.yes", "!".repeat(n)),
        format!("{}1", "-".repeat(n)),
        format!("{}1{}", "[".repeat(n), "]".repeat(n)),
        format!("{}1{}", "{'a': ".repeat(n), "}".repeat(n)),
        format!("{}1{}", "(".repeat(n), ")".repeat(n)),
        format!("{}vars{}", "size(".repeat(n), ")".repeat(n)),
        format!("vars.name{}", ".trim()".repeat(n)),
        format!("vars.name{}", ".replace('s', 'ssssssss')".repeat(n)),
        format!("optional.of(1){}", ".optMap(x, x)".repeat(n)),
        format!("{}true{}", "[1].all(x, ".repeat(n), ")".repeat(n)),
        format!("{}x{}", "[1].map(x, ".repeat(n), ")".repeat(n)),
        vec!["vars.yes"; n].join(" && "),
        vec!["vars.one == 1"; n].join(" == "),
    ]
}

/// Runs `test` on a thread with a stack of so many KiB, in which an overflow would abort this process.
fn on_a_stack_of(kib: usize, test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .stack_size(kib * 1024)
        .spawn(test);
    thread.unwrap().join().unwrap();
}

#[test]
fn no_expression_overflows_a_stack() {
    // A worker has 2 MiB, of which an evaluation may find some used.
    on_a_stack_of(768, || {
        let mut evaluated = 0;
        for n in [4, 20, 40, 60, 90, 100, 119, 130, 300, 1000, 2000, 5000] {
            for body in deep(n) {
                if let Ok(program) = Program::compile(&body, EVERY) {
                    evaluated += usize::from(program.evaluate(&Fixture(json(DATA))).is_ok());
                }
            }
        }
        assert!(evaluated > 60, "{evaluated}");
    });
}

#[test]
fn what_is_too_long_or_too_deep_is_refused_with_the_way_out() {
    let chain = vec!["vars.one"; 500].join(" + ");
    insta::assert_snapshot!(refused(&chain, EVERY), @"4191: the expression nests deeper than 120 levels (each term of a chain such as `a + b + c` is one): split it, with `assign`, into several, or use `join`");
    let long = format!("'{}'", "a".repeat(20_000));
    insta::assert_snapshot!(refused(&long, EVERY), @"0: the expression has 20002 bytes; the most is 16384: split it, with `assign`, into several");
    assert!(!refused(&"(".repeat(5000), EVERY).is_empty());
    assert_eq!(value(&vec!["1.0"; 100].join(" + ")), "100");
}

#[test]
fn work_is_bounded() {
    let numbers = Value::array((0..3000_u32).map(Value::from).collect());
    let text = Value::string("a".repeat(100_000));
    let vars = Value::object([("n", numbers), ("text", text)]);
    let fixture = Fixture(Value::object([("vars", vars)]));
    for body in [
        "vars.n.all(a, vars.n.all(b, vars.n.all(c, a + b + c >= 0.0)))",
        "vars.n.exists(a, vars.n.exists(b, a + b < 0.0)) || true",
        "vars.n.map(a, vars.n.map(b, [a, b]))",
        "vars.n.filter(a, vars.n.exists_one(b, a == b)).size()",
        "vars.n.all(a, vars.n == vars.n)",
        "vars.n.all(a, -1 in vars.n || true)",
        "vars.n.map(a, -a).distinct().map(a, lists.range(1000000))",
        "lists.range(1000000).map(a, a).size()",
        "vars.n.map(a, vars.text).join('').size()",
        "vars.text.replace('a', vars.text).size()",
        "vars.n.map(a, vars.text + vars.text).size()",
        "vars.n.map(a, vars.text.split('')).size()",
        "vars.n.map(a, toJson(vars.n)).size()",
        "vars.n.map(a, fromJson(toJson(vars.n))).size()",
        "vars.n.all(a, vars.text.matches(vars.text))",
        "vars.n.all(a, vars.text.indexOf(vars.text + 'b') == -1 )",
        "sets.equivalent(vars.n, vars.n.reverse())",
        "['%s'.format([vars.n]).size()].map(x, vars.n.map(y, '%s'.format([vars.n])))",
        "vars.n.sortBy(a, vars.n.map(b, b)[0])",
        &format!(
            "[[vars.text + 'b']]{}.size()",
            ".map(x, [x, x, x])".repeat(40)
        ),
        &format!(
            "vars.text.substring(0, 10){}.size()",
            ".replace('a', 'aaaaaaaaaa')".repeat(40)
        ),
        &format!("[vars.text + 'b']{}.size()", ".map(x, x + x)".repeat(40)),
    ] {
        match compile(body).evaluate(&fixture) {
            Err(EvalError::Fault(message)) => assert_eq!(message, fault::TOO_MUCH_WORK, "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
    // The next evaluation on this thread has an account of its own.
    assert_eq!(value("vars.items.map(x, x)"), "[\"a\",\"b\",\"c\"]");
}

#[test]
fn useful_work_is_within_the_bound() {
    let numbers = Value::array((0..5000_u32).map(Value::from).collect());
    let vars = Value::object([("n", numbers)]);
    let fixture = Fixture(Value::object([("vars", vars)]));
    for body in [
        "vars.n.all(a, a >= 0.0 && a < 5000.0)",
        "vars.n.map(a, {'id': string(a), 'twice': a * 2.0}).size() == 5000",
        "vars.n.filter(a, a > 10.0).map(a, a + 1.0).sort().reverse()[0] == 5000",
        "vars.n.map(a, string(a)).join(',').split(',').size() == 5000",
        "fromJson(toJson(vars.n)) == vars.n",
    ] {
        assert_eq!(
            compile(body).evaluate(&fixture),
            Ok(Value::Bool(true)),
            "{body}"
        );
    }
}

#[test]
fn a_value_that_would_nest_too_deep_is_a_fault() {
    let mut nested = Value::Null;
    for _ in 0..100 {
        nested = Value::array(vec![nested]);
    }
    let wrap = |vars: Value| {
        let vars = Value::object([("x", vars)]);
        compile("{'a': {'b': vars.x}}").evaluate(&Fixture(Value::object([("vars", vars)])))
    };
    let mut last = Ok(nested);
    let mut rounds = 0;
    while let Ok(value) = last {
        last = wrap(value);
        rounds += 1;
    }
    assert_eq!(rounds, 15);
    assert_eq!(
        last,
        Err(EvalError::Fault(
            "the result nests deeper than 128 levels".to_owned()
        ))
    );
}

#[test]
fn a_program_is_shared_between_threads() {
    let program = compile("vars.items.map(x, x + vars.name)");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let value = program.evaluate(&Fixture(json(DATA))).unwrap();
                assert_eq!(value.to_string(), r#"["amodis","bmodis","cmodis"]"#);
            });
        }
    });
    assert_eq!(program.source(), "vars.items.map(x, x + vars.name)");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_anything_panic(body in "[-+*/%<>=!&|?:.,()\\[\\]{}'\"a-z0-9 ]{0,60}") {
        if let Ok(program) = Program::compile(&body, EVERY) {
            let _ = program.evaluate(&Fixture(json(DATA)));
        }
        let _ = Program::body(&body);
    }

    #[test]
    fn a_value_survives_an_expression(bits: u64, text: String) {
        let number = f64::from_bits(bits);
        proptest::prop_assume!(number.is_finite());
        let vars = Value::object([("n", Value::Number(number)), ("t", Value::from(text.as_str()))]);
        let fixture = Fixture(Value::object([("vars", vars.clone())]));
        let made = compile("{'n': vars.n, 't': vars.t}").evaluate(&fixture).unwrap();
        proptest::prop_assert_eq!(&made, &vars);
        let read = compile("fromJson(toJson(vars))").evaluate(&fixture).unwrap();
        proptest::prop_assert_eq!(&read, &vars);
    }
}
