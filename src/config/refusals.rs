//! What bad files are told: the whole rendered text, as its author reads it.

use super::tests::World;

/// The rendered diagnostics of `text` as `c.yaml`.
fn told(text: &str) -> String {
    let mut world = World::default();
    world.files.insert("c.yaml", text);
    world.files.insert("bad.json", "{ \"entrypoint\": }");
    world.variables.insert("EXPRESSION", "{{ vars.secret }}");
    match world.load("c.yaml") {
        Ok(loaded) => panic!("accepted:\n{text}\n{:?}", loaded.settings),
        Err(refused) => refused.to_string(),
    }
}

#[test]
fn files_that_are_no_configuration() {
    // An empty file.
    let text = "";
    insta::assert_snapshot!(told(text), @r"
    error[empty-document]: the file is empty; a YAML value was wanted
     --> c.yaml:1:1
      |
    1 | 
      | ^
    ");
    // Only a comment.
    let text = "# nothing\n";
    insta::assert_snapshot!(told(text), @r"
    error[empty-document]: the file is empty; a YAML value was wanted
     --> c.yaml:1:1
      |
    1 | # nothing
      | ^
    ");
    // A list.
    let text = "[]\n";
    insta::assert_snapshot!(told(text), @r"
    error[wrong-type]: the file holds one value of type array; wanted: an object with `listeners`, `upstreams` and `routes`
     --> c.yaml:1:1
      |
    1 | []
      | ^^
    ");
    // Half a file.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: \"bil";
    insta::assert_snapshot!(told(text), @r#"
    error[invalid-yaml]: not YAML: unclosed quote
     --> c.yaml:5:13
      |
    5 |   upstream: "bil
      |             ^
    "#);
    // Unknown and missing keys.
    let text = "listners: []\n\
         routes: []\n";
    insta::assert_snapshot!(told(text), @r"
    error[unknown-key]: `listners` is not a key of the configuration
     --> c.yaml:1:1
      |
    1 | listners: []
      | ^^^^^^^^
      = help: did you mean `listeners`?

    error[missing-key]: the configuration needs `listeners`: Where clients connect. At least one.
     --> c.yaml:1:1
      |
    1 | listners: []
      | ^^^^^^^^^^^^

    error[empty-list]: `routes` is empty; at least one is wanted
     --> c.yaml:2:9
      |
    2 | routes: []
      |         ^^
    ");
    // A duplicate key.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes: []\n\
         routes: []\n";
    insta::assert_snapshot!(told(text), @r"
    error[duplicate-key]: the key `routes` is written twice in one object
     --> c.yaml:4:1
      |
    4 | routes: []
      | ^^^^^^
     ::: c.yaml:3:1
      |
    3 | routes: []
      | ^^^^^^ first written here
      = help: remove one of the two
    ");
    // YAML 1.1's `on`.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes: [{ name: r, upstream: billing }]\n\
         on: 1\n";
    insta::assert_snapshot!(told(text), @r"
    error[unknown-key]: `on` is not a key of the configuration
     --> c.yaml:4:1
      |
    4 | on: 1
      | ^^
      = help: the configuration has the keys `environment`, `listeners`, `admin`, `upstreams`, `stacks`, `middleware`, `routes`, `limits`, `shutdown`
    ");
    // Null for a list.
    let text = "listeners:\n\
         routes: 1\n";
    insta::assert_snapshot!(told(text), @r"
    error[wrong-type]: `listeners` is null; wanted: a list
     --> c.yaml:1:10
      |
    1 | listeners:
      |          ^

    error[wrong-type]: `routes` is the number 1; wanted: a list
     --> c.yaml:2:9
      |
    2 | routes: 1
      |         ^
    ");
}

#[test]
fn scalars() {
    // Addresses.
    let text = "listeners: [{ address: \"localhost:80\" }, { address: 8080 }, {}]\n\
         routes: [{ name: r, call: {} }]\n";
    insta::assert_snapshot!(told(text), @r#"
    error[bad-address]: `address`: `localhost:80` is not an address with a port; write `127.0.0.1:80`
     --> c.yaml:1:24
      |
    1 | listeners: [{ address: "localhost:80" }, { address: 8080 }, {}]
      |                        ^^^^^^^^^^^^^^

    error[wrong-type]: `address` is the number 8080; wanted: a string
     --> c.yaml:1:53
      |
    1 | listeners: [{ address: "localhost:80" }, { address: 8080 }, {}]
      |                                                     ^^^^

    error[missing-key]: a listener needs `address`: An address and a port; port 0 lets the system choose.
     --> c.yaml:1:61
      |
    1 | listeners: [{ address: "localhost:80" }, { address: 8080 }, {}]
      |                                                             ^^
    "#);
    // TLS on a listener.
    let text = "listeners: [{ address: 127.0.0.1:1, tls: {} }]\n\
         routes: [{ name: r, call: {} }]\n";
    insta::assert_snapshot!(told(text), @r"
    error[not-yet]: TLS on a listener is not there yet
     --> c.yaml:1:37
      |
    1 | listeners: [{ address: 127.0.0.1:1, tls: {} }]
      |                                     ^^^
      = help: leave `tls` out, and terminate TLS before the proxy
    ");
    // One address twice.
    let text = "listeners: [{ address: 127.0.0.1:1 }, { address: 127.0.0.1:1 }]\n\
         routes: [{ name: r, call: {} }]\n";
    insta::assert_snapshot!(told(text), @r"
    error[duplicate-address]: two listeners have the address 127.0.0.1:1
     --> c.yaml:1:39
      |
    1 | listeners: [{ address: 127.0.0.1:1 }, { address: 127.0.0.1:1 }]
      |                                       ^^^^^^^^^^^^^^^^^^^^^^^^
     ::: c.yaml:1:13
      |
    1 | listeners: [{ address: 127.0.0.1:1 }, { address: 127.0.0.1:1 }]
      |             ^^^^^^^^^^^^^^^^^^^^^^^^ the first
    ");
    // URLs.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams:\n\
         \x20 a: { endpoints: [\"https://a\", \"a:80\", \"http://a/b\"] }\n\
         \x20 b: { endpoints: [] }\n\
         \x20 c: {}\n\
         routes: [{ name: r, upstream: a }]\n";
    insta::assert_snapshot!(told(text), @r#"
    error[bad-url]: `endpoints`: `https://a`: TLS to upstreams is not there yet; wanted: `http://host:port`
     --> c.yaml:3:20
      |
    3 |   a: { endpoints: ["https://a", "a:80", "http://a/b"] }
      |                    ^^^^^^^^^^^

    error[bad-url]: `endpoints`: `a:80` is not a URL; write for example `http://127.0.0.1:3000`
     --> c.yaml:3:33
      |
    3 |   a: { endpoints: ["https://a", "a:80", "http://a/b"] }
      |                                 ^^^^^^

    error[bad-url]: `endpoints`: `http://a/b` names a path; an endpoint is a host and a port, and a route's call has the path; write for example `http://127.0.0.1:3000`
     --> c.yaml:3:41
      |
    3 |   a: { endpoints: ["https://a", "a:80", "http://a/b"] }
      |                                         ^^^^^^^^^^^^

    error[empty-list]: `endpoints` is empty; at least one URL is wanted
     --> c.yaml:4:19
      |
    4 |   b: { endpoints: [] }
      |                   ^^

    error[missing-key]: an upstream needs `endpoints`: Where it answers: `http://host:port`. At least one.
     --> c.yaml:5:6
      |
    5 |   c: {}
      |      ^^
    "#);
    // Durations.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams:\n\
         \x20 a: { endpoints: [http://a], connectTimeout: 5, idleTimeout: 30s, keepAlive: -PT1S, retryAfterMax: P999D }\n\
         routes: [{ name: r, upstream: a }]\n";
    insta::assert_snapshot!(told(text), @r"
    error[wrong-type]: `connectTimeout` is the number 5; wanted: an ISO 8601 duration with its unit, such as `PT1.5S`
     --> c.yaml:3:47
      |
    3 |   a: { endpoints: [http://a], connectTimeout: 5, idleTimeout: 30s, keepAlive: -PT1S, retryAfterMax: P999D }
      |                                               ^

    error[bad-duration]: `idleTimeout`: `30s` is not an ISO 8601 duration; write for example `PT0.25S`, `PT30S` or `PT5M`
     --> c.yaml:3:63
      |
    3 |   a: { endpoints: [http://a], connectTimeout: 5, idleTimeout: 30s, keepAlive: -PT1S, retryAfterMax: P999D }
      |                                                               ^^^

    error[bad-duration]: `keepAlive`: `-PT1S` is negative; a duration here is zero or more
     --> c.yaml:3:79
      |
    3 |   a: { endpoints: [http://a], connectTimeout: 5, idleTimeout: 30s, keepAlive: -PT1S, retryAfterMax: P999D }
      |                                                                               ^^^^^

    error[bad-duration]: `retryAfterMax`: `P999D` is out of range; wanted: from `PT0S` to `P365D`
     --> c.yaml:3:101
      |
    3 |   a: { endpoints: [http://a], connectTimeout: 5, idleTimeout: 30s, keepAlive: -PT1S, retryAfterMax: P999D }
      |                                                                                                     ^^^^^
    ");
    // A bound of no time.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { a: { endpoints: [http://a], connectTimeout: PT0S } }\n\
         routes: [{ name: r, upstream: a }]\n";
    insta::assert_snapshot!(told(text), @r"
    error[bad-duration]: `connectTimeout`: `PT0S` is out of range; wanted: from `PT0.001S` to `P365D`
     --> c.yaml:2:58
      |
    2 | upstreams: { a: { endpoints: [http://a], connectTimeout: PT0S } }
      |                                                          ^^^^
    ");
    // Sizes.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 buffer: { request: 64, response: 64KB, replay: 2GiB }\n";
    insta::assert_snapshot!(told(text), @r"
    error[wrong-type]: `request` is the number 64; wanted: a size with its unit, such as `64KiB` or `64B`
     --> c.yaml:6:22
      |
    6 |   buffer: { request: 64, response: 64KB, replay: 2GiB }
      |                      ^^

    error[bad-size]: `response`: `64KB` has the unit `KB`; wanted: B, KiB, MiB or GiB
     --> c.yaml:6:36
      |
    6 |   buffer: { request: 64, response: 64KB, replay: 2GiB }
      |                                    ^^^^

    error[bad-size]: `replay`: `2GiB` is out of range; wanted: from `0B` to `1GiB`
     --> c.yaml:6:50
      |
    6 |   buffer: { request: 64, response: 64KB, replay: 2GiB }
      |                                                  ^^^^
    ");
    // Counts.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes: [{ name: r, upstream: billing }]\n\
         limits: { headers: 0, connections: 1.5, workers: many }\n";
    insta::assert_snapshot!(told(text), @r"
    error[out-of-range]: `headers` is 0; wanted: a whole number from 1 to 1000
     --> c.yaml:4:20
      |
    4 | limits: { headers: 0, connections: 1.5, workers: many }
      |                    ^

    error[out-of-range]: `connections` is 1.5; wanted: a whole number from 1 to 1000000
     --> c.yaml:4:36
      |
    4 | limits: { headers: 0, connections: 1.5, workers: many }
      |                                    ^^^

    error[wrong-type]: `workers` is the string `many`; wanted: a whole number
     --> c.yaml:4:50
      |
    4 | limits: { headers: 0, connections: 1.5, workers: many }
      |                                                  ^^^^
    ");
    // A boolean of YAML 1.1.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 exposeFailures: no\n";
    insta::assert_snapshot!(told(text), @r"
    error[wrong-type]: `exposeFailures` is the string `no`, not a boolean
     --> c.yaml:6:19
      |
    6 |   exposeFailures: no
      |                   ^^
      = help: in YAML 1.2 only `true` and `false` are; write `false`
    ");
    // An environment that is no string.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         environment: 7\n\
         routes: [{ name: r, upstream: billing }]\n";
    insta::assert_snapshot!(told(text), @r"
    error[wrong-type]: `environment` is the number 7; wanted: a string
     --> c.yaml:3:14
      |
    3 | environment: 7
      |              ^
    ");
}

#[test]
fn variables() {
    // Unset.
    let text = "listeners: [{ address: \"${LISTEN}\" }]\n\
         routes: [{ name: r, call: {} }]\n";
    insta::assert_snapshot!(told(text), @r#"
    error[unset-variable]: the environment variable `LISTEN` is not set
     --> c.yaml:1:25
      |
    1 | listeners: [{ address: "${LISTEN}" }]
      |                         ^
      = help: set it, or give a default: `${LISTEN:-default}`
    "#);
    // Not closed.
    let text = "listeners: [{ address: \"127.0.0.1:${PORT\" }]\n\
         routes: [{ name: r, call: {} }]\n";
    insta::assert_snapshot!(told(text), @r#"
    error[bad-variable]: `${` without its `}`
     --> c.yaml:1:35
      |
    1 | listeners: [{ address: "127.0.0.1:${PORT" }]
      |                                   ^
      = help: write `${NAME}`, or `$${` for the text `${`
    "#);
    // No name.
    let text = "listeners: [{ address: \"127.0.0.1:${a-b:-1}\" }]\n\
         routes: [{ name: r, call: {} }]\n";
    insta::assert_snapshot!(told(text), @r#"
    error[bad-variable]: `a-b` is not the name of a variable
     --> c.yaml:1:35
      |
    1 | listeners: [{ address: "127.0.0.1:${a-b:-1}" }]
      |                                   ^
      = help: write `${NAME}` or `${NAME:-default}`; NAME has letters, digits and `_`
    "#);
    // One that makes an expression.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 output: \"${EXPRESSION}\"\n";
    insta::assert_snapshot!(told(text), @r#"
    error[variable-makes-expression]: the variables in `${EXPRESSION}` make an expression of it
     --> c.yaml:6:11
      |
    6 |   output: "${EXPRESSION}"
      |           ^^^^^^^^^^^^^^^
      = help: write the expression itself; a variable gives text
    "#);
}

#[test]
fn targets() {
    // None.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 match: {}\n";
    insta::assert_snapshot!(told(text), @r"
    error[route-target]: the route has no target
     --> c.yaml:4:9
      |
    4 | - name: r
      |         ^
      = help: give it exactly one of `upstream`, `call` and `flow`
    ");
    // Two.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 call: { provider: x }\n";
    insta::assert_snapshot!(told(text), @r"
    error[route-target]: the route has more than one target
     --> c.yaml:4:9
      |
    4 | - name: r
      |         ^
     ::: c.yaml:5:3
      |
    5 |   upstream: billing
      |   ^^^^^^^^ a target
     ::: c.yaml:6:3
      |
    6 |   call: { provider: x }
      |   ^^^^ a target
      = help: keep one of `upstream`, `call` and `flow`
    ");
    // An unknown upstream.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: biling\n";
    insta::assert_snapshot!(told(text), @r"
    error[unknown-upstream]: no upstream is called `biling`
     --> c.yaml:5:13
      |
    5 |   upstream: biling
      |             ^^^^^^
      = help: did you mean `billing`?
    ");
    // An unknown upstream like no other.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: zzz\n";
    insta::assert_snapshot!(told(text), @r"
    error[unknown-upstream]: no upstream is called `zzz`
     --> c.yaml:5:13
      |
    5 |   upstream: zzz
      |             ^^^
      = help: name it under `upstreams:` at the top of the file
    ");
    // A Flow with the Step's keys.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 flow: { entrypoint: a, steps: {} }\n\
         \x20 catch: []\n";
    insta::assert_snapshot!(told(text), @r"
    error[conflicting-keys]: `catch` beside `flow`: the Flow itself says it
     --> c.yaml:6:3
      |
    6 |   catch: []
      |   ^^^^^
     ::: c.yaml:5:3
      |
    5 |   flow: { entrypoint: a, steps: {} }
      |   ^^^^ the route's Flow
    ");
    // A Flow's file that is not there.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 flow: flows/none.json\n";
    insta::assert_snapshot!(told(text), @r"
    error[unreadable]: the Flow flows/none.json cannot be read: no such file
     --> c.yaml:5:9
      |
    5 |   flow: flows/none.json
      |         ^^^^^^^^^^^^^^^
      = help: a Flow's file is named relative to the configuration's folder
    ");
    // A Flow's file that is ill-formed.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 flow: bad.json\n";
    insta::assert_snapshot!(told(text), @r#"
    error[invalid-json]: not JSON: expected value
     --> bad.json:1:17
      |
    1 | { "entrypoint": }
      |                 ^
    "#);
    // A Flow that is a number.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 flow: 1\n";
    insta::assert_snapshot!(told(text), @r"
    error[wrong-type]: `flow` is the number 1; wanted: a file beside this one, or a Flow object
     --> c.yaml:5:9
      |
    5 |   flow: 1
      |         ^
    ");
    // A Step with the route's name.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 steps: { r: { action: Return } }\n";
    insta::assert_snapshot!(told(text), @r"
    error[duplicate-name]: the Step `r` has the route's name, which is that of its own Call Step
     --> c.yaml:6:12
      |
    6 |   steps: { r: { action: Return } }
      |            ^
      = help: give the Step another name
    ");
    // No name.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes: [{ upstream: billing }, { name: \"a b\", upstream: billing }, { name: \"\", upstream: billing }]\n";
    insta::assert_snapshot!(told(text), @r#"
    error[missing-key]: a route needs `name`: Its name: the label of its metrics, and of its Call Step.
     --> c.yaml:3:10
      |
    3 | routes: [{ upstream: billing }, { name: "a b", upstream: billing }, { name: "", upstream: billing }]
      |          ^^^^^^^^^^^^^^^^^^^^^

    error[bad-name]: `a b` is not a name: it is empty or holds white space
     --> c.yaml:3:41
      |
    3 | routes: [{ upstream: billing }, { name: "a b", upstream: billing }, { name: "", upstream: billing }]
      |                                         ^^^^^

    error[bad-name]: `` is not a name: it is empty or holds white space
     --> c.yaml:3:77
      |
    3 | routes: [{ upstream: billing }, { name: "a b", upstream: billing }, { name: "", upstream: billing }]
      |                                                                             ^^

    warning[unreachable-route]: the route `` is never reached: `a b` takes its requests before it
     --> c.yaml:3:77
      |
    3 | routes: [{ upstream: billing }, { name: "a b", upstream: billing }, { name: "", upstream: billing }]
      |                                                                             ^^
     ::: c.yaml:3:41
      |
    3 | routes: [{ upstream: billing }, { name: "a b", upstream: billing }, { name: "", upstream: billing }]
      |                                         ^^^^^ takes them all
      = help: put the narrower route first
    "#);
    // One name twice.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes: [{ name: r, match: { path: /a }, upstream: billing }, { name: r, upstream: billing }]\n";
    insta::assert_snapshot!(told(text), @r"
    error[duplicate-name]: two routes are called `r`; names are unique
     --> c.yaml:3:71
      |
    3 | routes: [{ name: r, match: { path: /a }, upstream: billing }, { name: r, upstream: billing }]
      |                                                                       ^
     ::: c.yaml:3:18
      |
    3 | routes: [{ name: r, match: { path: /a }, upstream: billing }, { name: r, upstream: billing }]
      |                  ^ the first
    ");
    // A route that is never reached.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes: [{ name: a, upstream: billing }, { name: b, match: { path: /b }, upstream: billing }]\n\
         x: 1\n";
    insta::assert_snapshot!(told(text), @r"
    warning[unreachable-route]: the route `b` is never reached: `a` takes its requests before it
     --> c.yaml:3:50
      |
    3 | routes: [{ name: a, upstream: billing }, { name: b, match: { path: /b }, upstream: billing }]
      |                                                  ^
     ::: c.yaml:3:18
      |
    3 | routes: [{ name: a, upstream: billing }, { name: b, match: { path: /b }, upstream: billing }]
      |                  ^ takes them all
      = help: put the narrower route first

    error[unknown-key]: `x` is not a key of the configuration
     --> c.yaml:4:1
      |
    4 | x: 1
      | ^
      = help: the configuration has the keys `environment`, `listeners`, `admin`, `upstreams`, `stacks`, `middleware`, `routes`, `limits`, `shutdown`
    ");
    // Arguments that no parameter takes.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 with: { n: 1 }\n";
    insta::assert_snapshot!(told(text), @r"
    error[bad-arguments]: the arguments do not fit the Flow's parameters: unexpected member `n`: no arguments are taken here
     --> c.yaml:6:9
      |
    6 |   with: { n: 1 }
      |         ^^^^^^^^
      = help: declare them under `parameters`
    ");
    // Arguments of the wrong type.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 parameters: { type: object, properties: { n: { type: number } } }\n\
         \x20 with: { n: \"1\" }\n";
    insta::assert_snapshot!(told(text), @r#"
    error[bad-arguments]: the arguments do not fit the Flow's parameters: at /n: "1" is not of type "number"
     --> c.yaml:7:9
      |
    7 |   with: { n: "1" }
      |         ^^^^^^^^^^
     ::: c.yaml:6:15
      |
    6 |   parameters: { type: object, properties: { n: { type: number } } }
      |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the parameters
    "#);
    // Arguments that are expressions.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 parameters: { type: object, properties: { n: {} } }\n\
         \x20 with: { n: \"{{ 1 }}\" }\n";
    insta::assert_snapshot!(told(text), @r#"
    error[not-a-literal]: `{{ 1 }}` is an expression; a route's arguments are literals
     --> c.yaml:7:14
      |
    7 |   with: { n: "{{ 1 }}" }
      |              ^^^^^^^^^
    "#);
}

#[test]
fn matches() {
    // Methods.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 match: { methods: [post, \"GE T\"] }\n";
    insta::assert_snapshot!(told(text), @r#"
    error[bad-method]: `post` is never a request's method: methods are case-sensitive
     --> c.yaml:6:22
      |
    6 |   match: { methods: [post, "GE T"] }
      |                      ^^^^
      = help: write `POST`

    error[bad-method]: `GE T` is not a method
     --> c.yaml:6:28
      |
    6 |   match: { methods: [post, "GE T"] }
      |                            ^^^^^^
    "#);
    // Methods as a string.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 match: { methods: POST }\n";
    insta::assert_snapshot!(told(text), @r"
    error[wrong-type]: `methods` is the string `POST`; wanted: a list
     --> c.yaml:6:21
      |
    6 |   match: { methods: POST }
      |                     ^^^^
    ");
    // Paths.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 match: { path: a, pathPrefix: \"/a?b\" }\n";
    insta::assert_snapshot!(told(text), @r#"
    error[bad-path]: `path`: `a` does not start with `/`
     --> c.yaml:6:18
      |
    6 |   match: { path: a, pathPrefix: "/a?b" }
      |                  ^

    error[bad-path]: `pathPrefix`: `/a?b` is more than a path; parameters are matched by `query`
     --> c.yaml:6:33
      |
    6 |   match: { path: a, pathPrefix: "/a?b" }
      |                                 ^^^^^^
    "#);
    // Hosts.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 match: { hosts: [\"http://a\", \"a:80\", \"*\"] }\n";
    insta::assert_snapshot!(told(text), @r#"
    error[bad-host]: `hosts`: `http://a` is not a host; write a name without scheme and port, such as `api.example.com` or `*.example.com`
     --> c.yaml:6:20
      |
    6 |   match: { hosts: ["http://a", "a:80", "*"] }
      |                    ^^^^^^^^^^

    error[bad-host]: `hosts`: `a:80` is not a host; write a name without scheme and port, such as `api.example.com` or `*.example.com`
     --> c.yaml:6:32
      |
    6 |   match: { hosts: ["http://a", "a:80", "*"] }
      |                                ^^^^^^

    error[bad-host]: `hosts`: `*` is not a host; write a name without scheme and port, such as `api.example.com` or `*.example.com`
     --> c.yaml:6:40
      |
    6 |   match: { hosts: ["http://a", "a:80", "*"] }
      |                                        ^^^
    "#);
    // Headers and query.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 match: { headers: { \"a b\": x, c: 1 }, query: { d: true } }\n";
    insta::assert_snapshot!(told(text), @r#"
    error[bad-header]: `a b` is not the name of a header field
     --> c.yaml:6:23
      |
    6 |   match: { headers: { "a b": x, c: 1 }, query: { d: true } }
      |                       ^^^^^

    error[wrong-type]: `c` is the number 1; wanted: a string, or null for any value
     --> c.yaml:6:36
      |
    6 |   match: { headers: { "a b": x, c: 1 }, query: { d: true } }
      |                                    ^

    error[wrong-type]: `d` is the boolean `true`; wanted: a string, or null for any value
     --> c.yaml:6:53
      |
    6 |   match: { headers: { "a b": x, c: 1 }, query: { d: true } }
      |                                                     ^^^^
    "#);
}

#[test]
fn classification() {
    // Statuses.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 classify: [{ status: [99, 6xx, 402.5, \"402\"], code: A }]\n";
    insta::assert_snapshot!(told(text), @r#"
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
    // No verdict, two verdicts.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 classify: [{ status: [402] }, { status: [402], code: A, success: true }, { code: A }]\n";
    insta::assert_snapshot!(told(text), @r"
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
    // Codes.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 classify:\n\
         \x20 - { status: [402], code: \"A.*\" }\n\
         \x20 - { status: [402], code: System.Own }\n\
         \x20 - { status: [404], success: true, retryable: true }\n\
         \x20 - { status: [404], code: A, retryable: yes }\n";
    insta::assert_snapshot!(told(text), @r#"
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
    10 |   - { status: [404], code: A, retryable: yes }
       |                                          ^^^
      = help: in YAML 1.2 only `true` and `false` are; write `true`
    "#);
    // Expressions.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         routes:\n\
         - name: r\n\
         \x20 upstream: billing\n\
         \x20 classify:\n\
         \x20 - { when: \"response.status == 402\", code: A }\n\
         \x20 - { when: \"{{ response.status === 402 }}\", code: A }\n\
         \x20 - { when: \"{{ request.status }}\", code: A }\n";
    insta::assert_snapshot!(told(text), @r#"
    error[not-an-expression]: `when` is the string `response.status == 402`, which is no expression
     --> c.yaml:7:13
      |
    7 |   - { when: "response.status == 402", code: A }
      |             ^^^^^^^^^^^^^^^^^^^^^^^^
      = help: write it between `{{` and `}}`

    error[bad-expression]: Syntax error: token recognition error at: '= '
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

#[test]
fn stacks() {
    // Unknown.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         stacks: { patient: [] }\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         middleware: [{ stack: patent }]\n\
         routes: [{ name: r, upstream: billing, middleware: [{ stack: patient }, { stack: 1 }] }]\n";
    insta::assert_snapshot!(told(text), @r"
    error[unknown-stack]: no stack is called `patent`
     --> c.yaml:4:23
      |
    4 | middleware: [{ stack: patent }]
      |                       ^^^^^^
      = help: did you mean `patient`?

    error[wrong-type]: `stack` is the number 1; wanted: a string
     --> c.yaml:5:82
      |
    5 | routes: [{ name: r, upstream: billing, middleware: [{ stack: patient }, { stack: 1 }] }]
      |                                                                                  ^
    ");
    // In a circle.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         stacks:\n\
         \x20 a: [{ stack: b }]\n\
         \x20 b: [{ stack: a }]\n\
         \x20 c: [{ stack: c }]\n\
         routes: [{ name: r, upstream: billing, middleware: [{ stack: a }, { stack: c }] }]\n";
    insta::assert_snapshot!(told(text), @r"
    error[stack-cycle]: the stack `a` holds itself: `a` → `b` → `a`
     --> c.yaml:5:16
      |
    5 |   b: [{ stack: a }]
      |                ^

    error[stack-cycle]: the stack `c` holds itself: `c` → `c`
     --> c.yaml:6:16
      |
    6 |   c: [{ stack: c }]
      |                ^
    ");
    // That grow without bound.
    let lists: String = (0..24)
        .map(|n| {
            format!(
                "  s{n}: [{{ stack: s{} }}, {{ stack: s{} }}]\n",
                n + 1,
                n + 1
            )
        })
        .collect();
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\nstacks:\n{lists}  s24: [{{ provider: p }}]\nroutes: [{{ name: r, call: {{}}, middleware: [{{ stack: s0 }}] }}]\n"
    );
    insta::assert_snapshot!(told(&text), @r"
    error[stacks-too-large]: all that stacks stand for holds more than 100000 values
      --> c.yaml:17:34
       |
    17 |   s14: [{ stack: s15 }, { stack: s15 }]
       |                                  ^^^
      = help: let fewer stacks name others
    ");
    // With more beside it.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         stacks: { a: [], b: {} }\n\
         routes: [{ name: r, upstream: billing, middleware: [{ stack: a, onEntry: {} }] }]\n";
    insta::assert_snapshot!(told(text), @r"
    warning[unused-stack]: no list names the stack `b`
     --> c.yaml:3:18
      |
    3 | stacks: { a: [], b: {} }
      |                  ^

    error[wrong-type]: `b` is an object; wanted: a list of middleware entries
     --> c.yaml:3:21
      |
    3 | stacks: { a: [], b: {} }
      |                     ^^

    error[unknown-key]: `onEntry` beside `stack`: the item stands for the whole list
     --> c.yaml:4:65
      |
    4 | routes: [{ name: r, upstream: billing, middleware: [{ stack: a, onEntry: {} }] }]
      |                                                                 ^^^^^^^
    ");
    // Outside of a list.
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         stacks: { a: [] }\n\
         routes: [{ name: r, upstream: billing, middleware: { stack: a } }]\n";
    insta::assert_snapshot!(told(text), @r"
    warning[unused-stack]: no list names the stack `a`
     --> c.yaml:3:11
      |
    3 | stacks: { a: [] }
      |           ^

    error[wrong-type]: a stack is named inside a list
     --> c.yaml:4:52
      |
    4 | routes: [{ name: r, upstream: billing, middleware: { stack: a } }]
      |                                                    ^^^^^^^^^^^^
      = help: write `[{ stack: NAME }]`
    ");
}
