//! The commands that do not serve, and the proxy without a file.

use std::process::Output;

use serde_json::{Value, json};

use crate::support::client::{get, post};
use crate::support::origin::{Origin, Port, answer};
use crate::support::program::{Directory, Program, Proxy, command, configuration, run};

pub(super) fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub(super) fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

pub(super) fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", stdout(output), stderr(output)))
}

/// Whether the value contains this member with this value at any depth.
fn holds(value: &Value, name: &str, wanted: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(member, value)| {
            (member == name && value == wanted) || holds(value, name, wanted)
        }),
        Value::Array(items) => items.iter().any(|item| holds(item, name, wanted)),
        _ => false,
    }
}

const ROUTE: &str = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";

pub(super) fn sound() -> String {
    configuration(&[("billing", ([127, 0, 0, 1], 3000).into())], ROUTE)
}

#[test]
fn check_is_silent_about_a_sound_file() {
    let directory = Directory::new();
    let path = directory.write("sound.yaml", &sound());
    let output = run(&["check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn check_points_at_every_mistake() {
    let directory = Directory::new();
    let file = sound().replace("upstream: billing", "upstraem: billing") + "surprise: 1\n";
    let path = directory.write("bad.yaml", &file);
    let path = path.to_str().unwrap();
    let output = run(&["check", path]);
    assert_eq!(output.status.code(), Some(1));
    let told = format!("{}{}", stdout(&output), stderr(&output));
    let column = ROUTE.find("upstream").unwrap() + 1;
    assert!(told.contains(&format!("{path}:6:{column}")), "{told}");
    assert!(told.contains(&format!("{path}:7:1")), "{told}");
    assert!(told.contains("upstream"), "what was meant: {told}");

    let output = run(&["check", "--format", "json", path]);
    assert_eq!(output.status.code(), Some(1));
    let told = parsed(&output);
    assert!(holds(&told, "line", &json!(7)) && holds(&told, "column", &json!(column)), "{told}");
}

/// All codes that a route may see are known: those of the provider, and those of its own `classify` rules.
#[test]
fn check_knows_the_codes_that_a_route_s_calls_may_fail_with() {
    let directory = Directory::new();
    let told = |code: &str| {
        let file = format!(
            "{}    classify: [ {{ status: [402], code: Mine.Declined, retryable: false }} ]
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [ {{ match: {{ codes: [\"{code}\"] }}, attempts: 2, backoff: {{ initial: PT1S }} }} ] }} }}
",
            sound().replace("- { name: all, match: { pathPrefix: / }, upstream: billing }", "- name: all\n    match: { pathPrefix: / }\n    upstream: billing")
        );
        let path = directory.write("codes.yaml", &file);
        let output = run(&["check", path.to_str().unwrap()]);
        (output.status.code(), format!("{}{}", stdout(&output), stderr(&output)))
    };
    for known in ["Provider.Call.Http.Throttled", "Provider.Call.Http.*", "Mine.Declined", "*"] {
        let (exit, told) = told(known);
        assert!(exit == Some(0) && !told.contains("warning"), "{told}");
    }
    let (exit, near) = told("Provider.Call.Http.Throtled");
    assert_eq!(exit, Some(0));
    assert!(
        near.contains("codes.yaml:12:59")
            && near.contains("did you mean `Provider.Call.Http.Throttled`?"),
        "{near}"
    );
    let (exit, elsewhere) = told("Provider.Call.Htpp.*");
    assert_eq!(exit, Some(0));
    let nobody = "nothing declares a failure code that `Provider.Call.Htpp.*` matches";
    assert!(elsewhere.contains(nobody), "{elsewhere}");
    let (exit, spaced) = told("Provider.Call.Http.Throttled ");
    assert_eq!(exit, Some(1));
    assert!(
        spaced.contains("it begins or ends with white space")
            && spaced.contains("codes.yaml:12:59"),
        "{spaced}"
    );
}

#[test]
fn check_reads_definitions_too() {
    let directory = Directory::new();
    let bad = r#"{ "$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "nowhere",
  "steps": { "done": { "action": "Return" } } }"#;
    let path = directory.write("bad.json", bad);
    let output = run(&["check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let told = format!("{}{}", stdout(&output), stderr(&output));
    assert!(told.contains("bad.json:1:") && told.contains("nowhere"), "{told}");
}

#[test]
fn flow_run_prints_the_result_and_exits_by_it() {
    let directory = Directory::new();
    let definition = directory.write(
        "flow.json",
        r#"{
  "$schema": "https://mwl.dev/v0.1/flow/schema.json",
  "parameters": { "type": "object", "properties": { "fail": { "type": "boolean", "default": false } } },
  "entrypoint": "choose",
  "steps": {
    "choose": {
      "action": "Match",
      "cases": [{ "when": "{{ vars.fail }}", "next": "no" }],
      "default": { "next": "yes" }
    },
    "yes": { "action": "Return", "value": "{{ {'doubled': step.input.n * 2.0} }}" },
    "no": { "action": "Raise", "result": { "code": "Order.Refused", "message": "as asked" } }
  }
}"#,
    );
    let input = directory.write("input.json", r#"{ "n": 21 }"#);
    let arguments = directory.write("arguments.json", r#"{ "fail": true }"#);
    let [definition, input, arguments] =
        [&definition, &input, &arguments].map(|path| path.to_str().unwrap());

    let output = run(&["flow", "run", definition, "--input", input]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = parsed(&output);
    assert_eq!(result["type"], "success");
    assert_eq!(result["value"]["doubled"].as_f64(), Some(42.0));

    let output = run(&["flow", "run", definition, "--input", input, "--arguments", arguments]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let result = parsed(&output);
    assert_eq!((&result["type"], &result["code"]), (&json!("error"), &json!("Order.Refused")));

    let bad = directory.write("bad.json", r#"{ "entrypoint": "x", "steps": {} }"#);
    let output = run(&["flow", "run", bad.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains("bad.json:1:"), "{}", stderr(&output));
}

/// Writes a case to `directory` that waits a minute and returns `value`.
fn write_case(directory: &Directory, name: &str, value: u32) {
    let files = [
        (
            "case.json",
            r#"{
  "description": "It waits, and gives its input.",
  "profiles": ["https://mwl.dev/v0.1/conformance/core"],
  "marks": ["temporal"],
  "scenarios": { "base": {} }
}"#
            .to_owned(),
        ),
        (
            "definition.json",
            r#"{
  "$schema": "https://mwl.dev/v0.1/flow/schema.json",
  "entrypoint": "wait",
  "steps": {
    "wait": { "action": "Sleep", "for": "PT1M", "next": "done" },
    "done": { "action": "Return" }
  }
}"#
            .to_owned(),
        ),
        ("scenarios/base/input.json", r#"{ "n": [7] }"#.to_owned()),
        (
            "scenarios/base/expected-result.json",
            format!(r#"{{ "type": "success", "value": {{ "n": [{value}] }} }}"#),
        ),
        ("scenarios/base/expected.json", r#"{ "took": "PT1M" }"#.to_owned()),
    ];
    for (file, text) in files {
        directory.write(&format!("{name}/{file}"), &text);
    }
}

#[test]
fn flow_test_judges_a_case_a_folder_and_folders_of_folders() {
    let directory = Directory::new();
    write_case(&directory, "all/waiting/right", 7);
    let all = directory.path("all");
    for path in ["all/waiting/right", "all/waiting", "all"] {
        let output = run(&["flow", "test", directory.path(path).to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!((stdout(&output), stderr(&output)), ("1 passed, 0 failed\n", ""));
    }
    write_case(&directory, "all/wrong", 8);
    let output = run(&["flow", "test", all.to_str().unwrap()]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), ""));
    let told = format!(
        "{}/wrong/scenarios/base\n  at /value/n/0\n  expected 8\n  got      7\n\n\
         1 passed, 1 failed\n",
        all.display()
    );
    assert_eq!(stdout(&output), told);
}

#[test]
fn flow_test_names_the_file_that_is_no_part_of_a_case() {
    let directory = Directory::new();
    write_case(&directory, "all/one", 7);
    write_case(&directory, "all/two", 7);
    let all = directory.path("all");
    let all = all.to_str().unwrap();
    std::fs::remove_file(directory.path("all/one/scenarios/base/input.json")).unwrap();
    directory.write("all/one/scenarios/base/expected.json", r#"{ "took": "1m" }"#);
    directory.write("all/one/scenarios/surplus/input.json", "1");
    std::fs::remove_file(directory.path("all/two/case.json")).unwrap();
    write_case(&directory, "all/three", 7);
    std::fs::remove_dir_all(directory.path("all/three/scenarios/base")).unwrap();
    let output = run(&["flow", "test", all]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
    for told in [
        "one/scenarios/base/input.json cannot be read: ",
        "wanted: the execution input",
        "one/scenarios/base/expected.json:1:11",
        "wanted: an ISO 8601 duration, such as `PT1.5S`",
        "one/scenarios/surplus is not listed",
        "two/case.json cannot be read: ",
        "three/scenarios/base is listed in `scenarios` of case.json; wanted: a folder",
    ] {
        assert!(stderr(&output).contains(told), "{told}: {}", stderr(&output));
    }

    directory.write("none/notes.txt", "");
    let none = directory.path("none");
    let output = run(&["flow", "test", none.to_str().unwrap()]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
    assert!(
        stderr(&output).contains("none holds no case: a case is a directory with case.json"),
        "{}",
        stderr(&output)
    );
    let output = run(&["flow", "test", directory.path("nowhere").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("nowhere cannot be read: "));
}

#[test]
fn eval_prints_the_value_and_exits_by_it() {
    let directory = Directory::new();
    let bindings = directory.write(
        "bindings.json",
        r#"{ "middleware": { "result": { "type": "error", "details": { "retryAfter": "PT2S" } } } }"#,
    );
    let bindings = bindings.to_str().unwrap();
    let expression = "{{ middleware.result.details.retryAfter }}";
    let output = run(&["eval", expression, "--bindings", bindings]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!((stdout(&output), stderr(&output)), ("\"PT2S\"\n", ""));

    let output = run(&["eval", "--bindings", bindings, "-1 + size([1, 2, 3])"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "2\n");

    let output = run(&["eval", "middleware.result.value", "--bindings", bindings]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    let code = "System.ExpressionEvaluationError: ";
    assert!(stderr(&output).starts_with(code), "{}", stderr(&output));

    let output = run(&["eval", "1 + nowhere"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
    let caret = " --> EXPR:1:5\n  |\n1 | 1 + nowhere\n  |     ^";
    assert!(stderr(&output).contains(caret), "{}", stderr(&output));

    let bad = directory.write("bad.json", r#"{ "middlewares": {} }"#);
    let output = run(&["eval", "true", "--bindings", bad.to_str().unwrap()]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
    for told in ["bad.json:1:3", "`middlewares` is no root", "`vars`", "`middleware`"] {
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
    }
    let output = run(&["eval", "true", "--bindings", "/nowhere.json"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn schema_and_catalog_print_json() {
    let output = run(&["schema"]);
    assert_eq!(output.status.code(), Some(0));
    let schema = parsed(&output);
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for key in ["listeners", "admin", "upstreams", "routes", "stacks", "middleware", "environment"]
    {
        assert!(schema["properties"][key].is_object(), "{key}");
    }

    let output = run(&["catalog"]);
    assert_eq!(output.status.code(), Some(0));
    let catalog = parsed(&output);
    for uri in [
        "mwl:provider.call/mwl-proxy/http/v1",
        "mwl:provider.call/mwl/mock/v1",
        "mwl:provider.middleware/mwl/finally/v1",
        "mwl:provider.middleware/mwl/loop/v1",
        "mwl:provider.middleware/mwl/retry/v1",
        "mwl:provider.middleware/mwl/timeout/v1",
    ] {
        assert!(holds(&catalog, "uri", &json!(uri)), "{uri}");
    }
}

#[test]
fn conformance_prints_the_claim_and_nothing_else() {
    let output = run(&["conformance"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "");
    assert_eq!(
        stdout(&output),
        "https://mwl.dev/v0.1/conformance/core\n\
         https://mwl.dev/v0.1/conformance/expressions/cel\n\
         https://mwl.dev/v0.1/conformance/expressions/cel/strings\n\
         https://mwl.dev/v0.1/conformance/expressions/cel/lists\n\
         https://mwl.dev/v0.1/conformance/expressions/cel/sets\n\
         https://mwl.dev/v0.1/conformance/expressions/cel/encoders\n\
         https://mwl.dev/v0.1/conformance/expressions/cel/math\n"
    );
}

#[test]
fn probe_asks_the_admin_address() {
    let origin = Origin::always(answer(200, &[], ""));
    let proxy = Proxy::before(&[("billing", origin.address)], ROUTE);
    let output = run(&["probe", "--admin", &proxy.admin.to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let nobody = Port::hold();
    let output = run(&["probe", "--admin", &nobody.address.to_string()]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_proxy_needs_no_file_before_one_upstream() {
    let origin = Origin::script([
        answer(200, &[], "first"),
        answer(503, &[], "down"),
        answer(200, &[], "up again"),
        answer(503, &[], "not sent twice"),
    ]);
    let upstream = format!("http://{}", origin.address);
    let arguments =
        ["run", "--upstream", &upstream, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let program = Program::spawn(command(&arguments));
    let (address, admin) = program.addresses();
    assert_eq!(get(admin, "/readyz").status, 200);
    assert_eq!(get(address, "/a?b=c").text(), "first");
    assert_eq!(origin.seen()[0].head.line, "GET /a?b=c HTTP/1.1");
    assert_eq!(get(address, "/").text(), "up again", "a GET is sent again");
    let got = post(address, "/", "{}");
    assert_eq!((got.status, got.text()), (503, "not sent twice"), "a POST is not");
    assert_eq!(origin.count(), 4);
}

#[test]
fn a_command_that_is_none_is_told_so() {
    let output = run(&["serve"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("serve"), "{}", stderr(&output));
}
