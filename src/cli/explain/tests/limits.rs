//! `rate-limit` and `idempotency` in a rehearsal.

use super::*;

/// The example runs: what each route's words say, and what one request gets. A rehearsal asks no store.
#[test]
fn the_example_limits_and_keeps_what_it_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/limits.yaml");
    let ask = |request: &str, more: &[&str]| {
        let arguments = [&["-c", file, "--request", request, "--respond", "200"], more].concat();
        said(&arguments).unwrap()
    };
    let said = ask("GET /limited", &[]);
    assert!(said.contains("rate-limit: 100 per PT1S, at most 20 at once for each key"), "{said}");
    assert!(said.contains("rate-limit: lets this run pass, 19 more may come now"), "{said}");
    assert!(said.contains("The client gets 200"), "{said}");
    let said = ask("POST /payments", &["--header", "idempotency-key: k"]);
    assert!(said.contains("idempotency: answers kept for PT24H, a key is required"), "{said}");
    assert!(
        said.contains("idempotency: lets this run pass: it is the first with its key"),
        "{said}"
    );
    assert!(said.contains("The client gets 200"), "{said}");
    let said = ask("POST /payments", &[]);
    assert!(said.contains("idempotency: refuses this run: it has no key"), "{said}");
    assert!(said.contains("The client gets 400"), "{said}");
}
