//! Documents that are read, and messages for those that are refused.

use super::*;

/// A call provider's document, with one member replaced.
fn call(member: &str, value: Json) -> String {
    let mut document = serde_json::json!({
        "$schema": SCHEMA_URI,
        "uri": "mwl:provider.call/acme/queue/v1",
        "codePrefix": "Queue",
        "description": "Sends a message.",
        "parameters": { "type": "object", "properties": { "topic": { "type": "string" } } },
        "failureCatalog": { "closed": ["Provider.Call.Queue.Full"], "open": ["Provider.Call.Queue.Broker.*"] }
    });
    document[member] = value;
    document.to_string()
}

fn middleware(member: &str, value: Json) -> String {
    let mut document = serde_json::json!({
        "$schema": SCHEMA_URI,
        "uri": "mwl:provider.middleware/acme/guard/v1",
        "codePrefix": "Guard",
        "description": "Guards.",
        "attachment": ["flow"],
        "phases": {
            "onAlways": {
                "action": { "kind": "side-effect", "description": "Calls." },
                "parameters": {
                    "type": "object",
                    "required": ["call", "level"],
                    "properties": { "call": { "type": "object" }, "level": { "type": "integer" } }
                },
                "structural": ["call"]
            }
        },
        "metadata": { "type": "object", "properties": { "count": { "type": "number" } } },
        "failureCatalog": { "closed": [], "open": [] }
    });
    document[member] = value;
    document.to_string()
}

#[test]
fn a_call_providers_document_is_read() {
    let contract = Contract::parse(&call("comment", Json::Null)).unwrap_err();
    assert!(contract.starts_with("unknown field `comment`"), "{contract}");
    let contract = Contract::parse(&call("codePrefix", "Queue".into())).unwrap();
    assert_eq!(contract.uri.as_str(), "mwl:provider.call/acme/queue/v1");
    assert!(contract.declares("Provider.Call.Queue.Full"));
    assert!(contract.declares("Provider.Call.Queue.Broker.Gone"));
    assert!(!contract.declares("Provider.Call.Queue.Empty"));
    let good = Value::object([("topic", Value::from("t"))]);
    assert!(contract.parameters().validate(&good).is_ok());
    let closed = Value::object([("topics", Value::from("t"))]);
    assert!(contract.parameters().validate(&closed).is_err());
    assert!(contract.phase(Phase::Entry).is_none());
}

#[test]
fn a_structural_parameter_is_no_value_to_validate() {
    let contract = Contract::parse(&middleware("codePrefix", "Guard".into())).unwrap();
    assert_eq!(contract.contributed(), ["count"]);
    assert!(!contract.bounds());
    assert!(contract.phase(Phase::Entry).is_none());
    let phase = contract.phase(Phase::Always).unwrap();
    assert_eq!(phase.structural, ["call"]);
    assert_eq!(phase.structural_required, ["call"]);
    let rest = Value::object([("level", Value::from(1))]);
    assert!(phase.parameters.validate(&rest).is_ok());
    assert!(phase.parameters.validate(&Value::empty_object()).is_err());
}

#[test]
fn what_is_inconsistent_is_refused() {
    let catalog =
        |closed: &str, open: &str| serde_json::json!({ "closed": [closed], "open": [open] });
    let phases = |structural: &str| {
        serde_json::json!({ "onEntry": {
            "action": { "kind": "control", "description": "" },
            "parameters": { "type": "object", "properties": { "policy": {} } },
            "structural": [structural]
        } })
    };
    let stolen = |name: &str| serde_json::json!({ "type": "object", "properties": { name: {} } });
    let json = |text: &str| serde_json::from_str::<Json>(text).unwrap();
    let documents = [
        call("$schema", "x".into()),
        call("codePrefix", "queue".into()),
        call("failureCatalog", catalog("Provider.Call.Other.X", "*")),
        call("failureCatalog", catalog("Provider.Call.Queue.*", "*")),
        call("failureCatalog", catalog("Provider.Call.Queue.X", "Provider.Call.*")),
        call("parameters", Json::Null),
        call("attachment", json(r#"["step"]"#)),
        call("metadata", stolen("enteredAt")),
        middleware("metadata", stolen("exitedAt")),
        middleware("parameters", json(r#"{ "type": "object" }"#)),
        middleware("attachment", json("[]")),
        middleware("phases", json("{}")),
        middleware("phases", phases("call")),
        middleware("phases", phases("policy")),
    ];
    let problems = documents.map(|document| Contract::parse(&document).unwrap_err());
    insta::assert_snapshot!(problems.join("\n"), @"
    `$schema` is `x`; write `https://mwl.dev/v0.1/provider/schema.json`
    `codePrefix` is `queue`; write letters and digits, the first an upper-case letter
    the closed code `Provider.Call.Other.X` is not one under `Provider.Call.Queue.`
    the closed code `Provider.Call.Queue.*` is not one under `Provider.Call.Queue.`
    the open sub-prefix `Provider.Call.*` is neither `*` nor under `Provider.Call.Queue.` and ending in `.*`
    `parameters` is missing
    `attachment` and `phases` belong to a middleware's document
    `metadata` contributes `enteredAt`, which every record has already
    `metadata` contributes `exitedAt`, which every record has already
    a middleware declares its `parameters` per phase
    `attachment` is missing or empty; write `step`, `flow` or both
    `phases` is empty: a middleware acts somewhere
    onEntry: the structural parameter `call` is not among the parameters
    onEntry: `policy` cannot be structural; `call` and `middleware` can
    ");
}
