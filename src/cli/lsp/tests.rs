use super::*;

const FILE: &str = "listeners: [{ address: 127.0.0.1:0 }]
upstreams: { app: { endpoints: [http://a] } }
routes:
- name: r
  upstream: app
  middleware:
    - provider: mwl:provider.middleware/mwl/retry/v1
      onEntry: { with: { policies: [{ match: { codes: [\"*\"] }, attempts: 0, backoff: { initial: PT1S } }] } }
";

/// What the server sends in answer to these messages, and whether it was asked to end.
fn conversation(messages: &[Json]) -> (Vec<Json>, bool) {
    let mut input = Vec::new();
    for message in messages {
        send(&mut input, message).unwrap();
    }
    let mut server = Server { catalog: documents().unwrap(), open: BTreeMap::new(), ends: false };
    let mut out = Vec::new();
    server.serve(&mut input.as_slice(), &mut out).unwrap();
    let (mut out, mut answers) = (out.as_slice(), Vec::new());
    while let Some(Incoming::Message(answer)) = receive(&mut out).unwrap() {
        answers.push(answer);
    }
    (answers, server.ends)
}

fn request(id: u32, method: &str, params: &Json) -> Json {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn notice(method: &str, params: &Json) -> Json {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

#[test]
fn an_editor_is_told_what_check_says_and_what_a_parameter_is() {
    let uri = "file:///tmp/a%20b.yaml";
    let at = |line: u32, character: u32| json!({ "textDocument": { "uri": uri }, "position": { "line": line, "character": character } });
    let sound = FILE.replace("attempts: 0", "attempts: 3");
    let (answers, ends) = conversation(&[
        request(1, "initialize", &json!({})),
        notice("initialized", &json!({})),
        notice("textDocument/didOpen", &json!({ "textDocument": { "uri": uri, "text": FILE } })),
        request(2, "textDocument/hover", &at(7, 64)),
        request(3, "textDocument/hover", &at(6, 30)),
        request(4, "textDocument/hover", &at(4, 4)),
        notice(
            "textDocument/didChange",
            &json!({ "textDocument": { "uri": uri }, "contentChanges": [{ "text": sound }] }),
        ),
        notice("textDocument/didClose", &json!({ "textDocument": { "uri": uri } })),
        request(5, "workspace/symbol", &json!({})),
        request(6, "shutdown", &Json::Null),
        notice("exit", &Json::Null),
    ]);
    let [capable, found, attempts, retry, nothing, sound, closed, unknown, shutdown] =
        answers.try_into().unwrap();
    assert!(ends);
    assert_eq!(capable["result"]["capabilities"]["hoverProvider"], true);
    let one = &found["params"]["diagnostics"][0];
    assert_eq!(one["range"]["start"], json!({ "line": 7, "character": 73 }));
    insta::assert_snapshot!(one["message"].as_str().unwrap(), @r"
    0 is less than the minimum of 1
    write a number from 1
    ");
    insta::assert_snapshot!(attempts["result"]["contents"]["value"].as_str().unwrap(), @r"
    **attempts** (integer)

    The budget, counting the first run.
    ");
    let said = retry["result"]["contents"]["value"].as_str().unwrap();
    assert!(said.contains("Runs its inner scope again"), "{said}");
    assert_eq!(nothing["result"], Json::Null);
    assert_eq!(sound["params"]["diagnostics"], json!([]));
    assert_eq!(closed["params"]["diagnostics"], json!([]));
    assert_eq!(unknown["error"]["code"], UNKNOWN_METHOD);
    assert_eq!((&shutdown["id"], &shutdown["result"]), (&json!(6), &Json::Null));
}

#[test]
fn what_is_no_message_is_answered_or_ends_it() {
    let serve = |input: &[u8]| {
        let mut server = Server { catalog: Vec::new(), open: BTreeMap::new(), ends: false };
        let mut out = Vec::new();
        let ended = server.serve(&mut &*input, &mut out);
        (ended.map_err(|error| error.to_string()), String::from_utf8(out).unwrap())
    };
    let (ended, said) = serve(b"Content-Length: 2\r\n\r\n{]");
    assert!(ended.is_ok() && said.contains("-32700"), "{said}");
    for wrong in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"Content-Length: 99\r\n\r\n{}", b"Content-Length: 2\r\n"]
    {
        assert!(serve(wrong).0.is_err(), "{wrong:?}");
    }
    let long = format!("Content-Length: {}\r\n\r\n", usize::MAX);
    assert_eq!(serve(long.as_bytes()).0.unwrap_err(), "a message is too long");
    assert_eq!(serve(b""), (Ok(()), String::new()));
}

#[test]
fn other_files_of_an_editor_are_left_alone() {
    for ours in [FILE, "{ \"entrypoint\": \"a\" }", "routes:\n", "{\n  \"routes\": []\n}"] {
        assert!(is_ours(ours), "{ours}");
    }
    for other in
        ["services:\n  web:\n    routes: []\n", "name: ci\non: push\n", "", "# routes: none\n"]
    {
        assert!(!is_ours(other), "{other}");
    }
}
