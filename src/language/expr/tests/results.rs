//! Results, numbers, and how data is reached.

use super::*;

#[test]
fn types_with_one_json_form_pass() {
    check(table::TYPES_WITH_ONE_JSON_FORM_PASS);
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
    check(table::THE_CONVERSIONS_OF_THE_TABLE_GIVE_VALUES);
}

#[test]
fn integers_pass_up_to_two_to_the_53rd() {
    check(table::INTEGERS_PASS_UP_TO_TWO_TO_THE_53RD);
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
    check(table::NUMBERS_FROM_DATA_ARE_DOUBLES);
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
    check(table::MEMBERS_ARE_REACHED_BY_DOT_AND_INDEX);
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
    check(table::DEFENSIVE_CONSTRUCTS_PREVENT_FAULTS);
    insta::assert_snapshot!(fault("has(vars.absent.more)"), @"`vars` has no member `absent`; test it with `has(vars.absent)` first");
}

#[test]
fn shared_data_compares_with_made_data() {
    check(table::SHARED_DATA_COMPARES_WITH_MADE_DATA);
}
