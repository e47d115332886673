//! Files of responses, and how often and how late responses come.

use super::*;

fn script(text: &str) -> Result<Vec<Labelled>, String> {
    script::of_text("s.yaml", text, &["app", "audit"])
}

#[test]
#[expect(clippy::too_many_lines, reason = "a snapshot is as long as what it shows")]
fn every_mistake_in_a_script_is_told_at_its_place() {
    let text = r#"
adit: [200]
app:
  - 799
  - "200,upstream=audit"
  - { status: 429, headers: { "a b": 1, x: [1, {}] }, after: noon, times: 0 }
  - { status: 200, reset: true }
  - { hang: true, after: 20ms, body: x }
  - { reset: yes, what: 1 }
  - null
audit: 200
"#;
    insta::assert_snapshot!(script(text).unwrap_err(), @r##"
    error[unknown-upstream]: there is no upstream `adit`; there is `app`, `audit`, and `*` for all others
     --> s.yaml:2:1
      |
    2 | adit: [200]
      | ^^^^
      = help: did you mean `audit`?

    error[invalid-response]: `799` is no response: a status from 200 to 599, `reset`, `refused` or `hang`
     --> s.yaml:4:5
      |
    4 |   - 799
      |     ^^^

    error[invalid-response]: the list says for which upstream it is
     --> s.yaml:5:19
      |
    5 |   - "200,upstream=audit"
      |                   ^

    error[invalid-response]: `a b` is no name of a header field
     --> s.yaml:6:31
      |
    6 |   - { status: 429, headers: { "a b": 1, x: [1, {}] }, after: noon, times: 0 }
      |                               ^^^^^

    error[invalid-response]: this is an object; wanted: the value of a field, or a list of them
     --> s.yaml:6:48
      |
    6 |   - { status: 429, headers: { "a b": 1, x: [1, {}] }, after: noon, times: 0 }
      |                                                ^^

    error[invalid-response]: `noon` is no duration above zero, such as 1.5s, 20ms or PT0.5S
     --> s.yaml:6:62
      |
    6 |   - { status: 429, headers: { "a b": 1, x: [1, {}] }, after: noon, times: 0 }
      |                                                              ^^^^

    error[invalid-response]: this is a number; wanted: a number of times, from 1 to 10000
     --> s.yaml:6:75
      |
    6 |   - { status: 429, headers: { "a b": 1, x: [1, {}] }, after: noon, times: 0 }
      |                                                                           ^

    error[invalid-response]: this is an object; wanted: one of `status`, `reset`, `refused` and `hang`
     --> s.yaml:7:5
      |
    7 |   - { status: 200, reset: true }
      |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[invalid-response]: `hang` never answers: how long it takes has no meaning
     --> s.yaml:8:26
      |
    8 |   - { hang: true, after: 20ms, body: x }
      |                          ^^^^

    error[invalid-response]: `hang` is no answer: it has no `body`
     --> s.yaml:8:32
      |
    8 |   - { hang: true, after: 20ms, body: x }
      |                                ^^^^

    error[invalid-response]: this is a string; wanted: `true`
     --> s.yaml:9:14
      |
    9 |   - { reset: yes, what: 1 }
      |              ^^^

    error[unknown-key]: `what` is unknown; wanted: `status`, `reset`, `refused`, `hang`, `headers`, `body`, `after`, `times`
     --> s.yaml:9:19
      |
    9 |   - { reset: yes, what: 1 }
      |                   ^^^^

    error[invalid-response]: this is null; wanted: a response as `--respond` takes it (`503*3`, `reset`), or an object with `status`, `reset`, `refused` or `hang`
      --> s.yaml:10:5
       |
    10 |   - null
       |     ^^^^

    error[invalid-response]: this is a number; wanted: a list of responses, in order; the last one is given again and again
      --> s.yaml:11:8
       |
    11 | audit: 200
       |        ^^^
    "##);
    insta::assert_snapshot!(script("[200]").unwrap_err(), @"
    error[invalid-response]: this is an array; wanted: an object with a list of responses for each upstream, `*` for all others
     --> s.yaml:1:1
      |
    1 | [200]
      | ^^^^^
    ");
}

#[test]
fn a_script_holds_what_respond_takes_and_more() {
    let text = r#"
app:
  - 503*2
  - { status: 429, headers: { retry-after: 2 }, body: { error: slow down }, after: 20ms..80ms, times: 3 }
  - reset@1.5s
"*": [200]
"#;
    let read = script(text).unwrap();
    let read: Vec<_> = read
        .iter()
        .map(|Labelled { at, response: response::Response { planned, times, .. }, .. }| {
            let after = [planned.after.least, planned.after.most].map(|after| after.as_millis());
            (&**at, planned.upstream.as_deref(), *times, after)
        })
        .collect();
    assert_eq!(
        read,
        [
            ("app #1", Some("app"), 2, [0, 0]),
            ("app #2", Some("app"), 3, [20, 80]),
            ("app #3", Some("app"), 1, [1500, 1500]),
            ("* #1", None, 1, [0, 0]),
        ]
    );
}

const RETRIED: &str = r#"
- name: all
  upstream: app
  middleware:
    - provider: mwl:provider.middleware/mwl/retry/v1
      onEntry: { with: { policies: [{ match: { codes: ["*"] }, attempts: 5, backoff: { initial: PT1S } }] } }
"#;

#[test]
fn a_response_comes_as_often_and_as_late_as_it_says() {
    let said =
        of(RETRIED, &["--respond", "503*2", "--respond", "reset@500ms", "--respond", "200@1.5s"]);
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s all: attempt 1
        0.000 s   GET / to app (app:80)
                  answers --respond #1: 503*2
        0.000 s   Provider.Call.Http.Unavailable, retryable
                  all: attempt 1 of 5: upstream app answered 503 (retryable: GET is idempotent)
        0.000 s retry: policy 0 takes Provider.Call.Http.Unavailable and waits PT1S: its schedule
                  policy 0: *, 5 attempts, waits PT1S
        1.000 s all: attempt 2
        1.000 s   GET / to app (app:80), on the connection from before
                  answers --respond #1: 503*2
        1.000 s   Provider.Call.Http.Unavailable, retryable
                  all: attempt 2 of 5: upstream app answered 503 (retryable: GET is idempotent)
        1.000 s retry: policy 0 takes Provider.Call.Http.Unavailable and waits PT1S: its schedule
                  policy 0: *, 5 attempts, waits PT1S
        2.000 s all: attempt 3
        2.000 s   GET / to app (app:80), on the connection from before
                  answers --respond #2: reset@500ms
        2.500 s   GET / to app (app:80), once more: the connection from before was found closed (no new attempt)
                  answers --respond #3: 200@1.5s
        4.000 s   200, a success after PT2S

    Result: success, {"headers":{"content-length":"0"},"status":200}
    The client gets 200 after PT4S:
      content-length: 0
    "##);
    let twice = ["200*2*3", "200@1s@2s", "200@1s,after=2s", "200*x", "200@2s..1s", "200*10001"];
    for wrong in twice {
        assert!(response::read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_script_of_the_page_is_one() {
    let page = include_str!("../../../../docs/explain.md");
    let block = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let read = script::of_text("s.yaml", block, &["billing"]).unwrap();
    let upstreams = read.iter().map(|one| one.response.planned.upstream.as_deref());
    assert_eq!(
        upstreams.collect::<Vec<_>>(),
        [Some("billing"), Some("billing"), Some("billing"), None]
    );
}
