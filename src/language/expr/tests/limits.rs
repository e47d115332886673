//! No expression aborts the process, blocks a worker or panics.

use super::*;

/// Expressions of `n` parts whose trees are about `n` deep, one for each way to make one.
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
        format!("{}1{}", "1||1&&1<1+1*[".repeat(n), "]".repeat(n)),
        format!("{}1{}", "1||1&&1<1+-1*f(".repeat(n), ")".repeat(n)),
        format!("{}1{}", "[1].map(x, 1||1&&1<1+1*".repeat(n), ")".repeat(n)),
        format!("{}1{}", "{1||1&&1<1+1*1: ".repeat(n), "}".repeat(n)),
        format!("{}1{}", "M{a: 1||1&&1<1+1*".repeat(n), "}".repeat(n)),
        vec!["vars.yes"; n].join(" && "),
        vec!["vars.one == 1"; n].join(" == "),
    ]
}

/// Runs `test` on a thread with a stack of `kib` KiB. An overflow would abort this process.
fn on_a_stack_of<T: Send + 'static>(kib: usize, test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(kib * 1024).spawn(test);
    thread.unwrap().join().unwrap()
}

#[test]
fn no_expression_overflows_a_stack() {
    // A thread has 2 MiB. A debug build needs half of that to compile, a release build far less.
    let programs = on_a_stack_of(1280, || {
        let bodies = [4, 40, 90, 95, 119, 130, 1000, 5000].into_iter().flat_map(deep);
        bodies.filter_map(|body| Program::compile(&body, EVERY).ok()).collect::<Vec<_>>()
    });
    // Some of a worker's stack may be in use when an evaluation begins.
    on_a_stack_of(768, || {
        let evaluated = programs.into_iter().map(|program| program.evaluate(&Fixture(json(DATA))));
        let evaluated = evaluated.flatten().count();
        assert!(evaluated > 40, "{evaluated}");
    });
}

#[test]
fn what_is_too_long_or_too_deep_is_refused_with_the_way_out() {
    let chain = vec!["vars.one"; 500].join(" + ");
    insta::assert_snapshot!(refused(&chain, EVERY), @"1307: the expression nests deeper than 120 levels (each term of a chain such as `a + b + c` is one): split it, with `assign`, into several, or use `join`");
    let long = format!("'{}'", "a".repeat(20_000));
    insta::assert_snapshot!(refused(&long, EVERY), @"0: the expression has 20002 bytes; the most is 16384: split it, with `assign`, into several");
    let brackets = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    insta::assert_snapshot!(refused(&brackets, EVERY), @"96: the expression nests too many brackets, calls or conditions (95 at most): split it, with `assign`, into several");
    let conditions = "true ? 1 : ".repeat(500) + "1";
    assert!(refused(&conditions, EVERY).contains("too many brackets"));
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
        &format!("[[vars.text + 'b']]{}.size()", ".map(x, [x, x, x])".repeat(40)),
        &format!("vars.text.substring(0, 10){}.size()", ".replace('a', 'aaaaaaaaaa')".repeat(40)),
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
        assert_eq!(compile(body).evaluate(&fixture), Ok(Value::Bool(true)), "{body}");
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
    assert_eq!(last, Err(EvalError::Fault("the result nests deeper than 128 levels".to_owned())));
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
            drop(program.evaluate(&Fixture(json(DATA))));
        }
        Program::body(&body);
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

/// A host's object that panics when it is read.
#[derive(Debug)]
struct Broken;

impl crate::language::value::Native for Broken {
    fn member(&self, _: &str) -> Option<Value> {
        panic!("a host's slip")
    }

    fn to_map(&self) -> crate::language::value::Map {
        crate::language::value::Map::new()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[test]
fn a_panic_below_is_a_fault() {
    let vars = Value::object([("host", Value::Native(Arc::new(Broken)))]);
    let fixture = Fixture(Value::object([("vars", vars)]));
    let result = compile("vars.host.x == 1").evaluate(&fixture);
    assert_eq!(result, Err(EvalError::Fault("the evaluator failed on this expression".to_owned())));
}
