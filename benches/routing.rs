//! The cost of finding a route in tables of ten and ten thousand routes, with prefixes, exact paths,
//! hosts and methods mixed. A table a thousand times as long must cost only a little more.

#![expect(clippy::print_stdout, reason = "a bench says what it measured")]
#![expect(clippy::unwrap_used, reason = "a bench that cannot run ends")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::Criterion;
use http::{HeaderMap, Method};
use mwl_proxy::proxy::settings::RouteMatch;
use mwl_proxy::proxy::{Router, Target};

/// `count` routes, and one at the end that matches everything.
fn table(count: usize) -> Router {
    let text = |text: String| -> Option<Arc<str>> { Some(text.into()) };
    let route = |number: usize| match number % 4 {
        0 => RouteMatch { path_prefix: text(format!("/prefix/{number}")), ..RouteMatch::default() },
        1 => RouteMatch { path: text(format!("/exact/{number}")), ..RouteMatch::default() },
        2 => RouteMatch { hosts: vec![format!("h{number}.test").into()], ..RouteMatch::default() },
        _ => RouteMatch {
            methods: vec![Method::PUT],
            path_prefix: text(format!("/put/{number}/")),
            ..RouteMatch::default()
        },
    };
    let mut routes: Vec<_> = (0..count).map(route).collect();
    routes.push(RouteMatch { path_prefix: text("/".to_owned()), ..RouteMatch::default() });
    Router::new(routes)
}

fn main() {
    let headers = HeaderMap::new();
    let target = |host, path, method| {
        let headers = &headers;
        Target { host, path, query: "", method, headers, certificate: None }
    };
    let asked = [
        ("a prefix", target("test", "/prefix/8/a/b", &Method::GET), 8),
        ("an exact path", target("test", "/exact/5", &Method::GET), 5),
        ("a host", target("H6.test", "/a", &Method::GET), 6),
        ("a method", target("test", "/put/7/a", &Method::PUT), 7),
    ];
    let tables = [(10, table(10)), (10_000, table(10_000))];
    let mut criterion = Criterion::default().configure_from_args();
    for (name, target, wanted) in asked {
        for (count, table) in &tables {
            assert_eq!(table.find(target), Some(wanted), "{name} of {count}");
            let counted = allocation_counter::measure(|| {
                black_box(table.find(black_box(target)));
            });
            println!("{name} of {count} routes: {} allocations", counted.count_total);
            // A host that is not in lower case is copied.
            assert!(counted.count_total <= 2, "{name} of {count} routes");
            criterion.bench_function(&format!("{name} of {count} routes"), |bencher| {
                bencher.iter(|| black_box(table.find(black_box(target))));
            });
        }
    }
    for (count, table) in &tables {
        let last = table.find(target("test", "/nowhere", &Method::GET)).unwrap();
        assert_eq!(last, *count, "what no other route takes");
    }
    criterion.final_summary();
}
