//! The MWL functions, and the extensions that the crate lacks or gets wrong.

use super::*;

#[test]
fn json_is_written_canonically_and_read() {
    check(&[
        ("toJson({'b': 1, 'a': [1.5, null, true]})", r#""{\"a\":[1.5,null,true],\"b\":1}""#),
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
        ("durationToIso8601(durationFromIso8601('P1W') + duration('1s'))", "\"PT168H1S\""),
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
        ("[1, 2].map(x, string(now()))[1]", "\"2024-01-15T09:30:00.25Z\""),
    ]);
    assert_eq!(compile("now()").roots(), Roots::NONE);
}

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
        ("vars.name.upperAscii() + vars.name.substring(2)", "\"MODISdis\""),
        ("vars.name.matches('^m.*s$') && matches(vars.name, vars.pattern)", "true"),
        ("vars.name.split('o')", "[\"m\",\"dis\"]"),
        ("size(vars.emoji)", "3"),
    ]);
    insta::assert_snapshot!(fault("vars.emoji.indexOf('x', 3)"), @"`indexOf`: index out of range: 3");
    insta::assert_snapshot!(fault("vars.name.matches(vars.name + '[')"), @"`matches`: the pattern is no regular expression: unclosed character class");
    insta::assert_snapshot!(fault("vars.count.matches('5')"), @"`matches` takes no (double, @pattern)");
}
