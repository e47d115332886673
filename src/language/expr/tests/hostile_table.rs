//! Expressions written to block a worker or to fill its memory. The unit tests use them, and so do the tests
//! of the places where an expression can stand.

/// What becomes of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It does not compile.
    Refused,
    /// It compiles and its evaluation fails.
    Failed,
    /// It has a value: it harms other evaluators, but not ours.
    Value,
}

const REPETITIONS: &str = "((((a{1,100}){1,100}){1,100}){1,100})";

/// What the expressions read as `vars`.
pub(super) fn vars() -> serde_json::Value {
    let numbers: Vec<u32> = (0..10_000).collect();
    let wide = serde_json::to_string(&numbers).unwrap_or_default();
    serde_json::json!({
        "n": numbers,
        "one": 1,
        "yes": true,
        "a": "a".repeat(10_000),
        "pattern": REPETITIONS,
        "deep": format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)),
        "open": "{\"a\":".repeat(10_000),
        "wide": wide,
    })
}

/// The expressions, by what they are, with how each must end.
pub(super) fn hostile() -> Vec<(&'static str, String, End)> {
    let groups = [chains(), brackets(), loops(), patterns(), formats(), doublings(), conversions()];
    groups.into_iter().flatten().collect()
}

type Rows = Vec<(&'static str, String, End)>;

/// Expressions that compile and fail.
fn failing<const N: usize>(rows: [(&'static str, &str); N]) -> Rows {
    rows.map(|(what, body)| (what, body.to_owned(), End::Failed)).into()
}

fn chains() -> Rows {
    use End::{Failed, Refused, Value};
    let chain = |term: &str, operator: &str| vec![term; 5000].join(operator);
    vec![
        ("5,000 sums", chain("vars.one", " + "), Refused),
        ("5,000 short sums", chain("1", "+"), Refused),
        ("5,000 conjunctions", chain("vars.yes", " && "), Refused),
        ("5,000 short conjunctions", chain("1", "&&"), Failed),
        ("5,000 strings", chain("'a'", " + "), Refused),
        ("5,000 comparisons", chain("1", " < "), Refused),
        ("5,000 conditions", chain("vars.yes ? 1", " : "), Refused),
        ("5,000 members", format!("vars{}", ".a".repeat(5000)), Refused),
        ("5,000 indices", format!("vars{}", "[0]".repeat(5000)), Refused),
        ("5,000 elements", format!("size([{}])", chain("1", ",")), Value),
        ("3,000 calls", format!("vars.a{}", ".f()".repeat(3000)), Refused),
    ]
}

fn brackets() -> Rows {
    use End::{Refused, Value};
    let around = |open: &str, inner: &str, close: &str, n: usize| {
        format!("{}{inner}{}", open.repeat(n), close.repeat(n))
    };
    vec![
        ("10,000 round brackets", around("(", "1", ")", 10_000), Refused),
        ("8,000 short brackets", around("(", "1", ")", 8000), Refused),
        ("10,000 square brackets", around("[", "1", "]", 10_000), Refused),
        ("8,000 square brackets", around("[", "1", "]", 8000), Refused),
        ("2,000 maps", around("{'a':", "1", "}", 2000), Refused),
        ("10,000 open brackets", "(".repeat(10_000), Refused),
        ("10,000 closed brackets", ")".repeat(10_000), Refused),
        ("10,000 negations", format!("{}vars.yes", "!".repeat(10_000)), Value),
        ("10,000 minus signs", format!("{}1", "-".repeat(10_000)), Value),
    ]
}

fn loops() -> Rows {
    failing([
        ("nested all", "vars.n.all(a, vars.n.all(b, a + b >= 0.0))"),
        (
            "thrice nested exists",
            "vars.n.exists(a, vars.n.exists(b, vars.n.exists(c, a + b + c < 0.0)))",
        ),
        ("nested map", "vars.n.map(a, vars.n.map(b, [a, b]))"),
        ("a comparison in all", "vars.n.all(a, vars.n == vars.n)"),
        ("a membership in all", "vars.n.all(a, -1.0 in vars.n || true)"),
        ("sorting in map", "vars.n.map(a, vars.n.sort())"),
        ("sorting by in map", "vars.n.map(a, vars.n.sortBy(b, -b))"),
        ("distinct numbers", "vars.n.distinct().size()"),
        ("equal sets", "sets.equivalent(vars.n, vars.n.reverse())"),
        ("a huge range", "lists.range(1000000000).size()"),
        ("a range beyond counting", "lists.range(9223372036854775807).size()"),
        ("ranges of ranges", "lists.range(10000).map(x, lists.range(10000)).flatten().size()"),
    ])
}

fn patterns() -> Rows {
    use End::{Failed, Refused, Value};
    vec![
        ("an exploding pattern", "vars.a.matches('^(a+)+$')".to_owned(), Value),
        ("an exploding alternation", "vars.a.matches('^(a|a|aa)*b$')".to_owned(), Value),
        ("counted repetitions", format!("vars.a.matches('{REPETITIONS}')"), Refused),
        ("counted repetitions from data", "vars.a.matches(vars.pattern)".to_owned(), Failed),
        (
            "patterns from data in all",
            "vars.n.all(a, 'a'.matches('a{1,50}' + string(a)) || true)".to_owned(),
            Failed,
        ),
        (
            "a long text in all",
            "vars.n.all(a, vars.a.matches('(a|b)*c') || true)".to_owned(),
            Failed,
        ),
        ("a great Unicode class", "vars.a.matches('(\\\\pL{1,50}){1,50}')".to_owned(), Refused),
    ]
}

fn formats() -> Rows {
    failing([
        ("a huge precision", "'%.1000000000f'.format([1.0])"),
        ("a huge exponent", "'%.1000000000e'.format([1.0])"),
        ("a huge literal width", "'%1000000000d'.format([1])"),
        (
            "many of the widest",
            "vars.n.map(a, '%.100f'.format([a])).map(a, a + a + a).join('').size()",
        ),
        ("all of it as text", "vars.n.map(a, '%s'.format([vars.n])).size()"),
    ])
}

fn doublings() -> Rows {
    use End::Failed;
    let doubled = |seed: &str, step: &str| format!("{seed}{}", step.repeat(40));
    let size = |what: &'static str, text: String| (what, format!("{text}.size()"), Failed);
    vec![
        size("a string doubled in map", doubled("[vars.a]", ".map(x, x + x)") + "[0]"),
        size("a string doubled in join", doubled("[vars.a]", ".map(x, [x, x].join())") + "[0]"),
        size("a string doubled in format", doubled("[vars.a]", ".map(x, '%s%s'.format([x, x]))")),
        size("a string doubled in replace", doubled("'ab'", ".replace('a', 'aa')")),
        size("a list doubled", doubled("[vars.n]", ".map(x, x + x)")),
        size("a list in itself", doubled("[1]", ".map(x, [x, x])")),
        (
            "a list in itself, as text",
            { format!("toJson({}).size()", doubled("[[1]]", ".map(x, [x, x])")) },
            Failed,
        ),
    ]
}

fn conversions() -> Rows {
    failing([
        ("deep JSON", "fromJson(vars.deep)"),
        ("open JSON", "fromJson(vars.open)"),
        ("long JSON", "vars.n.map(a, fromJson(vars.wide))"),
        ("all of it as JSON", "vars.n.map(a, toJson(vars.n))"),
        ("a long text split", "vars.n.map(a, vars.a.split(''))"),
    ])
}
