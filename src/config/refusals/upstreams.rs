//! The protocols of upstreams.

use super::rendered;

#[test]
fn protocols() {
    let text = "listeners: [{ address: 127.0.0.1:1 }]\n\
         upstreams: { u: { endpoints: [http://a], protocol: htp2, pingInterval: -PT1S } }\n\
         routes: [{ name: r, upstream: u }]\n";
    insta::assert_snapshot!(rendered(text), @r"
    error[unknown-word]: `protocol` is `htp2`; wanted: http1, http2
     --> c.yaml:2:52
      |
    2 | upstreams: { u: { endpoints: [http://a], protocol: htp2, pingInterval: -PT1S } }
      |                                                    ^^^^
      = help: did you mean `http2`?

    error[bad-duration]: `pingInterval`: `-PT1S` is negative; a duration here is zero or more
     --> c.yaml:2:72
      |
    2 | upstreams: { u: { endpoints: [http://a], protocol: htp2, pingInterval: -PT1S } }
      |                                                                        ^^^^^
    ");
}
