//! Results, numbers, and how data is reached.

use super::*;

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
        ("size(vars.items) < 4 && size(vars.items) < vars.count", "true"),
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
        ("{'n': vars.name, vars.name: 1}", "{\"modis\":1,\"n\":\"modis\"}"),
        ("vars.?absent.orValue('none')", "\"none\""),
        ("vars.object[?'a'].value()", "1"),
    ]);
    insta::assert_snapshot!(fault("vars.absent"), @"`vars` has no member `absent`; test it with `has(vars.absent)` first");
    insta::assert_snapshot!(fault("vars.object.b.z > 1.0"), @"`vars.object.b` has no member `z`; test it with `has(vars.object.b.z)` first");
    insta::assert_snapshot!(fault("vars.name.length"), @"`vars.name` is string, which has no member `length`");
    insta::assert_snapshot!(fault("vars.none.x"), @"`vars.none` is null, which has no member `x`");
    insta::assert_snapshot!(fault("match.value"), @"`match` holds nothing here");
    insta::assert_snapshot!(fault("vars.list[0].z"), @"there is no member `z`; test it with `has(…)` first");
    insta::assert_snapshot!(fault("vars[1]"), @"there is no member `1`; test it with `has(…)` first");
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
        ("vars.numbers == [3, 1, 2] && [3.0, 1.0, 2.0] == vars.numbers", "true"),
        ("vars.numbers != [3, 1]", "true"),
        ("{'a': 2} in vars.list", "true"),
        ("vars.list[1] in [{'a': 1}, {'a': 2}]", "true"),
        ("[vars.object] == [vars.same]", "true"),
        ("{'k': vars.object} == {'k': {'a': 1, 'b': {'c': [1, 2]}}}", "true"),
        ("vars.items == vars.name", "false"),
        ("vars.name == 'modis' && 'modis' == vars.name", "true"),
        ("vars.none == null && null == vars.none", "true"),
        ("vars.empty == {}", "true"),
        ("[vars.name, 'modis'].distinct()", "[\"modis\"]"),
    ]);
}
