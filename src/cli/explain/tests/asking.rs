//! Questions at the admin address.

use serde_json::json;

use super::*;

/// Two routes whose texts may be secrets, and one that never ends.
const ROUTES: &str = r#"
listeners: [{ address: 127.0.0.1:0 }]
upstreams: { app: { endpoints: [http://app] } }
routes:
  - { name: keyed, match: { headers: { x-key: a-literal-secret } }, upstream: app }
  - name: pay
    match: { pathPrefix: /pay }
    upstream: app
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: [Provider.Call.Http.Unavailable] }, attempts: 3, backoff: { initial: PT1S } }] } }
  - name: bot
    match: { path: /bot }
    call:
      provider: mwl:provider.call/mwl-proxy/http/v1
      with: { upstream: app, path: "/bot/${TOKEN}/send" }
    steps: {}
  - name: endless
    match: { path: /endless }
    upstream: app
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: ["*"] }, attempts: 1000000, backoff: { initial: PT1H } }] } }
"#;

fn loaded() -> Loaded {
    let variables = vec![("TOKEN", "s3cr3t-t0ken".to_owned())];
    let name = PathBuf::from("c.yaml");
    Input::Text { name, text: ROUTES.to_owned(), variables }.load().unwrap()
}

fn asked(question: &str) -> Result<Json, String> {
    ask(loaded(), question.as_bytes(), &CancellationToken::new())
}

#[test]
fn a_question_is_answered_as_the_command_would() {
    let question = json!({
        "request": "GET /pay/1", "headers": ["x-a: b"], "body": "@/etc/passwd", "respond": ["503*2", "200,body=ok"]
    });
    let answer = asked(&question.to_string()).unwrap();
    assert_eq!((&answer["route"], &answer["took"]), (&json!("pay"), &json!("PT2S")));
    assert_eq!(answer["response"]["body"], "ok");
    assert_eq!(answer["request"]["headers"]["x-a"], "b");
    let sent = answer["events"].as_array().unwrap().iter();
    let sent = sent.filter(|event| event["event"] == "request.sent");
    assert!(sent.clone().all(|event| event["target"] == "/pay/1"));
    assert_eq!(sent.count(), 3);
    assert_eq!(asked("{}").unwrap()["request"]["target"], "/");
}

#[test]
fn mistakes_in_a_question_are_told() {
    let wrong = |question: &str| asked(question).unwrap_err();
    assert!(wrong("[").starts_with("this is no question: "));
    assert!(wrong(r#"{ "requests": "GET /" }"#).contains("unknown field `requests`"));
    assert!(wrong(r#"{ "respond": ["999"] }"#).contains("`999` is no response"));
    assert!(wrong(r#"{ "respond": ["200,upstream=ap"] }"#).contains("there is no upstream `ap`"));
    assert!(wrong(r#"{ "clientTimeout": "soon" }"#).contains("`soon` is no duration"));
}

#[test]
fn who_asks_sees_no_more_than_the_configuration_shows() {
    let answer = asked(r#"{ "request": "GET /bot" }"#).unwrap();
    let told = answer.to_string();
    assert!(!told.contains("s3cr3t") && !told.contains("a-literal-secret"), "{told}");
    assert_eq!(answer["routes"][0]["why"], "there is no header x-key=(hidden)");
    let mut events = answer["events"].as_array().unwrap().iter();
    assert!(events.any(|event| event["target"] == "(hidden)"), "{told}");
}

#[test]
fn what_has_no_end_is_cut_off() {
    let question = r#"{ "request": "GET /endless", "respond": ["503"] }"#;
    let answer = asked(question).unwrap();
    assert_eq!(
        (&answer["end"], answer["events"].as_array().unwrap().len()),
        (&json!("endless"), 1000)
    );
    let stopped = CancellationToken::new();
    stopped.cancel();
    let answer = ask(loaded(), question.as_bytes(), &stopped).unwrap();
    assert_eq!(answer["end"], "endless");
    assert!(answer["events"].as_array().unwrap().len() < 10);
}
