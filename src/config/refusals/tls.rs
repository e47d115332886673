//! Certificates and keys that cannot be used.

use crate::config::tests::TestOrigin;
use crate::proxy::tls::testing::{Authority, days};

/// The diagnostics for a listener with this `tls` and an upstream of this kind. The files: `a.pem`,
/// `a.key` and `ca.pem` belong together, `b.key` is another key, `old.pem` has expired, `early.pem` is
/// not valid yet, `none.pem` is empty.
fn rendered_with(listener: &str, upstream: &str, trusts_nobody: bool) -> String {
    let authority = Authority::new();
    let [a, b] = [authority.issue(&["a.test"]), authority.issue(&["b.test"])];
    let old = authority.issue_for(&["a.test"], days(0), days(365));
    let early = authority.issue_for(&["a.test"], days(39_000), days(40_000));
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0{listener} }}]\nupstreams: {{ u: {{ {upstream} }} }}\nroutes: [{{ name: r, upstream: u }}]\n"
    );
    let files = [
        ("etc/c.yaml", text),
        ("etc/a.pem", a.chain()),
        ("etc/a.key", a.key()),
        ("etc/b.key", b.key()),
        ("etc/ca.pem", authority.pem()),
        ("etc/old.pem", old.chain()),
        ("etc/old.key", old.key()),
        ("etc/early.pem", early.chain()),
        ("etc/early.key", early.key()),
        ("etc/none.pem", "nothing\n".to_owned()),
    ];
    let files = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let world = TestOrigin { files, trusts_nobody, ..TestOrigin::default() };
    match world.load("etc/c.yaml") {
        Ok(loaded) => loaded.sources.render(&loaded.warnings),
        Err(refused) => refused.to_string(),
    }
}

fn listener(tls: &str) -> String {
    rendered_with(&format!(", tls: {tls}"), "endpoints: [http://a]", false)
}

fn upstream(keys: &str) -> String {
    rendered_with("", keys, false)
}

#[test]
fn a_listener_s_pair() {
    assert_eq!(listener("{ certificate: a.pem, key: a.key, clientCa: ca.pem }"), "");
    insta::assert_snapshot!(listener("{ certificate: a.pem, key: b.key }"), @r"
    error[bad-key]: `key`: etc/b.key is not the key of the certificate: their public keys differ
     --> etc/c.yaml:1:69
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: { certificate: a.pem, key: b.key } }]
      |                                                                     ^^^^^
    ");
    insta::assert_snapshot!(listener("{ certificate: a.key, key: a.pem, clientCa: none.pem }"), @r"
    error[bad-certificate]: `certificate`: etc/a.key holds no certificate; wanted: PEM, with a part that begins `-----BEGIN CERTIFICATE-----`
     --> etc/c.yaml:1:57
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: { certificate: a.key, key: a.pem, clientCa: none.pem } }]
      |                                                         ^^^^^

    error[bad-key]: `key`: etc/a.pem holds no private key; wanted: PEM, with a part that begins `-----BEGIN PRIVATE KEY-----` (or `EC PRIVATE KEY`, or `RSA PRIVATE KEY`)
     --> etc/c.yaml:1:69
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: { certificate: a.key, key: a.pem, clientCa: none.pem } }]
      |                                                                     ^^^^^

    error[bad-certificate]: `clientCa`: etc/none.pem holds no certificate; wanted: PEM, with a part that begins `-----BEGIN CERTIFICATE-----`
     --> etc/c.yaml:1:86
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: { certificate: a.key, key: a.pem, clientCa: none.pem } }]
      |                                                                                      ^^^^^^^^
    ");
    insta::assert_snapshot!(listener("{ certificate: gone.pem }"), @r"
    error[missing-key]: `tls` of a listener needs `key`: The file of that certificate's private key, as PEM.
     --> etc/c.yaml:1:42
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: { certificate: gone.pem } }]
      |                                          ^^^^^^^^^^^^^^^^^^^^^^^^^

    error[unreadable]: `certificate`: etc/gone.pem cannot be read: no such file
     --> etc/c.yaml:1:57
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: { certificate: gone.pem } }]
      |                                                         ^^^^^^^^
      = help: a file is named relative to the configuration's folder
    ");
    insta::assert_snapshot!(listener("{ certificate: old.pem, key: old.key }"), @r"
    error[bad-certificate]: `certificate`: etc/old.pem holds a certificate that expired at 1971-01-01T00:00:00Z; no peer would take it: renew it
     --> etc/c.yaml:1:57
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: { certificate: old.pem, key: old.key } }]
      |                                                         ^^^^^^^
    ");
    insta::assert_snapshot!(listener("{ certificate: early.pem, key: early.key }"), @r"
    warning[not-valid-yet]: `certificate`: it is valid from 2076-10-11T00:00:00Z on, and not yet
     --> etc/c.yaml:1:57
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: { certificate: early.pem, key: early.key } }]
      |                                                         ^^^^^^^^^
    ");
    insta::assert_snapshot!(listener("true"), @r"
    error[wrong-type]: `tls` is the boolean `true`; wanted: `tls` of a listener, an object
     --> etc/c.yaml:1:42
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: true }]
      |                                          ^^^^
    ");
}

#[test]
fn a_key_that_is_written_out_is_not_shown() {
    let rendered = listener(r#"{ certificate: a.pem, key: "-----BEGIN PRIVATE KEY-----" }"#);
    insta::assert_snapshot!(rendered, @r#"
    error[bad-key]: `key` holds PEM itself; wanted: the path of a file of it
     --> etc/c.yaml:1:69
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: { certificate: a.pem, key: "-----BEGIN PRIVATE KEY-----" } }]
      |                                                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    "#);
}

#[test]
fn an_upstream_s_files() {
    for good in
        ["{ ca: ca.pem }", "{ ca: ca.pem, serverName: a.test, certificate: a.pem, key: a.key }"]
    {
        let keys = format!("endpoints: ['https://127.0.0.1:1', 'https://a'], tls: {good}");
        assert_eq!(upstream(&keys), "", "{good}");
    }
    let with = |tls: &str| upstream(&format!("endpoints: [https://a], tls: {tls}"));
    insta::assert_snapshot!(with("{ ca: ca.pem, certificate: a.pem }"), @r"
    error[missing-key]: `certificate` is there, but no `key`
     --> etc/c.yaml:2:75
      |
    2 | upstreams: { u: { endpoints: [https://a], tls: { ca: ca.pem, certificate: a.pem } } }
      |                                                                           ^^^^^
      = help: a certificate is of use with its key alone
    ");
    insta::assert_snapshot!(with("{ ca: ca.pem, certificate: a.pem, key: b.key }"), @r"
    error[bad-key]: `key`: etc/b.key is not the key of the certificate: their public keys differ
     --> etc/c.yaml:2:87
      |
    2 | upstreams: { u: { endpoints: [https://a], tls: { ca: ca.pem, certificate: a.pem, key: b.key } } }
      |                                                                                       ^^^^^
    ");
    insta::assert_snapshot!(with("{ ca: none.pem, servername: a }"), @r"
    error[bad-certificate]: `ca`: etc/none.pem holds no certificate; wanted: PEM, with a part that begins `-----BEGIN CERTIFICATE-----`
     --> etc/c.yaml:2:54
      |
    2 | upstreams: { u: { endpoints: [https://a], tls: { ca: none.pem, servername: a } } }
      |                                                      ^^^^^^^^

    error[unknown-key]: `servername` is not a key of `tls` of an upstream
     --> etc/c.yaml:2:64
      |
    2 | upstreams: { u: { endpoints: [https://a], tls: { ca: none.pem, servername: a } } }
      |                                                                ^^^^^^^^^^
      = help: did you mean `serverName`?
    ");
    insta::assert_snapshot!(with("{ ca: ca.pem, serverName: 'a:1' }"), @r"
    error[bad-name]: `a:1` is neither a host's name nor an address, as a certificate has them
     --> etc/c.yaml:2:31
      |
    2 | upstreams: { u: { endpoints: [https://a], tls: { ca: ca.pem, serverName: 'a:1' } } }
      |                               ^^^^^^^^^
    ");
}

#[test]
fn an_upstream_s_scheme() {
    insta::assert_snapshot!(upstream("endpoints: [http://a, https://b], tls: { ca: ca.pem }"), @r"
    error[mixed-schemes]: some endpoints are `https://` and some `http://`: what is secret on one way is not on the other
     --> etc/c.yaml:2:31
      |
    2 | upstreams: { u: { endpoints: [http://a, https://b], tls: { ca: ca.pem } } }
      |                               ^^^^^^^^
     ::: etc/c.yaml:2:41
      |
    2 | upstreams: { u: { endpoints: [http://a, https://b], tls: { ca: ca.pem } } }
      |                                         ^^^^^^^^^ the first of the others
    ");
    insta::assert_snapshot!(upstream("endpoints: [http://a], tls: { ca: ca.pem }"), @r"
    error[unused-tls]: `tls` is there, but no endpoint is `https://`
     --> etc/c.yaml:2:42
      |
    2 | upstreams: { u: { endpoints: [http://a], tls: { ca: ca.pem } } }
      |                                          ^^^
      = help: write the endpoints as `https://host:port`
    ");
}

#[test]
fn an_upstream_that_nobody_could_vouch_for() {
    let rendered = rendered_with("", "endpoints: [https://a, https://b]", true);
    insta::assert_snapshot!(rendered, @r"
    error[no-roots]: the system trusts no certificate authority, so no upstream could be believed
     --> etc/c.yaml:2:31
      |
    2 | upstreams: { u: { endpoints: [https://a, https://b] } }
      |                               ^^^^^^^^^
      = help: name a file of them with `tls: { ca: … }`, mount the system's (`/etc/ssl/certs`), or set SSL_CERT_FILE: an image that is built from scratch has none
    ");
}

#[test]
fn two_listeners_that_differ_in_tls_alone() {
    let two = ", tls: { certificate: a.pem, key: a.key } }, { address: 127.0.0.1:0";
    insta::assert_snapshot!(rendered_with(two, "endpoints: [http://a]", false), @r"
    error[duplicate-address]: two listeners have the address 127.0.0.1:0
     --> etc/c.yaml:1:80
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: { certificate: a.pem, key: a.key } }, { address: 127.0.0.1:0 }]
      |                                                                                ^^^^^^^^^^^^^^^^^^^^^^^^
     ::: etc/c.yaml:1:13
      |
    1 | listeners: [{ address: 127.0.0.1:0, tls: { certificate: a.pem, key: a.key } }, { address: 127.0.0.1:0 }]
      |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the first
    ");
}
