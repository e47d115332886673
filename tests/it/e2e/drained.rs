//! Endpoints that an operator drains.

use serde_json::json;

use crate::support::client::{ask, get, request};
use crate::support::origin::{Origin, answer};
use crate::support::program::{Proxy, configuration};

#[test]
fn an_endpoint_is_drained_and_restored_by_hand() {
    let origins = [(); 2].map(|()| Origin::always(answer(200, &[], "")));
    let [first, second] = origins.each_ref().map(|origin| origin.address);
    let route = "  - { name: r, upstream: billing }\n";
    let file = configuration(&[("billing", first)], route)
        .replace(&format!("\"http://{first}\""), &format!("'http://{first}', 'http://{second}'"));
    let proxy = Proxy::start(&file);
    let act = |what: &str| {
        let path = format!("/upstreams/billing/endpoints/{first}/{what}");
        ask(proxy.admin, request("POST", &path, &[], b""))
    };
    let drained = act("drain");
    assert_eq!(
        (drained.status, &drained.json()["endpoints"][0]["state"]),
        (200, &json!("drained"))
    );
    for _ in 0..6 {
        assert_eq!(get(proxy.address, "/a").status, 200);
    }
    assert_eq!((origins[0].count(), origins[1].count()), (0, 6));
    let what = format!("billing/{first}");
    let shown = get(proxy.admin, "/upstreams").json();
    assert_eq!(shown["switches"], json!([{ "kind": "drain", "what": what, "secondsLeft": null }]));
    let endpoint = &shown["upstreams"][0]["endpoints"][0];
    assert_eq!(
        (&endpoint["endpoint"], &endpoint["why"]),
        (&json!(first), &json!("an operator has drained it"))
    );
    assert_eq!(
        shown["upstreams"][0]["endpoints"][1]["attempts"],
        json!({ "success": 6, "failure": 0 })
    );
    // A reload of another file with the same upstream, and one without it, leave it so.
    for file in
        [file.replace("name: r,", "name: s,"), file.replace("billing", "other"), file.clone()]
    {
        proxy.rewrite(&file);
        assert_eq!(ask(proxy.admin, request("POST", "/reload", &[], b"")).status, 200);
    }
    assert_eq!(
        get(proxy.admin, "/upstreams").json()["upstreams"][0]["endpoints"][0]["state"],
        "drained"
    );
    assert_eq!(act("restore").status, 200);
    assert_eq!(get(proxy.admin, "/upstreams").json()["switches"], json!([]));
    let strange = request(
        "POST",
        &format!("/upstreams/billing/endpoints/{first}/drain"),
        &[("Origin", "http://a.test")],
        b"",
    );
    assert_eq!(ask(proxy.admin, strange).status, 403);
    for unknown in ["/upstreams/none/endpoints/a:1/drain", "/upstreams/billing/endpoints/a:1/drain"]
    {
        let answer = ask(proxy.admin, request("POST", unknown, &[], b""));
        assert_eq!(answer.status, 404);
        assert!(String::from_utf8_lossy(&answer.body).contains("`"), "it says what there is");
    }
}
