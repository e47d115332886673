//! The MWL functions, and the extensions that the crate lacks or gets wrong.

use super::*;

#[test]
fn json_is_written_canonically_and_read() {
    check(table::JSON_IS_WRITTEN_CANONICALLY_AND_READ);
    insta::assert_snapshot!(fault("fromJson('{')"), @"`fromJson`: not JSON: EOF while parsing an object at line 1 column 1");
    insta::assert_snapshot!(fault("toJson(now())"), @"`toJson`: the result is a timestamp: write `string(…)` for RFC 3339 text");
    insta::assert_snapshot!(fault("fromJson(1)"), @"`fromJson` takes no (int)");
}

#[test]
fn durations_cross_to_iso_8601_and_back() {
    check(table::DURATIONS_CROSS_TO_ISO_8601_AND_BACK);
    insta::assert_snapshot!(fault("durationFromIso8601('1h')"), @r#"`durationFromIso8601`: "1h" is not an ISO 8601 duration; one is "PT1M30S""#);
    insta::assert_snapshot!(fault("durationFromIso8601('P300Y')"), @r#"`durationFromIso8601`: "P300Y" is beyond the range of a CEL duration, about 292 years"#);
    insta::assert_snapshot!(fault("duration('1h 1s') == duration('1h')"), @r#"`duration`: "1h 1s" is not a duration; one is "1h30m" or "0.5s""#);
}

#[test]
fn the_clocks_are_those_of_the_bindings() {
    check(table::THE_CLOCKS_ARE_THOSE_OF_THE_BINDINGS);
    assert_eq!(compile("now()").roots(), Roots::NONE);
}

#[test]
fn lists_and_sets_follow_cel_go() {
    check(table::LISTS_AND_SETS_FOLLOW_CEL_GO);
}

#[test]
fn text_is_searched_by_code_points() {
    check(table::TEXT_IS_SEARCHED_BY_CODE_POINTS);
    insta::assert_snapshot!(fault("vars.emoji.indexOf('x', 3)"), @"`indexOf`: index out of range: 3");
    insta::assert_snapshot!(fault("vars.name.matches(vars.name + '[')"), @"`matches`: the pattern is no regular expression: unclosed character class");
    insta::assert_snapshot!(fault("vars.count.matches('5')"), @"`matches` takes no (double, @pattern)");
}
