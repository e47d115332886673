//! Expressions and their values, as JSON. The unit tests check them, and `benches/expression.rs` measures
//! them.

/// Expressions, each with its value.
pub(super) type Rows = &'static [(&'static str, &'static str)];

/// The bindings that the expressions of [`ALL`] read.
pub(super) const DATA: &str = r#"{
    "vars": {
        "count": 5, "ratio": 2.5, "big": 1e300, "name": "modis", "none": null, "yes": true, "one": 1,
        "items": ["a", "b", "c"], "numbers": [3, 1, 2], "i": 1, "half": 0.5,
        "object": {"a": 1, "b": {"c": [1, 2]}}, "same": {"b": {"c": [1.0, 2.0]}, "a": 1.0},
        "list": [{"a": 1}, {"a": 2}], "odd key": "odd", "empty": {}, "pattern": "^m.*s$", "emoji": "é😀x"
    },
    "step": {"input": {"features": [{"id": "x", "step": 1}, {"id": "y", "step": 2}]}},
    "failure": {"details": {"status": 503}}
}"#;

/// All of them, by what they show.
pub(super) const ALL: &[(&str, Rows)] = &[
    ("types with one json form pass", TYPES_WITH_ONE_JSON_FORM_PASS),
    ("the conversions of the table give values", THE_CONVERSIONS_OF_THE_TABLE_GIVE_VALUES),
    ("integers pass up to two to the 53rd", INTEGERS_PASS_UP_TO_TWO_TO_THE_53RD),
    ("numbers from data are doubles", NUMBERS_FROM_DATA_ARE_DOUBLES),
    ("members are reached by dot and index", MEMBERS_ARE_REACHED_BY_DOT_AND_INDEX),
    ("defensive constructs prevent faults", DEFENSIVE_CONSTRUCTS_PREVENT_FAULTS),
    ("shared data compares with made data", SHARED_DATA_COMPARES_WITH_MADE_DATA),
    ("json is written canonically and read", JSON_IS_WRITTEN_CANONICALLY_AND_READ),
    ("durations cross to iso 8601 and back", DURATIONS_CROSS_TO_ISO_8601_AND_BACK),
    ("the clocks are those of the bindings", THE_CLOCKS_ARE_THOSE_OF_THE_BINDINGS),
    ("lists and sets follow cel go", LISTS_AND_SETS_FOLLOW_CEL_GO),
    ("text is searched by code points", TEXT_IS_SEARCHED_BY_CODE_POINTS),
];

/// What a policy asks about a live request and a failed attempt, in an ascent phase of a Retry. The unit
/// tests read a fixture; the bench reads what the proxy and the engine carry.
pub(super) const TYPICAL: Rows = &[
    ("has(middleware.result.details.retryAfter)", "true"),
    (
        "has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null",
        "\"PT2S\"",
    ),
    ("middleware.result.code == 'Provider.Call.Http.Unavailable'", "true"),
    (
        "middleware.result.code in ['Provider.Call.Http.Throttled', 'Provider.Call.Http.Unavailable']",
        "true",
    ),
    ("middleware.result.code.startsWith('Provider.Call.Http.')", "true"),
    ("middleware.result.details.status == 503", "true"),
    ("middleware.result.retryable && vars.n < 3", "true"),
    ("vars.n < 3", "true"),
    ("middleware.metadata.attempt < 3", "true"),
    ("'x-tier' in step.input.headers", "true"),
    ("step.input.headers['x-tier'] == 'gold'", "true"),
    ("step.input.headers['x-tier'] in ['silver', 'gold', 'platinum']", "true"),
    ("step.input.method in ['GET', 'HEAD']", "false"),
    ("execution.platform.environment == 'production'", "true"),
];

pub(super) const TYPES_WITH_ONE_JSON_FORM_PASS: Rows = &[
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
];

pub(super) const THE_CONVERSIONS_OF_THE_TABLE_GIVE_VALUES: Rows = &[
    ("base64.encode(b'hello')", "\"aGVsbG8=\""),
    ("string(now())", "\"2024-01-15T09:30:00.25Z\""),
    ("string(duration('5m'))", "\"300s\""),
    ("durationToIso8601(duration('30s'))", "\"PT30S\""),
    ("double(9007199254740993)", "9007199254740992"),
    ("string(9007199254740993)", "\"9007199254740993\""),
];

pub(super) const INTEGERS_PASS_UP_TO_TWO_TO_THE_53RD: Rows = &[
    ("9007199254740992", "9007199254740992"),
    ("-9007199254740992", "-9007199254740992"),
    ("9007199254740992u", "9007199254740992"),
    ("vars.big", "1e+300"),
    ("vars.big + 0.0", "1e+300"),
];

pub(super) const NUMBERS_FROM_DATA_ARE_DOUBLES: Rows = &[
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
];

pub(super) const MEMBERS_ARE_REACHED_BY_DOT_AND_INDEX: Rows = &[
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
];

pub(super) const DEFENSIVE_CONSTRUCTS_PREVENT_FAULTS: Rows = &[
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
];

pub(super) const SHARED_DATA_COMPARES_WITH_MADE_DATA: Rows = &[
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
];

pub(super) const JSON_IS_WRITTEN_CANONICALLY_AND_READ: Rows = &[
    ("toJson({'b': 1, 'a': [1.5, null, true]})", r#""{\"a\":[1.5,null,true],\"b\":1}""#),
    ("toJson(vars.object)", r#""{\"a\":1,\"b\":{\"c\":[1,2]}}""#),
    ("toJson('é\\n')", r#""\"é\\n\"""#),
    ("toJson(1e21)", "\"1e+21\""),
    ("fromJson('{\"a\": [1, 2.5]}').a", "[1,2.5]"),
    ("fromJson(toJson(vars.object)) == vars.object", "true"),
];

pub(super) const DURATIONS_CROSS_TO_ISO_8601_AND_BACK: Rows = &[
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
];

pub(super) const THE_CLOCKS_ARE_THOSE_OF_THE_BINDINGS: Rows = &[
    ("now() == now()", "true"),
    ("string(wallTime())", "\"2024-01-15T09:30:01Z\""),
    ("durationToIso8601(wallTime() - now())", "\"PT0.75S\""),
    ("now().getMilliseconds()", "250"),
    ("[1, 2].map(x, string(now()))[1]", "\"2024-01-15T09:30:00.25Z\""),
];

pub(super) const LISTS_AND_SETS_FOLLOW_CEL_GO: Rows = &[
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
];

pub(super) const TEXT_IS_SEARCHED_BY_CODE_POINTS: Rows = &[
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
];
