//! What an operator reads about each request: the access log and the latest executions.

use serde_json::{Value, json};

use super::admin::Tap;
use crate::support::client::{Client, ask, get, post, request};
use crate::support::origin::{Origin, State, Turn, answer};
use crate::support::program::{Proxy, configuration};
use crate::support::stack::{audit, retry};

/// Two more attempts after a 503, a tenth of a second apart.
pub(super) const RETRIED: &str = concat!(
    "  - name: pay\n    match: { pathPrefix: /pay }\n    upstream: billing\n    middleware:\n",
    retry!(
        "match: { codes: [Provider.Call.Http.Unavailable] }, attempts: 2, backoff: { initial: PT0.1S }"
    ),
);

/// The same inside of a cleanup.
const AUDITED: &str = concat!(
    "  - name: pay\n    upstream: billing\n    middleware:\n",
    audit!("audit", "/audit", "middleware.result.type"),
);

/// The records that the program has written, by the time at which their requests came. Lines of different workers are gathered
/// in batches, so that they may stand in another order.
fn records(proxy: &Proxy) -> Vec<Value> {
    let lines = proxy.program().lines();
    let records = lines.iter().filter(|line| line.contains("\"bytesOut\""));
    let mut records: Vec<Value> = records.map(|line| serde_json::from_str(line).unwrap()).collect();
    records.sort_by_key(|record| record["time"].as_str().unwrap().to_owned());
    records
}

/// Waits for the record of this execution.
fn record(proxy: &Proxy, id: &str) -> Value {
    proxy.program().line("the record", |line| {
        let record: Value = serde_json::from_str(line).ok()?;
        (record["execution"] == id && record.get("bytesOut").is_some()).then_some(record)
    })
}

pub(super) fn with_id(method: &str, path: &str, id: &str, body: &str) -> Vec<u8> {
    request(method, path, &[("X-Request-Id", id)], body.as_bytes())
}

#[test]
fn the_access_log_has_a_record_of_each_request_and_its_attempts() {
    let origin = Origin::script([answer(503, &[], ""), answer(200, &[], "hello")]);
    let file = configuration(&[("billing", origin.address)], RETRIED);
    let proxy = Proxy::start(&format!("log: {{ access: {{ }} }}\n{file}"));
    let fields = [("X-Request-Id", "r-1"), ("Idempotency-Key", "k")];
    assert_eq!(
        ask(proxy.address, request("POST", "/pay?card=4242", &fields, b"12345")).status,
        200
    );
    let mut found = record(&proxy, "r-1");
    assert!(found["duration"].as_f64().unwrap() >= 0.1, "{found}");
    assert!(found["time"].as_str().unwrap().ends_with('Z'), "{found}");
    for attempt in found["attempts"].as_array_mut().unwrap() {
        assert!(attempt["took"].as_f64().unwrap() > 0.0);
        for measured in ["took", "began"] {
            attempt.as_object_mut().unwrap().remove(measured);
        }
    }
    for measured in ["duration", "time", "request"] {
        found.as_object_mut().unwrap().remove(measured);
    }
    let endpoint = origin.address.to_string();
    let attempt = |number: u32, status: u16| {
        json!({
            "step": "pay", "attempt": number, "upstream": "billing", "endpoint": endpoint,
            "status": status, "code": null, "waited": null, "source": null,
        })
    };
    let (mut first, mut second) = (attempt(1, 503), attempt(2, 200));
    first["code"] = json!("Provider.Call.Http.Unavailable");
    second["waited"] = json!(0.1);
    second["source"] = json!("schedule");
    assert_eq!(
        found,
        json!({
            "execution": "r-1", "route": "pay", "client": "127.0.0.1", "method": "POST",
            "path": "/pay", "status": 200, "result": "success", "code": null,
            "bytesIn": 5, "bytesOut": 5, "attempts": [first, second],
        })
    );
}

#[test]
fn failures_and_refusals_are_written_where_only_they_are_wanted() {
    let origin = Origin::by(|head, _| {
        let status = if head.line.contains("/pay/bad") { 500 } else { 200 };
        answer(status, &[], "")
    });
    let file = configuration(&[("billing", origin.address)], RETRIED);
    let mut proxy = Proxy::start(&format!("log: {{ access: {{ when: failures }} }}\n{file}"));
    assert_eq!(ask(proxy.address, with_id("GET", "/pay/good", "good", "")).status, 200);
    assert_eq!(ask(proxy.address, with_id("GET", "/pay/bad", "bad", "")).status, 500);
    assert_eq!(ask(proxy.address, with_id("GET", "/elsewhere", "lost", "")).status, 404);
    proxy.stop();
    let shown: Vec<_> = records(&proxy)
        .iter()
        .map(|record| (record["path"].clone(), record["route"].clone(), record["code"].clone()))
        .collect();
    assert_eq!(
        shown,
        [
            (json!("/pay/bad"), json!("pay"), json!("Provider.Call.Http.NonSuccessStatus")),
            (json!("/elsewhere"), Value::Null, json!("Proxy.NoRoute")),
        ]
    );
}

#[test]
fn requests_to_which_a_client_gave_one_id_are_told_apart() {
    let origin = Origin::always(answer(500, &[], ""));
    let proxy = Proxy::start(&configuration(&[("billing", origin.address)], RETRIED));
    for path in ["/pay/one", "/pay/two"] {
        assert_eq!(ask(proxy.address, with_id("GET", path, "same", "")).status, 500);
    }
    let both = get(proxy.admin, "/executions?execution=same").json();
    let [two, one] = both["executions"].as_array().unwrap().as_slice() else { panic!("{both}") };
    assert_ne!(one["request"], two["request"]);
    let page = format!("/executions?request={}", one["request"].as_str().unwrap());
    let found = get(proxy.admin, &page).json();
    assert_eq!(found["executions"], json!([one]));
}

#[test]
fn a_reload_turns_the_access_log_on_and_off() {
    let origin = Origin::always(answer(200, &[], ""));
    let off = configuration(&[("billing", origin.address)], RETRIED);
    let on = format!("log: {{ access: {{ }} }}\n{off}");
    let mut proxy = Proxy::start(&off);
    let tell = |id: &str| {
        assert_eq!(ask(proxy.address, with_id("GET", "/pay", id, "")).status, 200);
    };
    tell("before");
    for (file, id) in [(&on, "between"), (&off, "after")] {
        proxy.rewrite(file);
        assert_eq!(post(proxy.admin, "/reload", "").status, 200);
        tell(id);
    }
    proxy.stop();
    let records = records(&proxy);
    let ids: Vec<&Value> = records.iter().map(|record| &record["execution"]).collect();
    assert_eq!(ids, ["between"]);
}

#[test]
fn the_last_executions_show_their_attempts_and_failures() {
    let origin = Origin::by(|head, _| {
        let status = if head.line.contains("/pay/bad") { 503 } else { 200 };
        answer(status, &[], "")
    });
    let proxy = Proxy::before(&[("billing", origin.address)], RETRIED);
    assert_eq!(ask(proxy.address, with_id("GET", "/pay/bad", "bad", "")).status, 503);
    for number in 0..200 {
        let id = format!("good-{number}");
        assert_eq!(ask(proxy.address, with_id("GET", "/pay/good", &id, "")).status, 200);
    }
    let failures = get(proxy.admin, "/executions?outcome=failure").json();
    let [failed] = failures["executions"].as_array().unwrap().as_slice() else {
        panic!("{failures}");
    };
    assert_eq!((&failed["execution"], &failed["status"]), (&json!("bad"), &json!(503)));
    let codes = |list: &Value| -> Vec<String> {
        let items = list.as_array().unwrap().iter();
        items.map(|item| item["code"].as_str().unwrap().to_owned()).collect()
    };
    let unavailable = "Provider.Call.Http.Unavailable";
    assert_eq!(codes(&failed["attempts"]), [unavailable; 2]);
    assert_eq!(
        codes(&failed["failures"])[..2],
        ["Provider.Middleware.Retry.Exhausted", unavailable]
    );
    let message = failed["failures"][1]["message"].as_str().unwrap();
    assert!(message.contains("upstream billing answered 503"), "{message}");
    // Plain successes are numerous: only some are kept, and never in place of a failure.
    let successes = get(proxy.admin, "/executions?outcome=success&route=pay").json();
    let kept = successes["executions"].as_array().unwrap().len();
    assert!((32..=128).contains(&kept), "{kept}");
    let none = get(proxy.admin, "/executions?route=other").json();
    assert_eq!(none, json!({ "kept": 128, "switches": [], "executions": [] }));
}

/// Neither a success nor a client that left, in the record and in both its readers, and on `/tap`.
#[test]
fn an_answer_that_the_upstream_broke_off_is_a_failure_of_its_own() {
    let short = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100\r\n\r\nhello";
    let origin = Origin::always(Turn::Say(short.as_bytes().to_vec()));
    let file = configuration(&[("billing", origin.address)], RETRIED);
    let proxy = Proxy::start(&format!("log: {{ access: {{ when: failures }} }}\n{file}"));
    let mut tap = Tap::open(proxy.admin, "?outcome=failure");
    let mut client = Client::connect(proxy.address);
    client.send(with_id("GET", "/pay", "short", ""));
    let head = client.head();
    assert!(client.body(head).is_none());
    let found = record(&proxy, "short");
    let told = ["status", "result", "code", "bytesOut"].map(|name| &found[name]);
    assert_eq!(json!(told), json!([598, "error", "Proxy.ResponseTruncated", 5]));
    let attempt = ["status", "code"].map(|name| &found["attempts"][0][name]);
    assert_eq!(json!(attempt), json!([200, null]), "the head was accepted");
    let failures = get(proxy.admin, "/executions?outcome=failure").json();
    let failure = &failures["executions"][0]["failures"][0];
    assert_eq!(failure["code"], "Proxy.ResponseTruncated");
    let message = failure["message"].as_str().unwrap();
    let wanted = "upstream billing broke its response off after 5 bytes: ";
    assert!(message.starts_with(wanted), "{message}");
    tap.until("response.truncated");
    tap.until("\n\n");
    let told = tap.data().into_iter().find(|event| event["event"] == "response.truncated");
    let told =
        ["execution", "route", "upstream", "code"].map(|name| told.as_ref().unwrap()[name].clone());
    assert_eq!(json!(told), json!(["short", "pay", "billing", "Proxy.ResponseTruncated"]));
}

#[test]
fn an_execution_that_its_client_left_shows_what_its_cleanup_did() {
    let (origin, audit) = (Origin::always(Turn::Hang), Origin::always(answer(200, &[], "")));
    let upstreams = [("billing", origin.address), ("audit", audit.address)];
    let mut proxy = Proxy::start(&format!(
        "log: {{ access: {{ when: failures }} }}\n{}",
        configuration(&upstreams, AUDITED)
    ));
    let mut client = Client::connect(proxy.address);
    client.send(with_id("GET", "/", "left", ""));
    origin.until_state(0, State::Whole);
    drop(client);
    let found = record(&proxy, "left");
    assert_eq!((&found["status"], &found["result"]), (&json!(499), &json!("cancellation")));
    let attempts = found["attempts"].as_array().unwrap();
    let shown: Vec<_> = attempts
        .iter()
        .map(|attempt| (&attempt["upstream"], &attempt["status"], &attempt["code"]))
        .collect();
    assert_eq!(
        shown,
        [
            (&json!("billing"), &Value::Null, &json!("System.Cancelled")),
            (&json!("audit"), &json!(200), &Value::Null),
        ]
    );
    assert_eq!(
        (&attempts[0]["interrupted"], &attempts[1]["cleanup"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(attempts[0]["endpoint"], origin.address.to_string());
    proxy.stop();
}

#[test]
fn the_line_of_a_reload_says_what_is_different() {
    let origin = Origin::always(answer(200, &[], ""));
    let before = configuration(&[("billing", origin.address)], RETRIED);
    let proxy = Proxy::start(&before);
    let more = "  - { name: other, upstream: billing }\n";
    let after = before.replace("attempts: 2", "attempts: 3") + more;
    proxy.rewrite(&after.replace("\"] }", "\"], maxIdle: 3 }"));
    assert_eq!(post(proxy.admin, "/reload", "").status, 200);
    let said = proxy.program().line("the reload", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["message"] == "The configuration was loaded anew.").then_some(line)
    });
    let told = ["routes", "upstreams"].map(|name| said[name].clone());
    assert_eq!(json!(told), json!(["changed: pay; new: other", "changed: billing"]));
}

/// A proxy whose upstream always answers 503.
fn failing() -> (Proxy, Origin) {
    let origin = Origin::always(answer(503, &[], "no"));
    (Proxy::before(&[("billing", origin.address)], RETRIED), origin)
}

/// How many attempts one more request takes.
fn attempts(proxy: &Proxy, origin: &Origin) -> usize {
    let before = origin.count();
    assert_eq!(get(proxy.address, "/pay").status, 503);
    origin.count() - before
}

#[test]
fn an_operator_switches_the_retries_of_a_route_off() {
    let (proxy, origin) = failing();
    assert_eq!(attempts(&proxy, &origin), 2);
    let switched = post(proxy.admin, "/routes/pay/retries?state=off&for=PT1H", "");
    assert_eq!(switched.status, 200, "{}", switched.text());
    assert_eq!(switched.json(), json!({ "route": "pay", "retries": "off", "secondsLeft": 3600.0 }));
    assert_eq!(attempts(&proxy, &origin), 1);
    assert_eq!(post(proxy.admin, "/reload", "").status, 200);
    assert_eq!(attempts(&proxy, &origin), 1);
    assert_eq!(post(proxy.admin, "/routes/pay/retries?state=on", "").status, 200);
    assert_eq!(attempts(&proxy, &origin), 2);
    // One that ends by itself says so.
    assert_eq!(post(proxy.admin, "/routes/pay/retries?state=off&for=PT0.01S", "").status, 200);
    proxy.program().line("its end", |line| line.contains("ended by itself").then_some(()));
    assert_eq!(attempts(&proxy, &origin), 2);
    assert_eq!(post(proxy.admin, "/routes/none/retries?state=off", "").status, 404);
}

#[test]
fn everybody_sees_what_an_operator_has_switched() {
    let (proxy, origin) = failing();
    assert_eq!(post(proxy.admin, "/routes/pay/retries?state=off", "").status, 200);
    assert_eq!(attempts(&proxy, &origin), 1);
    let routes = get(proxy.admin, "/routes").json();
    assert_eq!(routes[0]["retriesOff"]["kind"], "retries", "{routes}");
    assert!(routes[0]["retriesOff"]["secondsLeft"].as_u64().unwrap() > 500, "{routes}");
    for page in ["/config", "/executions"] {
        let shown = get(proxy.admin, page).json();
        assert_eq!(shown["switches"][0]["what"], "pay", "{shown}");
    }
    let touched = get(proxy.admin, "/executions?outcome=failure").json();
    let message = touched["executions"][0]["failures"][0]["message"].as_str().unwrap();
    assert_eq!(message, "pay: gave up after 1 run: no retry is allowed now (switchedOff)");
    proxy.program().line("the switch", |line| line.contains("An operator has set").then_some(()));
    let labels = [("kind", "retries"), ("what", "pay")];
    assert_eq!(proxy.metric("mwl_operator_switches", &labels), 1);
    assert_eq!(post(proxy.admin, "/routes/pay/retries?state=on", "").status, 200);
    assert_eq!(get(proxy.admin, "/config").json()["switches"], json!([]));
}
