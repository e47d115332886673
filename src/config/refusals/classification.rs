//! `classify` rules.

use super::of_route;

#[test]
fn statuses() {
    let keys = r#"classify: [{ status: [99, 6xx, 402.5, "402"], code: A }]"#;
    insta::assert_snapshot!(of_route(keys), @r#"
    error[wrong-type]: `status` is the number 99; wanted: a status from 100 to 599, or a class such as `5xx`
     --> c.yaml:6:25
      |
    6 |   classify: [{ status: [99, 6xx, 402.5, "402"], code: A }]
      |                         ^^

    error[wrong-type]: `status` is the string `6xx`; wanted: a status from 100 to 599, or a class such as `5xx`
     --> c.yaml:6:29
      |
    6 |   classify: [{ status: [99, 6xx, 402.5, "402"], code: A }]
      |                             ^^^

    error[wrong-type]: `status` is the number 402.5; wanted: a status from 100 to 599, or a class such as `5xx`
     --> c.yaml:6:34
      |
    6 |   classify: [{ status: [99, 6xx, 402.5, "402"], code: A }]
      |                                  ^^^^^

    error[wrong-type]: `status` is the string `402`; wanted: a status from 100 to 599, or a class such as `5xx`
     --> c.yaml:6:41
      |
    6 |   classify: [{ status: [99, 6xx, 402.5, "402"], code: A }]
      |                                         ^^^^^
    "#);
}

#[test]
fn no_verdict_two_verdicts() {
    let keys =
        "classify: [{ status: [402] }, { status: [402], code: A, success: true }, { code: A }]";
    insta::assert_snapshot!(of_route(keys), @r"
    error[missing-key]: the rule does not say what the response is: give `code` or `success: true`
     --> c.yaml:6:14
      |
    6 |   classify: [{ status: [402] }, { status: [402], code: A, success: true }, { code: A }]
      |              ^^^^^^^^^^^^^^^^^

    error[conflicting-keys]: a response cannot be both: give `code` or `success: true`, not both
     --> c.yaml:6:33
      |
    6 |   classify: [{ status: [402] }, { status: [402], code: A, success: true }, { code: A }]
      |                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[missing-key]: the rule matches every response; give it `status`, `headers` or `when`
     --> c.yaml:6:76
      |
    6 |   classify: [{ status: [402] }, { status: [402], code: A, success: true }, { code: A }]
      |                                                                            ^^^^^^^^^^^
    ");
}

#[test]
fn codes() {
    let keys = "classify:\n\
         - { status: [402], code: \"A.*\" }\n\
         - { status: [402], code: System.Own }\n\
         - { status: [404], success: true, retryable: true }\n\
         - { status: [405], code: A, retryable: yes }";
    insta::assert_snapshot!(of_route(keys), @r#"
    error[bad-code]: `code`: `A.*` is not a code; write dotted words, such as `Provider.Call.Payments.CardDeclined`
     --> c.yaml:7:28
      |
    7 |   - { status: [402], code: "A.*" }
      |                            ^^^^^

    error[bad-code]: `code`: `System.Own` is reserved: codes under `System.` are the engine's own
     --> c.yaml:8:28
      |
    8 |   - { status: [402], code: System.Own }
      |                            ^^^^^^^^^^

    error[unknown-key]: `retryable` beside `success`: only a failure can be retried
     --> c.yaml:9:48
      |
    9 |   - { status: [404], success: true, retryable: true }
      |                                                ^^^^

    error[wrong-type]: `retryable` is the string `yes`, not a boolean
      --> c.yaml:10:42
       |
    10 |   - { status: [405], code: A, retryable: yes }
       |                                          ^^^
      = help: in YAML 1.2 only `true` and `false` are; write `true`
    "#);
}

#[test]
fn expressions() {
    let keys = "classify:\n\
         - { when: \"response.status == 402\", code: A }\n\
         - { when: \"{{ response.status === 402 }}\", code: A }\n\
         - { when: \"{{ request.status }}\", code: A }";
    insta::assert_snapshot!(of_route(keys), @r#"
    error[not-an-expression]: `when` is the string `response.status == 402`, which is no expression
     --> c.yaml:7:13
      |
    7 |   - { when: "response.status == 402", code: A }
      |             ^^^^^^^^^^^^^^^^^^^^^^^^
      = help: write it between `{{` and `}}`

    error[bad-expression]: `=` is no operator: `==` compares
     --> c.yaml:8:35
      |
    8 |   - { when: "{{ response.status === 402 }}", code: A }
      |                                   ^

    error[bad-expression]: `request` is unknown; in scope here: `response`
     --> c.yaml:9:17
      |
    9 |   - { when: "{{ request.status }}", code: A }
      |                 ^
    "#);
}
