use std::net::SocketAddr;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::h2;
use crate::support::proxy::{Files, Proxy, Response};
use crate::support::tls::{
    Authority, Farewell, Front, H2, HTTP_1_1, Issued, client, connect, days, server,
};
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const POST: &str = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody";

/// A proxy with an `https://` upstream at `address`, whose certificate must be from `authority` and have
/// `name`; with further keys of the upstream's `tls` and of the upstream.
fn proxy(
    address: SocketAddr,
    authority: &Authority,
    (name, tls, upstream): (&str, &str, &str),
) -> Proxy {
    shown(address, authority, None, (name, tls, upstream))
}

fn shown(
    address: SocketAddr,
    authority: &Authority,
    shows: Option<&Issued>,
    (name, tls, upstream): (&str, &str, &str),
) -> Proxy {
    let config = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]
limits: {{ workers: 1 }}
upstreams: {{ u: {{ endpoints: ['https://{address}'], tls: {{ ca: ca.pem, serverName: {name}{tls} }}{upstream} }} }}
routes:
  - name: r
    upstream: u
    exposeFailures: true
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [{{ match: {{ codes: [Provider.Call.Http.ConnectionFailed], retryable: true }}, attempts: 2 }}] }} }}
"
    );
    let mut files = Files::from([("ca.pem", authority.pem())]);
    if let Some(issued) = shows {
        files.extend([("client.pem", issued.chain()), ("client.key", issued.key())]);
    }
    Proxy::whole(&config, &files)
}

async fn front(upstream: SocketAddr, config: ServerConfig) -> Front {
    Front::before(upstream, config, Farewell::Said).await
}

/// What a client is told about a failed connection: the status, the field, and the details of the last failure.
fn told(answer: &Response) -> String {
    let problem = answer.json();
    let status = answer.field("proxy-status").join("");
    let failures = problem["failures"].as_array().unwrap();
    let failure = failures.last().unwrap();
    let (message, details) = (failure["message"].as_str().unwrap(), &failure["details"]);
    format!(
        "{} after {} attempts\n{status}\n{}: {message}\nphase {}, sent {}",
        answer.status,
        problem["attempts"],
        failure["code"],
        details["phase"],
        details["requestSent"],
    )
}

#[tokio::test]
async fn an_upstream_is_asked_over_tls_and_its_connection_kept() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let authority = Authority::new();
    let server = server(&authority.issue(&["a.test"]), &[HTTP_1_1], None);
    let front = front(upstream.address, server).await;
    let proxy = proxy(front.address, &authority, ("a.test", "", ""));
    for request in [GET, POST, GET] {
        assert_eq!(proxy.ask(request).await.body, "hello");
    }
    assert_eq!(front.asked(), [Some("a.test".to_owned())]);
    assert_eq!(upstream.requests()[1].body, b"body");
}

#[tokio::test]
async fn an_address_is_a_name_too() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let authority = Authority::new();
    let front = front(upstream.address, server(&authority.issue(&["127.0.0.1"]), &[], None)).await;
    let proxy = proxy(front.address, &authority, ("127.0.0.1", "", ""));
    assert_eq!(proxy.ask(GET).await.body, "hello");
    // An address is not requested by name (RFC 6066 §3).
    assert_eq!(front.asked(), [None]);
}

#[tokio::test]
async fn http_2_is_spoken_where_it_is_agreed_on() {
    let upstream = h2::Upstream::play([h2::Act::Answer(h2::reply(200, "hello"))]).await;
    let authority = Authority::new();
    let issued = authority.issue(&["a.test"]);
    let front = front(upstream.address, server(&issued, &[H2], None)).await;
    let proxy = proxy(front.address, &authority, ("a.test", "", ", protocol: http2"));
    for _ in 0..2 {
        assert_eq!(proxy.ask(POST).await.body, "hello");
    }
    let seen = upstream.requests();
    assert_eq!((seen[0].uri.as_str(), seen.len()), ("https://t/a", 2));
    assert_eq!(front.asked().len(), 1);
}

#[tokio::test]
async fn a_grpc_call_passes_with_its_trailers_over_tls_on_both_sides() {
    let trailers = h2::fields(&[("grpc-status", "0")]);
    let reply = h2::Reply {
        fields: h2::fields(&[("content-type", "application/grpc")]),
        trailers: Some((Duration::ZERO, trailers)),
        ..h2::reply(200, "message")
    };
    let upstream = h2::Upstream::play([h2::Act::Answer(reply)]).await;
    let authority = Authority::new();
    let issued = authority.issue(&["a.test"]);
    let front = front(upstream.address, server(&issued, &[H2], None)).await;
    let config = format!(
        "listeners: [{{ address: '127.0.0.1:0', tls: {{ certificate: a.pem, key: a.key }} }}]
limits: {{ workers: 1 }}
upstreams: {{ u: {{ endpoints: ['https://{}'], protocol: http2, tls: {{ ca: ca.pem, serverName: a.test }} }} }}
routes: [{{ name: r, upstream: u }}]
",
        front.address
    );
    let files = [("a.pem", issued.chain()), ("a.key", issued.key()), ("ca.pem", authority.pem())];
    let proxy = Proxy::whole(&config, &Files::from(files));
    let stream = connect(proxy.address, client(&authority, None, &[H2])).await.unwrap();
    let mut client = h2::Client::over(stream).await;
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    let answer = client.ask(h2::request("POST", "/s.S/M", &fields), b"question").await;
    assert_eq!((answer.status, answer.text()), (200, "message"));
    assert_eq!(answer.trailer("grpc-status"), Some("0"));
    assert_eq!(upstream.requests()[0].uri, "https://t/s.S/M");
}

#[tokio::test]
async fn what_cannot_be_believed_is_not_asked() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let [authority, other] = [Authority::new(), Authority::new()];
    let ask = async |issued: &Issued, keys| {
        let front = front(upstream.address, server(issued, &[HTTP_1_1], None)).await;
        let proxy = proxy(front.address, &authority, ("a.test", "", keys));
        told(&proxy.ask(POST).await)
    };
    insta::assert_snapshot!(ask(&authority.issue(&["b.test"]), "").await, @r#"
    502 after 2 attempts
    mwl-proxy; error=tls_certificate_error
    "Provider.Call.Http.ConnectionFailed": r: attempt 2 of 2: upstream u showed a certificate for b.test, not for `a.test`: is `tls.serverName` right?
    phase "tls", sent "none"
    "#);
    insta::assert_snapshot!(ask(&other.issue(&["a.test"]), "").await, @r#"
    502 after 2 attempts
    mwl-proxy; error=tls_certificate_error
    "Provider.Call.Http.ConnectionFailed": r: attempt 2 of 2: upstream u showed a certificate of an authority that is not trusted: is `tls.ca` right?
    phase "tls", sent "none"
    "#);
    let old = authority.issue_for(&["a.test"], days(0), days(365));
    insta::assert_snapshot!(ask(&old, "").await, @r#"
    502 after 2 attempts
    mwl-proxy; error=tls_certificate_error
    "Provider.Call.Http.ConnectionFailed": r: attempt 2 of 2: upstream u showed a certificate that has expired
    phase "tls", sent "none"
    "#);
    insta::assert_snapshot!(ask(&authority.issue(&["a.test"]), ", protocol: http2").await, @r#"
    502 after 2 attempts
    mwl-proxy; error=tls_alert_received
    "Provider.Call.Http.ConnectionFailed": r: attempt 2 of 2: upstream u does not take `h2` (ALPN): is `protocol` right?
    phase "tls", sent "none"
    "#);
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn what_speaks_no_tls_is_told_from_what_says_nothing() {
    let authority = Authority::new();
    let clear = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = clear.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = clear.accept().await {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            kept.push(stream);
        }
    });
    let asked = proxy(address, &authority, ("a.test", "", "")).ask(GET).await;
    insta::assert_snapshot!(told(&asked), @r#"
    502 after 2 attempts
    mwl-proxy; error=tls_protocol_error
    "Provider.Call.Http.ConnectionFailed": r: attempt 2 of 2: upstream u does not speak TLS: is it `http://`?
    phase "tls", sent "none"
    "#);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let keys = ", connectTimeout: PT1S";
    let asked = proxy(address, &authority, ("a.test", "", keys)).ask(GET).await;
    insta::assert_snapshot!(told(&asked), @r#"
    502 after 2 attempts
    mwl-proxy; error=connection_timeout
    "Provider.Call.Http.ConnectionFailed": r: attempt 2 of 2: upstream u did not finish the TLS handshake within PT1S
    phase "tls", sent "none"
    "#);
}

#[tokio::test]
async fn the_proxy_shows_its_own_certificate_where_it_is_asked_for_one() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let [authority, other] = [Authority::new(), Authority::new()];
    let issued = authority.issue(&["a.test"]);
    let front = front(upstream.address, server(&issued, &[], Some(&authority))).await;
    let keys = ("a.test", ", certificate: client.pem, key: client.key", "");
    let known = authority.issue(&["localhost"]);
    let asked = shown(front.address, &authority, Some(&known), keys).ask(POST).await;
    assert_eq!(asked.body, "hello");
    let unknown = other.issue(&["localhost"]);
    let asked = shown(front.address, &authority, Some(&unknown), keys).ask(POST).await;
    insta::assert_snapshot!(told(&asked), @r#"
    502 after 2 attempts
    mwl-proxy; error=tls_alert_received
    "Provider.Call.Http.ConnectionFailed": r: attempt 2 of 2: upstream u refused the TLS handshake: connection error: received fatal alert: UnknownCA
    phase "tls", sent "none"
    "#);
    let asked = proxy(front.address, &authority, ("a.test", "", "")).ask(POST).await;
    insta::assert_snapshot!(told(&asked), @r#"
    502 after 2 attempts
    mwl-proxy; error=tls_alert_received
    "Provider.Call.Http.ConnectionFailed": r: attempt 2 of 2: upstream u refused the TLS handshake: connection error: received fatal alert: CertificateRequired
    phase "tls", sent "none"
    "#);
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn an_http_2_upstream_that_refuses_the_proxy_s_certificate_says_so() {
    let upstream = h2::Upstream::play([h2::Act::Answer(h2::reply(200, "hello"))]).await;
    let authority = Authority::new();
    let issued = authority.issue(&["a.test"]);
    let front = front(upstream.address, server(&issued, &[H2], Some(&authority))).await;
    let keys = ("a.test", "", ", protocol: http2");
    let asked = proxy(front.address, &authority, keys).ask(POST).await;
    insta::assert_snapshot!(told(&asked), @r#"
    502 after 2 attempts
    mwl-proxy; error=http_protocol_error
    "Provider.Call.Http.ConnectionFailed": r: attempt 2 of 2: upstream u did not greet in HTTP/2 (received fatal alert: CertificateRequired): is `protocol` right?
    phase "handshake", sent "none"
    "#);
}

#[tokio::test]
async fn an_end_that_was_not_said_is_no_end() {
    let open = b"HTTP/1.1 200 OK\r\n\r\nhalf of it";
    let upstream = Upstream::play([Act::AnswerAndClose(open.to_vec())]).await;
    let authority = Authority::new();
    let issued = authority.issue(&["a.test"]);
    for (farewell, whole) in [(Farewell::Said, true), (Farewell::Left, false)] {
        let front = Front::before(upstream.address, server(&issued, &[], None), farewell).await;
        let proxy = proxy(front.address, &authority, ("a.test", "", ""));
        let answer = proxy.ask(GET).await;
        assert_eq!((answer.status, answer.whole), (200, whole), "{farewell:?}");
        assert_eq!(answer.body, "half of it");
    }
}

#[tokio::test]
async fn a_tunnel_passes() {
    let agree = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x/1\r\n\r\n";
    let upstream = Upstream::play([Act::Echo(agree.to_vec())]).await;
    let authority = Authority::new();
    let front = front(upstream.address, server(&authority.issue(&["a.test"]), &[], None)).await;
    let proxy = proxy(front.address, &authority, ("a.test", "", ""));
    let mut client = proxy.connect().await;
    client.send("GET /a HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: x/1\r\n\r\n").await;
    assert_eq!(client.response(false).await.status, 101);
    client.send("there and back").await;
    let mut heard = [0; 14];
    client.stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"there and back");
}
