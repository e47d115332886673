//! `idempotencyKey: true`: an upstream that honours keys does each order once, however often it is sent, and drops none.
//!
//! The upstream does an order when it first sees its key, and then loses the answer. If the key comes again, the order
//! is done already, and the answer arrives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use super::one_route;
use crate::support::proxy::Proxy;
use crate::support::upstream::{Act, Arrived, Upstream, always};

const POST: &str = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}";

/// The request lines of the orders that were done, by key.
type Orders = Arc<Mutex<BTreeMap<String, String>>>;

async fn honouring() -> (Upstream, Orders) {
    let orders = Orders::default();
    let done = Arc::clone(&orders);
    let upstream = Upstream::run(move |_, order: &Arrived| {
        let keys = order.field("idempotency-key");
        let [key] = keys.as_slice() else {
            return always(400, "", "no key");
        };
        assert!((16..=64).contains(&key.len()), "{key}");
        match done.lock().unwrap().insert((*key).to_owned(), order.line().to_owned()) {
            None => Act::Close,
            Some(before) => {
                assert_eq!(before, order.line(), "the key of another order");
                always(200, "", "done")
            }
        }
    });
    (upstream.await, orders)
}

/// A call that orders `what`.
fn order(what: &Json) -> Json {
    json!({
        "provider": "mwl:provider.call/mwl-proxy/http/v1",
        "input": null,
        "with": {
            "upstream": "u",
            "method": "POST",
            "path": "/order",
            "query": { "what": what },
            "idempotencyKey": true,
        },
    })
}

fn retry(attempts: u32) -> Json {
    json!({
        "provider": "mwl:provider.middleware/mwl/retry/v1",
        "onEntry": { "with": { "policies": [{ "match": { "codes": ["*"] }, "attempts": attempts }] } },
    })
}

/// Runs its inside this often.
fn looped(times: u32) -> Json {
    json!({
        "provider": "mwl:provider.middleware/mwl/loop/v1",
        "onSuccess": { "when": format!("{{{{ middleware.metadata.iteration < {times} }}}}") },
    })
}

fn finally(call: &Json) -> Json {
    json!({
        "provider": "mwl:provider.middleware/mwl/finally/v1",
        "onAlways": { "with": { "call": call } },
    })
}

/// A Flow that makes these calls one after the other.
fn flow(calls: &[Json]) -> Json {
    let next = |number: usize| {
        if number + 1 < calls.len() { format!("step-{}", number + 1) } else { "done".to_owned() }
    };
    let steps = calls.iter().enumerate().map(|(number, call)| {
        let step = json!({ "action": "Call", "call": call, "next": next(number) });
        (format!("step-{number}"), step)
    });
    let mut steps: serde_json::Map<_, _> = steps.collect();
    steps.insert("done".to_owned(), json!({ "action": "Return" }));
    json!({ "entrypoint": "step-0", "steps": steps })
}

/// A Flow whose first Step has this stack.
fn stacked(mut flow: Json, stack: &[Json]) -> Json {
    flow["steps"]["step-0"]["middleware"] = json!(stack);
    flow
}

/// A Flow that sends its order this often, each in a visit of the same Step.
fn visiting(times: u32, what: &Json) -> Json {
    json!({
        "entrypoint": "send",
        "steps": {
            "send": { "action": "Call", "call": order(what), "next": "again" },
            "again": {
                "action": "Match",
                "cases": [{
                    "when": format!("{{{{ (has(vars.n) ? vars.n : 1.0) < {times}.0 }}}}"),
                    "assign": { "n": "{{ (has(vars.n) ? vars.n : 1.0) + 1.0 }}" },
                    "next": "send",
                }],
                "default": { "next": "done" },
            },
            "done": { "action": "Return" },
        },
    })
}

fn gathering(elements: &Json, call: &Json) -> Json {
    json!({
        "entrypoint": "all",
        "steps": {
            "all": { "action": "Gather", "over": elements, "call": call, "output": null, "next": "done" },
            "done": { "action": "Return" },
        },
    })
}

fn retried(mut flow: Json, attempts: u32) -> Json {
    flow["middleware"] = json!([retry(attempts)]);
    flow
}

/// Sends one request through `flow`, and returns the orders that were done, sorted.
async fn done(flow: &Json) -> Vec<String> {
    let (upstream, orders) = honouring().await;
    let proxy = Proxy::start(&format!(
        "upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}\nroutes:\n  - name: r\n    flow: {flow}\n",
        upstream.address
    ));
    let response = proxy.ask(POST).await;
    assert_eq!(response.status, 200, "{}", response.body);
    proxy.until_idle().await;
    sorted(&orders)
}

fn sorted(orders: &Orders) -> Vec<String> {
    let orders = orders.lock().unwrap();
    let what = |line: &String| {
        let target = line.split(' ').nth(1).unwrap();
        target.strip_prefix("/order?what=").unwrap_or(target).to_owned()
    };
    let mut orders: Vec<String> = orders.values().map(what).collect();
    orders.sort();
    orders
}

#[tokio::test]
async fn behind_a_retry_of_the_whole_flow() {
    let flow = retried(flow(&[order(&json!("pay")), order(&json!("ship"))]), 3);
    assert_eq!(done(&flow).await, ["pay", "ship"]);
}

#[tokio::test]
async fn behind_a_retry_around_a_flow() {
    let inner = flow(&[order(&json!("pay")), order(&json!("ship"))]);
    let flow = stacked(flow(&[json!({ "flow": inner })]), &[retry(3)]);
    assert_eq!(done(&flow).await, ["pay", "ship"]);
}

#[tokio::test]
async fn of_one_flow_that_two_steps_run() {
    let mut flow = retried(flow(&[json!({ "flow": "pay" }), json!({ "flow": "pay" })]), 3);
    flow["flows"] = json!({ "pay": self::flow(&[order(&json!("pay"))]) });
    assert_eq!(done(&flow).await, ["pay"; 2]);
}

#[tokio::test]
async fn of_a_gather_with_equal_orders() {
    let over = json!([7, 7, 7]);
    let call = order(&json!("{{ call.input }}"));
    assert_eq!(done(&retried(gathering(&over, &call), 2)).await, ["7"; 3]);
}

#[tokio::test]
async fn of_a_loop_that_a_retry_begins_again() {
    let flow = stacked(flow(&[order(&json!("page"))]), &[retry(4), looped(3)]);
    assert_eq!(done(&flow).await, ["page"; 3]);
}

#[tokio::test]
async fn of_a_loop_whose_iterations_are_retried() {
    let flow = stacked(flow(&[order(&json!("page"))]), &[looped(3), retry(2)]);
    assert_eq!(done(&flow).await, ["page"; 3]);
}

#[tokio::test]
async fn of_cleanups_beside_their_step() {
    let pay = json!("pay");
    let stack = [retry(2), finally(&order(&pay)), finally(&order(&pay))];
    assert_eq!(done(&stacked(flow(&[order(&pay)]), &stack)).await, ["pay"; 3]);
}

#[tokio::test]
async fn of_a_step_that_the_graph_visits_again() {
    let flow = retried(visiting(3, &json!("pay")), 4);
    assert_eq!(done(&flow).await, ["pay"; 3]);
}

#[tokio::test]
async fn of_everything_within_everything() {
    let inner = visiting(2, &json!("pay"));
    let gather = gathering(&json!([1, 2]), &json!({ "flow": inner }));
    let flow = stacked(flow(&[json!({ "flow": gather })]), &[retry(5), looped(2)]);
    assert_eq!(done(&retried(flow, 2)).await, ["pay"; 8]);
}

#[tokio::test]
async fn of_two_clients_with_one_request_id() {
    let (upstream, orders) = honouring().await;
    let route = format!("    idempotencyKey: true\n    middleware: [{}]\n", retry(2));
    let proxy = Proxy::start(&one_route(&upstream, &route));
    let post = POST.replace("\r\n\r\n", "\r\nX-Request-ID: order-7\r\n\r\n");
    for _ in 0..2 {
        assert_eq!(proxy.ask(&post).await.status, 200);
    }
    assert_eq!(sorted(&orders), ["/a", "/a"]);
    let seen = upstream.requests();
    assert!(seen.iter().all(|request| request.field("x-request-id") == ["order-7"]));
    assert!(orders.lock().unwrap().keys().all(|key| !key.contains("order-7")));
}

#[tokio::test]
async fn a_client_s_own_key_stays_and_an_expression_gives_another() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let route = "    idempotencyKey: \"{{ 'order-' + frame.input.headers['x-order'] }}\"\n";
    let proxy = Proxy::start(&one_route(&upstream, route));
    let with = |field: &str| POST.replace("\r\n\r\n", &format!("\r\nX-Order: 7{field}\r\n\r\n"));
    proxy.ask(&with("")).await;
    proxy.ask(&with("\r\nIdempotency-Key: mine")).await;
    let seen = upstream.requests();
    assert_eq!(seen[0].field("idempotency-key"), ["order-7"]);
    assert_eq!(seen[1].field("idempotency-key"), ["mine"]);
}
