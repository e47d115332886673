use super::*;

#[test]
#[expect(clippy::too_many_lines, reason = "a snapshot is as long as what it shows")]
fn every_mistake_in_the_arguments_is_pointed_at() {
    let options = [
        ("--request", "post /gated"),
        ("--header", "a b: c"),
        ("--header", "naïve"),
        ("--header", "content-length: 4"),
        ("--body", "@/nowhere/to/be/found"),
        ("--client-timeout", "5"),
        ("--respond", "703"),
        ("--respond", "reset,x=1"),
        ("--respond", "200,x-ä=1"),
        ("--respond", "200,x-a=1,retry after"),
        ("--respond", "hang,after=PT1S"),
        ("--respond", "200,after=noon"),
        ("--respond", "teapot"),
    ];
    let refused = said(&options.map(|(name, value)| [name, value]).concat());
    insta::assert_snapshot!(refused.unwrap_err(), @r##"
    error[invalid-argument]: `post` is another method than `POST`: case matters
     --> --request:1:1
      |
    1 | post /gated
      | ^

    error[invalid-argument]: `a b` is no name of a header field
     --> --header #1:1:1
      |
    1 | a b: c
      | ^

    error[invalid-argument]: `naïve` is no field; write `name: value`
     --> --header #2:1:1
      |
    1 | naïve
      | ^

    error[invalid-argument]: `content-length` follows from the body and cannot be written
     --> --header #3:1:1
      |
    1 | content-length: 4
      | ^

    error[invalid-argument]: /nowhere/to/be/found cannot be read: No such file or directory (os error 2)
     --> --body:1:2
      |
    1 | @/nowhere/to/be/found
      |  ^

    error[invalid-argument]: `703` is no response: a status from 200 to 599, `reset`, `refused` or `hang`
     --> --respond #1:1:1
      |
    1 | 703
      | ^

    error[invalid-argument]: `reset` is no answer: it has no `x`
     --> --respond #2:1:7
      |
    1 | reset,x=1
      |       ^

    error[invalid-argument]: `x-ä=1` is no `name=value`
     --> --respond #3:1:5
      |
    1 | 200,x-ä=1
      |     ^

    error[invalid-argument]: `hang` never answers: how long it takes has no meaning
     --> --respond #5:1:6
      |
    1 | hang,after=PT1S
      |      ^

    error[invalid-argument]: `noon` is no duration above zero, such as 1.5s, 20ms or PT0.5S
     --> --respond #6:1:11
      |
    1 | 200,after=noon
      |           ^

    error[invalid-argument]: `teapot` is no response: a status from 200 to 599, `reset`, `refused` or `hang`
     --> --respond #7:1:1
      |
    1 | teapot
      | ^

    error[invalid-argument]: `5` is no duration above zero, such as 1.5s, 20ms or PT0.5S
     --> --client-timeout:1:1
      |
    1 | 5
      | ^
    "##);
    insta::assert_snapshot!(said(&["--request", "GET /ä"]).unwrap_err(), @r##"
    error[invalid-argument]: a target holds no 'ä'; percent-encode it
     --> --request:1:6
      |
    1 | GET /ä
      |      ^
    "##);
    insta::assert_snapshot!(said(&["--request", "GET  here"]).unwrap_err(), @r##"
    error[invalid-argument]: `here` is no target: it begins with `/`, such as `/billing/charge`
     --> --request:1:6
      |
    1 | GET  here
      |      ^
    "##);
    insta::assert_snapshot!(said(&["--request", "GET /a#b"]).unwrap_err(), @r##"
    error[invalid-argument]: a fragment is never sent
     --> --request:1:7
      |
    1 | GET /a#b
      |       ^
    "##);
    let refused = said(&["--respond", "200", "--respond", "500,after=PT1S,upstream=flakey"]);
    insta::assert_snapshot!(refused.unwrap_err(), @r##"
    error[invalid-argument]: there is no upstream `flakey`; there is `flaky`
     --> --respond #2:1:25
      |
    1 | 500,after=PT1S,upstream=flakey
      |                         ^
    "##);
}

#[test]
fn a_response_is_read_to_its_end() {
    let read = |text: &str| response::read(text).unwrap().planned;
    let body = |text: &str| match read(text).act {
        crate::proxy::stage::ScriptedAction::Answer { body, .. } => {
            String::from_utf8(body.to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(body(r#"200,body={"a":1,"b=c":2},after=PT2S,upstream=u"#), r#"{"a":1,"b=c":2}"#);
    let wrong = response::read("200,body=a,after=noon").unwrap_err();
    assert_eq!((wrong.offset, wrong.message.contains("`noon`")), (17, true));
    let wrong = response::read("429,503").unwrap_err();
    assert!(wrong.message.ends_with("each response has its own `--respond`"), "{}", wrong.message);
    assert_eq!(body("200,body=a,b=c"), "a,b=c");
    let planned = read("refused,upstream=u,after=PT2S");
    assert_eq!((planned.upstream.as_deref(), planned.after.least.as_secs()), (Some("u"), 2));
}
