use std::sync::LazyLock;

use super::*;
use crate::proxy::settings::CertificateMatch;
use proptest::prelude::*;

fn route(host: &str, path: &str, prefix: &str) -> RouteMatch {
    let some = |text: &str| (!text.is_empty()).then(|| text.into());
    RouteMatch {
        hosts: some(host).into_iter().collect(),
        path: some(path),
        path_prefix: some(prefix),
        ..RouteMatch::default()
    }
}

fn find(routes: &[RouteMatch], host: &str, path: &str) -> Option<usize> {
    let target = Target { query: "b=1&b=2", ..target(host, path, &Method::GET) };
    Router::new(routes.to_vec()).find(target)
}

/// A target without fields.
fn target<'a>(host: &'a str, path: &'a str, method: &'a Method) -> Target<'a> {
    static FIELDS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
    Target { host, path, query: "", method, headers: &FIELDS, certificate: None }
}

#[test]
fn a_prefix_ends_at_a_segment() {
    let table = [route("", "", "/a"), route("", "", "/b/")];
    for path in ["/a", "/a/", "/a/b"] {
        assert_eq!(find(&table, "t", path), Some(0), "{path}");
    }
    for path in ["/b/", "/b/c"] {
        assert_eq!(find(&table, "t", path), Some(1), "{path}");
    }
    for path in ["/ab", "/b", "/", "/A"] {
        assert_eq!(find(&table, "t", path), None, "{path}");
    }
}

#[test]
fn the_first_in_the_file_wins_whatever_index_it_is_in() {
    let table = [
        route("b.test", "", "/"),
        route("", "", "/a"),
        route("", "/a/x", ""),
        route("*.test", "", ""),
        route("", "", "/"),
    ];
    assert_eq!(find(&table, "B.test", "/a/x"), Some(0));
    assert_eq!(find(&table, "other", "/a/x"), Some(1));
    assert_eq!(find(&table, "x.y.test", "/q"), Some(3));
    assert_eq!(find(&table, "test", "/q"), Some(4));
    assert_eq!(find(&table, "test", "*"), Some(4));
    let address = [route("[::1]", "", "/")];
    assert_eq!(find(&address, "[0:0::0:1]", "/"), Some(0));
}

#[test]
fn methods_headers_and_query_narrow() {
    let mut post = route("", "", "/");
    post.methods = vec![Method::POST];
    let mut header = route("", "", "/");
    header.headers = vec![(http::header::ACCEPT, None)];
    let mut other = route("", "", "/");
    other.query = vec![("b".into(), Some("3".into()))];
    let mut query = route("", "", "/");
    query.query = vec![("b".into(), Some("2".into()))];
    assert_eq!(find(&[post, header, other, query], "t", "/"), Some(3));
}

#[test]
fn a_route_that_is_passed_over_says_why() {
    let post = RouteMatch { methods: vec![Method::POST, Method::PUT], ..RouteMatch::default() };
    let header = RouteMatch {
        headers: vec![(http::header::ACCEPT, Some("a/b".into()))],
        ..RouteMatch::default()
    };
    let query = RouteMatch { query: vec![("c".into(), None)], ..RouteMatch::default() };
    let table = vec![
        post,
        route("", "/a", ""),
        route("", "", "/a"),
        route("a.test", "", ""),
        header,
        query,
        RouteMatch { certificate: Some(CertificateMatch::default()), ..route("", "", "/") },
        route("", "", "/"),
        route("", "", "/"),
    ];
    let target = Target { query: "d=1", ..target("b.test", "/b", &Method::GET) };
    let why: Vec<_> = Router::new(table).misses(target);
    let why: Vec<_> = why.iter().map(Option::as_deref).collect();
    assert_eq!(
        why,
        [
            Some("the method is GET, not POST or PUT"),
            Some("the path is /b, not /a"),
            Some("the path /b is not beneath /a"),
            Some("the host is b.test, not a.test"),
            Some("there is no header accept=a/b"),
            Some("there is no query c"),
            Some("the client has no certificate"),
            None,
        ]
    );
}

#[test]
fn what_a_path_allows() {
    let table = vec![
        RouteMatch { methods: vec![Method::POST, Method::GET], ..route("", "", "/a") },
        RouteMatch { methods: vec![Method::PUT, Method::GET], ..route("", "/a/b", "") },
        route("b.test", "", "/c"),
    ];
    let router = Router::new(table);
    let allowed = |host, path| router.allowed(Some(target(host, path, &Method::DELETE)));
    assert_eq!(allowed("t", "/a"), "POST, GET");
    assert_eq!(allowed("t", "/a/b"), "POST, GET, PUT");
    assert_eq!(allowed("b.test", "/c"), "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE");
    assert_eq!(allowed("t", "/c"), "");
    assert_eq!(router.allowed(None), "POST, GET, PUT, HEAD, PATCH, DELETE, OPTIONS, TRACE");
}

proptest! {
    /// The index finds the same route as a search through all routes.
    #[test]
    fn the_index_agrees_with_a_walk(
        routes in prop::collection::vec((0_usize..4, 0_usize..6, 0_usize..6), 0..12),
        host in 0_usize..4,
        path in 0_usize..6,
    ) {
        let hosts = ["", "a.test", "*.test", "*.a.test"];
        let paths = ["", "/", "/a", "/a/", "/a/b", "/ab"];
        let table: Vec<_> = routes.iter()
            .map(|(host, path, prefix)| {
                let exact = if *prefix == 0 { paths[*path] } else { "" };
                route(hosts[*host], exact, paths[*prefix])
            })
            .collect();
        let host = ["t", "a.test", "b.a.test", "A.TEST"][host];
        let target = target(host, paths[path], &Method::GET);
        let walked = table.iter().position(|route| matches(route, target));
        prop_assert_eq!(Router::new(table).find(target), walked);
    }
}
