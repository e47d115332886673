//! Files that are not of the kind, files with mistakes, and arbitrary text: all are told, and nothing panics.

use clap::ValueEnum as _;
use mwl_proxy::import::{Kind, import};
use proptest::prelude::*;

use super::source;

/// A sample of each kind.
const SAMPLES: [(Kind, &str); 19] = [
    (Kind::Istio, "istio-any-5xx.yaml"),
    (Kind::Istio, "istio-service-and-rule.yaml"),
    (Kind::Envoy, "envoy-throttling.yaml"),
    (Kind::Envoy, "envoy-hedging.yaml"),
    (Kind::EnvoyGateway, "envoy-gateway.yaml"),
    (Kind::Nginx, "nginx-two-servers.conf"),
    (Kind::Nginx, "nginx-any-method.conf"),
    (Kind::Haproxy, "haproxy-another-server.cfg"),
    (Kind::StepFunctions, "step-functions.json"),
    (Kind::StepFunctions, "step-functions-by-error.json"),
    (Kind::Noetl, "noetl-fetch-page.yaml"),
    (Kind::Noetl, "noetl-three-rules.yaml"),
    (Kind::Noetl, "noetl-postgres.yaml"),
    (Kind::Noetl, "noetl-python.yaml"),
    (Kind::Noetl, "noetl-playbook.yaml"),
    (Kind::Chevere, "chevere-job.php"),
    (Kind::Chevere, "chevere-use-cases.php"),
    (Kind::Chevere, "chevere-workflow.php"),
    (Kind::Tower, "tower.rs.txt"),
];

fn refusal(kind: Kind, text: &str) -> String {
    import(kind, "source", text).expect_err(text).to_string()
}

#[test]
fn a_file_of_another_kind_says_what_it_is_and_what_is_wanted() {
    let deployment = "kind: Deployment\nmetadata: { name: a }\n";
    for (kind, text, said) in [
        (
            Kind::Istio,
            deployment,
            "this is a `Deployment`; an Istio `VirtualService` or `DestinationRule` was wanted",
        ),
        (Kind::Istio, "a: 1\n", "this is no Kubernetes object; an Istio"),
        (
            Kind::EnvoyGateway,
            deployment,
            "this is a `Deployment`; an Envoy Gateway `BackendTrafficPolicy` was wanted",
        ),
        (Kind::Envoy, deployment, "there is neither an Envoy route"),
        (Kind::Nginx, "events { }\n", "there is neither an `upstream` nor a `proxy_pass`"),
        (Kind::Haproxy, "global\n  maxconn 5\n", "there is no `backend` and no `listen`"),
        (Kind::StepFunctions, deployment, "there are no `States` in this"),
        (Kind::Noetl, deployment, "there is no task of NoETL in this"),
        (Kind::Chevere, "<?php echo 1;", "no job of Chevere's in this"),
        (Kind::Tower, "fn main() {}", "there is no `ServiceBuilder::new()` of tower"),
    ] {
        let refused = refusal(kind, text);
        assert!(refused.contains(said) && refused.contains("source:1:1"), "{kind:?}: {refused}");
    }
}

#[test]
fn a_mistake_is_told_with_its_line_and_column() {
    let virtual_service = source("istio-any-5xx.yaml").replace("5ms", "5");
    let nginx =
        "upstream a { server b; }\nserver {\n  location / {\n    proxy_pass http://a\n  }\n}\n";
    for (kind, text, place, said) in [
        (
            Kind::Istio,
            virtual_service.as_str(),
            "source:17:24",
            "`perTryTimeout` is a number; wanted: a duration",
        ),
        (Kind::Nginx, nginx, "source:4:5", "a `;` is missing behind `proxy_pass http://a`"),
        (Kind::Nginx, "upstream a {\n", "source:1:1", "does not close"),
        (Kind::Nginx, "a;\n}\n", "source:2:1", "closes nothing"),
        (Kind::Nginx, "a 'b\n", "source:1:3", "quote does not close"),
        (
            Kind::Haproxy,
            "backend a\n  retries many\n",
            "source:2:3",
            "`many` is no number of retries",
        ),
        (
            Kind::Noetl,
            "a: { kind: http, spec: { policy: { rules: [{ when: x, then: { do: stop } }] } } }",
            "source:1:44",
            "`do` is `stop`",
        ),
        (
            Kind::Chevere,
            "sync(new A())->withRetry(maxAttempts: 0)",
            "source:1:26",
            "`maxAttempts` is 0",
        ),
        (
            Kind::Chevere,
            "sync(new A())->withRetry(attempts: 2)",
            "source:1:26",
            "`withRetry` has no `attempts`",
        ),
        (Kind::Tower, "ServiceBuilder::new().timeout(limit)", "source:1:23", "a Timeout wants"),
        (
            Kind::StepFunctions,
            "Type: Task\nRetry: [{ ErrorEquals: [States.ALL], MaxAttempts: -1 }]",
            "source:2:51",
            "`MaxAttempts` is a number",
        ),
        (
            Kind::Envoy,
            "clusters: [{ name: a, connect_timeout: 1 }]",
            "source:1:40",
            "`connect_timeout` is a number",
        ),
    ] {
        let refused = refusal(kind, text);
        assert!(refused.contains(place) && refused.contains(said), "{kind:?}: {refused}");
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let long = "a".repeat(mwl_proxy::import::MAX_SOURCE + 1);
    let deep = "a {".repeat(1000);
    let nested = "[".repeat(1000);
    for kind in Kind::value_variants() {
        assert!(refusal(*kind, &long).contains("at most 1048576 are read"), "{kind:?}");
        refusal(*kind, &nested);
        refusal(*kind, &deep);
    }
    assert!(refusal(Kind::Nginx, &deep).contains("deeper than 50"));
}

/// What is written passes `check`, and each warning has its comment.
fn sound(kind: Kind, text: &str) {
    let Ok(imported) = import(kind, "source", text) else { return };
    assert!(imported.errors.is_empty(), "{:?}\n{text}\n{}", imported.errors, imported.text);
    for warning in &imported.warnings {
        let comment = format!("`check` warns (`{warning}`)");
        // A comment may be wrapped.
        let flat = imported.text.replace('\n', " ");
        assert!(flat.contains(&comment), "{warning}\n{}", imported.text);
    }
}

/// A sample in which some words stand for others.
fn mutated() -> impl Strategy<Value = (Kind, String)> {
    let words = prop::sample::select(vec![
        "",
        "0",
        "-1",
        "99999999999999999999",
        "1e400",
        "5s",
        "PT5S",
        "{{ x }}",
        "${HOME}",
        "null",
        "[]",
        "{}",
        "\"",
        "'",
        "#",
        ";",
        "}",
        "{",
        "*",
        "/../x",
        "é\u{feff}",
        "\u{0}",
        "http_200",
        "retry",
        "true",
        ": ",
        "- a",
        "5xx,reset",
    ]);
    let edits = prop::collection::vec((any::<prop::sample::Index>(), words), 1..4);
    (prop::sample::select(SAMPLES.to_vec()), edits).prop_map(|((kind, name), edits)| {
        let text = source(name);
        let mut words: Vec<String> = text.split_inclusive([' ', '\n']).map(str::to_owned).collect();
        for (at, word) in edits {
            let at = at.index(words.len());
            let end = words[at].chars().next_back().unwrap_or(' ');
            words[at] = format!("{word}{end}");
        }
        (kind, words.concat())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_is_refused_or_imported(text in ".{0,200}", at in any::<prop::sample::Index>()) {
        sound(Kind::value_variants()[at.index(Kind::value_variants().len())], &text);
    }

    #[test]
    fn mutated_samples_are_refused_or_imported((kind, text) in mutated()) {
        sound(kind, &text);
    }
}
