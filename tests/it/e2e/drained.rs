//! Endpoints that an operator drains.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::client::{Answer, ask, get, request};
use crate::support::origin::{Origin, answer};
use crate::support::program::{Proxy, configuration};

/// A file with one upstream of these two endpoints.
fn file(first: SocketAddr, second: SocketAddr) -> String {
    let one = configuration(&[("billing", first)], "  - { name: r, upstream: billing }\n");
    one.replace(&format!("\"http://{first}\""), &format!("'http://{first}', 'http://{second}'"))
}

fn act(proxy: &Proxy, endpoint: &str, what: &str, fields: &[(&str, &str)]) -> Answer {
    let path = format!("/upstreams/billing/endpoints/{endpoint}/{what}");
    ask(proxy.admin, request("POST", &path, fields, b""))
}

/// The first endpoint, as it is shown.
fn first_of(proxy: &Proxy) -> Value {
    get(proxy.admin, "/upstreams").json()["upstreams"][0]["endpoints"][0].clone()
}

#[test]
fn an_endpoint_is_drained_and_restored_by_hand() {
    let origins = [(); 2].map(|()| Origin::always(answer(200, &[], "")));
    let [first, second] = origins.each_ref().map(|origin| origin.address);
    let proxy = Proxy::start(&file(first, second));
    let drained = act(&proxy, &first.to_string(), "drain", &[]);
    assert_eq!(drained.json()["endpoints"][0]["state"], "drained");
    for _ in 0..6 {
        assert_eq!(get(proxy.address, "/a").status, 200);
    }
    assert_eq!((origins[0].count(), origins[1].count()), (0, 6));
    let what = format!("billing/{first}");
    let shown = get(proxy.admin, "/upstreams").json();
    assert_eq!(shown["switches"], json!([{ "kind": "drain", "what": what, "secondsLeft": null }]));
    let attempts = &shown["upstreams"][0]["endpoints"][1]["attempts"];
    assert_eq!(*attempts, json!({ "success": 6, "failure": 0 }));
    assert_eq!(first_of(&proxy)["why"], "an operator has drained it");
    assert_eq!(act(&proxy, &first.to_string(), "restore", &[]).status, 200);
    assert_eq!(get(proxy.admin, "/upstreams").json()["switches"], json!([]));
    assert_eq!(first_of(&proxy)["state"], "up");
}

/// Of another file with the same upstream, of one without it, and of the first one again.
#[test]
fn a_drain_outlives_reloads() {
    let origins = [(); 2].map(|()| Origin::always(answer(200, &[], "")));
    let [first, second] = origins.each_ref().map(|origin| origin.address);
    let text = file(first, second);
    let proxy = Proxy::start(&text);
    assert_eq!(act(&proxy, &first.to_string(), "drain", &[]).status, 200);
    for file in [text.replace("name: r,", "name: s,"), text.replace("billing", "other"), text] {
        proxy.rewrite(&file);
        assert_eq!(ask(proxy.admin, request("POST", "/reload", &[], b"")).status, 200);
    }
    assert_eq!(first_of(&proxy)["state"], "drained");
}

#[test]
fn who_asks_for_another_endpoint_or_from_another_page_is_told_so() {
    let origin = Origin::always(answer(200, &[], ""));
    let proxy = Proxy::start(&file(origin.address, SocketAddr::from(([127, 0, 0, 1], 1))));
    let unknown = act(&proxy, "a:1", "drain", &[]);
    let said = String::from_utf8(unknown.body).unwrap();
    let all = format!("`billing` has no endpoint `a:1`; it has {}, 127.0.0.1:1\n", origin.address);
    assert_eq!((unknown.status, said), (404, all));
    let none = request("POST", "/upstreams/none/endpoints/a:1/drain", &[], b"");
    assert_eq!(ask(proxy.admin, none).status, 404);
    let strange = [("Origin", "http://a.test")];
    let endpoint = origin.address.to_string();
    assert_eq!(act(&proxy, &endpoint, "drain", &strange).status, 403);
    assert_eq!(first_of(&proxy)["state"], "up");
}
