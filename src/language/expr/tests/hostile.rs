//! Expressions written to hold a worker or to fill its memory: each is refused, or fails, soon.

#![expect(clippy::print_stdout, reason = "says how long each took")]

use std::time::Duration;

use tokio::time::Instant;

use super::*;

/// What becomes of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It does not compile.
    Refused,
    /// It compiles and its evaluation fails.
    Failed,
    /// It has a value: hostile to others, not here.
    Value,
}

/// What each may take is 100 ms; a shared machine, and a build without optimisation, get this much more.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long this thread has been on a processor, where the system says so: a shared machine's other work
/// does not count.
fn busy() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = stat.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

fn ends(body: &str, vars: &Value) -> End {
    match Program::compile(body, EVERY) {
        Err(errors) => {
            assert!(errors.iter().all(|error| !error.message.is_empty()));
            End::Refused
        }
        Ok(program) => {
            let fixture = Fixture(Value::object([("vars", vars.clone())]));
            match program.evaluate(&fixture) {
                Ok(_) => End::Value,
                Err(_) => End::Failed,
            }
        }
    }
}

/// The expressions, by what they are, with how each must end.
fn hostile() -> Vec<(&'static str, String, End)> {
    use End::{Failed, Refused, Value};
    let chain = |term: &str, operator: &str| vec![term; 5000].join(operator);
    let around = |open: &str, inner: &str, close: &str, n: usize| {
        format!("{}{inner}{}", open.repeat(n), close.repeat(n))
    };
    let doubled = |seed: &str, step: &str| format!("{seed}{}", step.repeat(40));
    vec![
        ("5,000 sums", chain("vars.one", " + "), Refused),
        ("5,000 short sums", chain("1", "+"), Refused),
        ("5,000 conjunctions", chain("vars.yes", " && "), Refused),
        ("5,000 strings", chain("'a'", " + "), Refused),
        ("5,000 comparisons", chain("1", " < "), Refused),
        ("5,000 conditions", chain("vars.yes ? 1", " : "), Refused),
        ("5,000 members", format!("vars{}", ".a".repeat(5000)), Refused),
        ("5,000 elements", format!("size([{}])", chain("1", ",")), Value),
        ("10,000 round brackets", around("(", "1", ")", 10_000), Refused),
        ("8,000 short brackets", around("(", "1", ")", 8000), Refused),
        ("10,000 square brackets", around("[", "1", "]", 10_000), Refused),
        ("10,000 open brackets", "(".repeat(10_000), Refused),
        ("10,000 negations", format!("{}vars.yes", "!".repeat(10_000)), Value),
        ("10,000 minus signs", format!("{}1", "-".repeat(10_000)), Value),
        ("nested all", "vars.n.all(a, vars.n.all(b, a + b >= 0.0))".to_owned(), Failed),
        (
            "thrice nested exists",
            "vars.n.exists(a, vars.n.exists(b, vars.n.exists(c, a + b + c < 0.0)))".to_owned(),
            Failed,
        ),
        ("a comparison in all", "vars.n.all(a, vars.n == vars.n)".to_owned(), Failed),
        ("sorting in map", "vars.n.map(a, vars.n.sort())".to_owned(), Failed),
        ("an exploding pattern", "vars.a.matches('^(a+)+$')".to_owned(), Value),
        ("an exploding alternation", "vars.a.matches('^(a|a|aa)*b$')".to_owned(), Value),
        (
            "counted repetitions",
            "vars.a.matches('((((a{1,100}){1,100}){1,100}){1,100})')".to_owned(),
            Refused,
        ),
        ("counted repetitions from data", "vars.a.matches(vars.pattern)".to_owned(), Failed),
        ("a great Unicode class", "vars.a.matches('(\\\\pL{1,50}){1,50}')".to_owned(), Refused),
        ("a huge width", "'%.1000000000f'.format([1.0])".to_owned(), Failed),
        ("a huge literal width", "'%1000000000d'.format([1])".to_owned(), Failed),
        (
            "many of the widest",
            "vars.n.map(a, '%.100f'.format([a])).map(a, a + a + a).join('').size()".to_owned(),
            Failed,
        ),
        (
            "a string doubled in map",
            format!("{}[0].size()", doubled("[vars.a]", ".map(x, x + x)")),
            Failed,
        ),
        (
            "a string doubled in join",
            format!("{}[0].size()", doubled("[vars.a]", ".map(x, [x, x].join())")),
            Failed,
        ),
        (
            "a string doubled in replace",
            format!("{}.size()", doubled("'ab'", ".replace('a', 'aa')")),
            Failed,
        ),
        ("a list doubled", format!("{}.size()", doubled("[vars.n]", ".map(x, x + x)")), Failed),
        ("a list in itself", format!("{}.size()", doubled("[1]", ".map(x, [x, x])")), Failed),
        (
            "a list in itself, as text",
            format!("toJson({}).size()", doubled("[[1]]", ".map(x, [x, x])")),
            Failed,
        ),
        ("a huge range", "lists.range(1000000000).size()".to_owned(), Failed),
        ("a range beyond counting", "lists.range(9223372036854775807).size()".to_owned(), Failed),
        (
            "ranges of ranges",
            "lists.range(10000).map(x, lists.range(10000)).flatten().size()".to_owned(),
            Failed,
        ),
        ("deep JSON", "fromJson(vars.deep)".to_owned(), Failed),
        ("open JSON", "fromJson(vars.open)".to_owned(), Failed),
        ("long JSON", "vars.n.map(a, fromJson(vars.wide))".to_owned(), Failed),
    ]
}

#[test]
fn each_ends_soon() {
    let numbers = Value::array((0..10_000_u32).map(Value::from).collect());
    let repetitions = "((((a{1,100}){1,100}){1,100}){1,100})";
    let vars = Value::object([
        ("n", numbers.clone()),
        ("one", Value::from(1)),
        ("yes", Value::Bool(true)),
        ("a", Value::string("a".repeat(10_000))),
        ("pattern", Value::from(repetitions)),
        ("deep", Value::string(format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)))),
        ("open", Value::string("{\"a\":".repeat(10_000))),
        ("wide", Value::string(numbers.to_string())),
    ]);
    let mut wrong = Vec::new();
    for (what, body, wanted) in hostile() {
        let (began, before) = (Instant::now(), busy());
        let end = ends(&body, &vars);
        let wall = began.elapsed();
        let took = busy().zip(before).map_or(wall, |(now, then)| now.saturating_sub(then));
        println!("{took:>12.1?} {end:?} {what}");
        if end != wanted || took > PATIENCE {
            wrong.push(format!("{what}: {end:?} after {took:?}, not {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
