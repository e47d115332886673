use super::*;

#[test]
fn no_route_says_why_for_each() {
    let routes = "
- { name: pay, match: { methods: [POST], pathPrefix: /pay }, upstream: app }
- { name: beta, match: { headers: { x-beta: yes-please } }, upstream: app }
- { name: shop, match: { hosts: [shop.test] }, upstream: app }
";
    insta::assert_snapshot!(of(routes, &["--request", "GET /pay"]), @r##"
    GET /pay

    not pay: the method is GET, not POST
    not beta: there is no header x-beta=yes-please
    not shop: the host is 127.0.0.1, not shop.test
    No route takes the request.

    The client gets 404:
      content-type: application/problem+json
      proxy-status: mwl-proxy; error=destination_not_found
      content-length: 149

      {"code":"Proxy.NoRoute","detail":"no route takes this request","executionId":"019b76da-a800-73df-9876-9bcf70e03541","status":404,"title":"Not Found"}
    "##);
    let said = of(routes, &["--request", "GET http://shop.test/pay?a=b"]);
    insta::assert_snapshot!(said, @r##"
    GET /pay?a=b

    not pay: the method is GET, not POST
    not beta: there is no header x-beta=yes-please
    route shop: host shop.test

        0.000 s shop: attempt 1
        0.000 s   GET /pay?a=b to app (app:80)
                  answers 200 (nothing else is scripted for it)
        0.000 s   200, a success

    Result: success, {"headers":{"content-length":"0"},"status":200}
    The client gets 200:
      content-length: 0
    "##);
    let said = of(routes, &["--request", "GET http://shop.test?a=b"]);
    assert!(said.contains("GET /?a=b to app (app:80)"), "{said}");
    let said = of(routes, &["--request", "GET /", "--header", "x-beta: yes-please"]);
    assert!(said.contains("\nroute beta: "), "{said}");
}

#[test]
fn a_request_that_is_none_is_refused_before_the_routes() {
    insta::assert_snapshot!(recipe(&["--request", "GET /a/../b"]), @r##"
    GET /a/../b

    The request is refused before any route is asked.

    The client gets 400:
      content-type: application/problem+json
      proxy-status: mwl-proxy; error=http_request_error
      content-length: 192
      connection: close

      {"code":"Proxy.BadRequest","detail":"the path contains a dot segment; send the path that it stands for","executionId":"019b76da-a800-73df-9876-9bcf70e03541","status":400,"title":"Bad Request"}
    "##);
}
