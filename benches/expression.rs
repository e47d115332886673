//! The cost of expressions: to compile, to evaluate and, for those that policies typically use, their
//! allocations, and a comparison with the same question written in Rust.
//!
//! The expressions come from the table of the unit tests. The typical ones read a live request: the
//! proxy's own request object and failure, through the engine's own bindings. Their allocations are
//! counted and asserted, because a needless conversion shows there.

#![expect(clippy::print_stdout, reason = "a bench says what it measured")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a bench that cannot run ends")]

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::Criterion;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use mwl_proxy::app::build;
use mwl_proxy::config::{self, Origin};
use mwl_proxy::language::definition::{Strictness, compile};
use mwl_proxy::language::engine::testing::past;
use mwl_proxy::language::expr::{Bindings, Program, Root, Roots};
use mwl_proxy::language::outcome::Outcome;
use mwl_proxy::language::provider::Catalog;
use mwl_proxy::language::value::{Map, Value};
use mwl_proxy::proxy::UpstreamRegistry;
use mwl_proxy::proxy::testing::{failed, request};
use mwl_proxy::source::{Format, Sources};
use mwl_proxy::telemetry::metrics::Metrics;
use tokio::time::Instant;

#[path = "../src/language/expr/tests/table.rs"]
mod table;

const CONFIG: &str = r"
environment: production
listeners: [{ address: 127.0.0.1:0 }]
upstreams: { billing: { endpoints: [http://127.0.0.1:3000] } }
routes: [{ name: charge-payment, match: { pathPrefix: / }, upstream: billing }]
";

/// One Retry around nothing: the typical expressions are evaluated in a phase of this entry.
const DEFINITION: &str = r#"{
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "done",
    "middleware": [{
        "provider": "mwl:provider.middleware/mwl/retry/v1",
        "onEntry": { "with": { "policies": [{ "match": { "codes": ["*"] }, "attempts": 2 }] } }
    }],
    "steps": { "done": { "action": "Return" } }
}"#;

/// The allocations of one evaluation of each typical expression, in the order of the table.
const ALLOCATIONS: [u64; 14] = [3, 6, 3, 10, 6, 2, 9, 8, 8, 2, 3, 10, 10, 2];

/// The longest that a typical expression may take.
const LIMIT: Duration = Duration::from_micros(1);

/// The same data as plain Rust would keep it.
struct Plain {
    method: Method,
    headers: HeaderMap,
    code: String,
    status: u16,
    retryable: bool,
    retry_after: Option<Duration>,
    n: f64,
    attempt: u32,
    environment: String,
}

/// The questions of the table, in the same order, about that data.
const BY_HAND: [fn(&Plain) -> bool; 14] = [
    |plain| plain.retry_after.is_some(),
    |plain| black_box(plain.retry_after.map(|wait| format!("PT{}S", wait.as_secs()))).is_some(),
    |plain| plain.code == "Provider.Call.Http.Unavailable",
    |plain| {
        ["Provider.Call.Http.Throttled", "Provider.Call.Http.Unavailable"].contains(&&*plain.code)
    },
    |plain| plain.code.starts_with("Provider.Call.Http."),
    |plain| plain.status == 503,
    |plain| plain.retryable && plain.n < 3.0,
    |plain| plain.n < 3.0,
    |plain| plain.attempt < 3,
    |plain| plain.headers.contains_key("x-tier"),
    |plain| plain.headers.get("x-tier").is_some_and(|tier| tier == "gold"),
    |plain| {
        let tier = plain.headers.get("x-tier");
        tier.is_some_and(|tier| ["silver", "gold", "platinum"].iter().any(|known| tier == known))
    },
    |plain| plain.method == Method::GET || plain.method == Method::HEAD,
    |plain| plain.environment == "production",
];

fn main() {
    live(&mut |bindings| {
        count(bindings);
        compare(bindings);
    });
    let mut criterion = Criterion::default().configure_from_args();
    compiled(&mut criterion);
    evaluated(&mut criterion);
    live(&mut |bindings| typical(&mut criterion, bindings));
    criterion.final_summary();
}

fn program(body: &str) -> Program {
    let compiled = Program::compile(body, Roots::of(&Root::ALL));
    compiled.unwrap_or_else(|errors| panic!("{body}: {errors:?}"))
}

fn json(text: &str) -> Value {
    serde_json::from_str::<serde_json::Value>(text).unwrap().into()
}

/// Calls `see` with the bindings of an `onFailure` in a live request whose first two attempts failed.
fn live(see: &mut dyn FnMut(&dyn Bindings)) {
    let metrics = Metrics::new();
    let loaded = config::parse(Path::new("bench.yaml"), CONFIG, Origin::system()).unwrap();
    let built =
        build(loaded, &mwl_proxy::proxy::catalog(None), &metrics, &UpstreamRegistry::default())
            .unwrap();
    let mut head = Request::post("/billing/charge?account=17").header("host", "billing.local");
    for (name, value) in FIELDS {
        head = head.header(name, value);
    }
    let bound = request(built.runtime, head.body(()).unwrap()).unwrap();
    let node = Sources::default().parse("bench.json", DEFINITION, Format::Json).unwrap();
    let (plan, _) = compile(&node, &Catalog::spec_defined(None), Strictness::Load).unwrap();
    let vars = Map::from_iter([("n".into(), Value::from(2))]);
    past(&plan, bound, vars, &failure(), |bindings| see(bindings)).unwrap();
}

/// The request's fields: as many as a browser sends.
const FIELDS: [(&str, &str); 12] = [
    ("accept", "application/json"),
    ("accept-encoding", "gzip, br"),
    ("accept-language", "en"),
    (
        "authorization",
        "Bearer eyJhbGciOiJIUzI1NiJ9.e30.ZRrHA1JJJW8opsbCGfG_HACGpVUMN_a9IV7pAx_Zmeo",
    ),
    ("content-length", "2"),
    ("content-type", "application/json"),
    ("cookie", "session=8f14e45fceea167a5a36dedd4bea2543; theme=dark"),
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("user-agent", "checkout/4.2"),
    ("x-request-id", "01998e3e-4f2a-7c51-8d33-2f1f6b7f0c11"),
    ("x-forwarded-for", "192.0.2.7"),
    ("x-tier", "gold"),
];

fn failure() -> Outcome {
    let fields = HeaderMap::from_iter([
        (http::header::RETRY_AFTER, HeaderValue::from_static("2")),
        (http::header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
    ]);
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let wait = Some(Duration::from_secs(2));
    failed("Provider.Call.Http.Unavailable", status, fields, wait)
}

/// Counts the allocations of the typical expressions. Only more than expected fails: an optimised build
/// saves some.
fn count(bindings: &dyn Bindings) {
    let mut wrong = Vec::new();
    for ((body, expected), wanted) in table::TYPICAL.iter().zip(ALLOCATIONS) {
        let program = program(body);
        let value = program.evaluate(bindings);
        assert_eq!(value.unwrap().to_string(), *expected, "{body}");
        let counted = allocation_counter::measure(|| {
            black_box(program.evaluate(bindings)).unwrap();
        });
        if counted.count_total > wanted {
            wrong.push(format!("{body}: {} allocations, more than {wanted}", counted.count_total));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The nanoseconds of one turn of `work`, in the best of several rounds: whatever a slower round adds
/// comes from other work on the machine.
fn nanos(mut work: impl FnMut()) -> f64 {
    const TURNS: u32 = 1000;
    let round = |_| {
        let began = Instant::now();
        (0..TURNS).for_each(|_| work());
        began.elapsed().as_secs_f64() * 1e9 / f64::from(TURNS)
    };
    (0..200).map(round).fold(f64::INFINITY, f64::min)
}

/// Compares the typical expressions with the same questions in Rust.
fn compare(bindings: &dyn Bindings) {
    let mut headers = HeaderMap::new();
    for (name, value) in FIELDS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let plain = Plain {
        method: Method::POST,
        headers,
        code: "Provider.Call.Http.Unavailable".to_owned(),
        status: 503,
        retryable: true,
        retry_after: Some(Duration::from_secs(2)),
        n: 2.0,
        attempt: 2,
        environment: "production".to_owned(),
    };
    println!("{:>9} {:>9} {:>7} {:>6}  expression", "compile", "evaluate", "by hand", "allocs");
    let mut slow = Vec::new();
    for (((body, _), by_hand), allocations) in table::TYPICAL.iter().zip(BY_HAND).zip(ALLOCATIONS) {
        let compiling = nanos_of_few(|| drop(black_box(program(black_box(body)))));
        let program = program(body);
        let evaluating = nanos(|| drop(black_box(program.evaluate(bindings))));
        let hand = nanos(|| {
            black_box(by_hand(black_box(&plain)));
        });
        println!(
            "{:>6.1} µs {evaluating:>6.0} ns {hand:>4.1} ns {allocations:>6}  {body}",
            compiling / 1e3
        );
        if Duration::from_secs_f64(evaluating / 1e9) > LIMIT {
            slow.push(*body);
        }
    }
    assert!(slow.is_empty() || cfg!(debug_assertions), "over {LIMIT:?}: {slow:#?}");
}

/// Like [`nanos`], for slow work.
fn nanos_of_few(mut work: impl FnMut()) -> f64 {
    let turn = |_| {
        let began = Instant::now();
        work();
        began.elapsed().as_secs_f64() * 1e9
    };
    (0..200).map(turn).fold(f64::INFINITY, f64::min)
}

fn compiled(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("compile");
    for (name, rows) in table::ALL {
        group.bench_function(*name, |bencher| {
            bencher.iter(|| {
                for (body, _) in *rows {
                    drop(black_box(program(body)));
                }
            });
        });
    }
    group.finish();
}

/// Bindings from JSON.
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

fn evaluated(criterion: &mut Criterion) {
    let fixture = Fixture(json(table::DATA));
    let mut group = criterion.benchmark_group("evaluate");
    for (name, rows) in table::ALL {
        let programs: Vec<(Program, &str)> =
            rows.iter().map(|(body, expected)| (program(body), *expected)).collect();
        for (program, expected) in &programs {
            assert_eq!(program.evaluate(&fixture).unwrap().to_string(), *expected);
        }
        group.bench_function(*name, |bencher| {
            bencher.iter(|| {
                for (program, _) in &programs {
                    drop(black_box(program.evaluate(&fixture)));
                }
            });
        });
    }
    group.finish();
}

fn typical(criterion: &mut Criterion, bindings: &dyn Bindings) {
    let mut group = criterion.benchmark_group("typical");
    for (body, _) in table::TYPICAL {
        let program = program(body);
        group.bench_function(*body, |bencher| {
            bencher.iter(|| black_box(program.evaluate(bindings)));
        });
    }
    group.finish();
}
