//! TLS of the program: with curl, and with certificates that change while it runs.

use std::process::{Command, Output};

use crate::support::client::{get, post};
use crate::support::origin::{Origin, answer};
use crate::support::program::{Directory, Proxy, run};
use crate::support::tls::{Authority, Farewell, Front, Issued, server};

/// A directory with the files of a listener that presents `issued`.
fn directory(issued: &Issued, authority: &Authority) -> Directory {
    let directory = Directory::new();
    directory.write("tls/server.pem", &issued.chain());
    directory.write("tls/server.key", &issued.key());
    directory.write("tls/authority.pem", &authority.pem());
    directory
}

/// A file with one TLS listener, which may have further keys, in front of `origin`.
fn file(origin: &Origin, keys: &str) -> String {
    format!(
        "listeners: [{{ address: 127.0.0.1:0, tls: {{ certificate: tls/server.pem, key: tls/server.key{keys} }} }}]
admin: {{ address: 127.0.0.1:0 }}
upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}
routes: [{{ name: all, upstream: u }}]
",
        origin.address
    )
}

/// curl requests `/a` of `a.test`, and trusts the authority in the proxy's directory.
fn curl(proxy: &Proxy, arguments: &[&str]) -> Output {
    let port = proxy.address.port();
    let authority = proxy.directory().path("tls/authority.pem");
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "20", "--cacert"]).arg(authority);
    command.args(["--resolve", &format!("a.test:{port}:127.0.0.1")]);
    command.args(arguments).arg(format!("https://a.test:{port}/a"));
    command.output().unwrap_or_else(|error| panic!("curl cannot be run ({error}): install it"))
}

fn said(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl: {errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn curl_chooses_either_protocol() {
    let origin = Origin::always(answer(200, &[], "hello"));
    let authority = Authority::new();
    let proxy =
        Proxy::start_in(directory(&authority.issue(&["a.test"]), &authority), &file(&origin, ""));
    let shown = ["--write-out", " %{http_code} %{http_version}"];
    for (chosen, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let said = said(&curl(&proxy, &[&[chosen], &shown[..]].concat()));
        assert_eq!(said, format!("hello 200 {version}"));
    }
    let listener = [("listener", "127.0.0.1:0")];
    let until = proxy.metric("mwl_tls_certificate_expiry_timestamp_seconds", &listener);
    assert_eq!(until, 40_000 * 24 * 60 * 60);
}

#[test]
fn curl_is_let_in_with_its_certificate_alone() {
    let origin = Origin::always(answer(200, &[], "hello"));
    let authority = Authority::new();
    let directory = directory(&authority.issue(&["a.test"]), &authority);
    let client = authority.issue(&["client.test"]);
    let certificate = directory.write("client.pem", &client.chain());
    let key = directory.write("client.key", &client.key());
    let proxy = Proxy::start_in(directory, &file(&origin, ", clientCa: tls/authority.pem"));
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    assert_eq!(said(&curl(&proxy, &["--cert", certificate, "--key", key])), "hello");
    assert!(!curl(&proxy, &[]).status.success());
    let refused = [("reason", "noCertificate")];
    proxy.until_metric("mwl_tls_handshake_failures_total", &refused, 1);
    let why = "the client shows no certificate, and `clientCa` wants one";
    proxy.program().line("the reason", |line| line.contains(why).then_some(()));
    assert_eq!(origin.count(), 1);
}

#[test]
fn new_files_are_served_once_they_belong_together() {
    let origin = Origin::always(answer(200, &[], "hello"));
    let [authority, other] = [Authority::new(), Authority::new()];
    let [old, new] = [authority.issue(&["a.test"]), other.issue(&["a.test"])];
    let proxy = Proxy::start_in(directory(&old, &authority), &file(&origin, ""));
    assert_eq!(said(&curl(&proxy, &[])), "hello");
    // With the key of another certificate, the old pair stays in use.
    proxy.directory().write("tls/server.key", &new.key());
    proxy.until_metric("mwl_config_reloads_total", &[("outcome", "refused")], 1);
    let why = "server.key is not the key of the certificate: their public keys differ";
    proxy.program().line("the reason", |line| line.contains(why).then_some(()));
    assert_eq!(said(&curl(&proxy, &[])), "hello");
    let told = post(proxy.admin, "/reload", "");
    assert_eq!(told.status, 422);
    let config = get(proxy.admin, "/config");
    for page in [told.text(), config.text()] {
        assert!(page.contains("server.key") && !page.contains("PRIVATE KEY"), "{page}");
    }
    assert!(proxy.program().lines().iter().all(|line| !line.contains("PRIVATE KEY")));
    // Now with the matching certificate.
    proxy.directory().write("tls/server.pem", &new.chain());
    proxy.until_metric("mwl_config_reloads_total", &[("outcome", "applied")], 1);
    assert!(!curl(&proxy, &[]).status.success(), "another authority vouches for it now");
    proxy.directory().write("tls/authority.pem", &other.pem());
    assert_eq!(said(&curl(&proxy, &[])), "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_is_believed_once_its_authority_is_named() {
    let origin = Origin::always(answer(200, &[], "hello"));
    let [authority, other] = [Authority::new(), Authority::new()];
    let config = server(&authority.issue(&["a.test"]), &[], None);
    let front = Front::before(origin.address, config, Farewell::Said).await;
    let file = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]
admin: {{ address: 127.0.0.1:0 }}
upstreams: {{ u: {{ endpoints: ['https://{}'], tls: {{ ca: ca.pem, serverName: a.test }} }} }}
routes: [{{ name: all, upstream: u }}]
",
        front.address
    );
    // This blocks its thread while the others continue.
    tokio::task::block_in_place(|| {
        let directory = Directory::new();
        directory.write("ca.pem", &other.pem());
        let proxy = Proxy::start_in(directory, &file);
        let refused = get(proxy.address, "/a");
        assert_eq!(refused.status, 502);
        let status = refused.field("proxy-status").unwrap();
        assert!(status.contains("error=tls_certificate_error"), "{status}");
        let kept = get(proxy.admin, "/executions?outcome=failure").json();
        let why = "showed a certificate of an authority that is not trusted: is `tls.ca` right?";
        let shown = kept.to_string();
        assert!(shown.contains("Provider.Call.Http.ConnectionFailed"), "{shown}");
        assert!(shown.contains(why), "{shown}");
        proxy.directory().write("ca.pem", &authority.pem());
        proxy.until_metric("mwl_config_reloads_total", &[("outcome", "applied")], 1);
        assert_eq!(get(proxy.address, "/a").text(), "hello");
    });
}

#[test]
fn check_looks_into_the_files() {
    let origin = Origin::always(answer(200, &[], "hello"));
    let authority = Authority::new();
    let directory = directory(&authority.issue(&["a.test"]), &authority);
    let path = directory.write("proxy.yaml", &file(&origin, ""));
    let check = || run(&["check", path.to_str().unwrap()]);
    let sound = check();
    assert_eq!(sound.status.code(), Some(0), "{}", String::from_utf8_lossy(&sound.stdout));
    directory.write("tls/server.pem", "nothing");
    let unsound = check();
    assert_eq!(unsound.status.code(), Some(1));
    let told = String::from_utf8(unsound.stdout).unwrap();
    assert!(told.contains("tls/server.pem holds no certificate; wanted: PEM"), "{told}");
    assert!(told.contains("proxy.yaml:1:57"), "{told}");
}
