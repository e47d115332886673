//! Trailers, from one protocol to the other.

use std::time::Duration;

use bytes::Bytes;

use super::{GET, one_route, retry};
use crate::support::h2::{Act, Client, Reply, Upstream, fields, reply, request, whole};
use crate::support::proxy::{Proxy, within};

#[tokio::test]
async fn trailers_pass_both_ways_and_those_that_must_not_do_not() {
    let answered = Reply {
        fields: fields(&[("x-head", "1")]),
        trailers: Some((Duration::ZERO, fields(&[("x-sum", "2"), ("content-length", "9")]))),
        ..reply(200, "hello")
    };
    let upstream = Upstream::play([Act::Answer(reply(503, "")), Act::Answer(answered)]).await;
    let proxy =
        Proxy::start(&one_route(upstream.address, "", &retry("Provider.Call.Http.Unavailable")));
    let mut client = Client::connect(proxy.address).await;
    let (response, mut stream) = client.begin(request("PUT", "/a", &[]), false).await;
    stream.send_data(Bytes::from_static(b"body"), false).unwrap();
    stream.send_trailers(fields(&[("x-sum", "1"), ("authorization", "z")])).unwrap();
    let answer = within(whole(response)).await.unwrap();
    assert_eq!((answer.text(), answer.trailer("x-sum")), ("hello", Some("2")));
    assert_eq!(answer.trailer("content-length"), None);
    assert!(answer.field("x-sum").is_empty());
    for seen in upstream.requests() {
        let trailers = seen.trailers.as_ref().unwrap();
        assert_eq!((trailers.len(), &trailers["x-sum"]), (1, &"1".parse().unwrap()));
        assert!(seen.field("x-sum").is_empty());
    }
}

#[tokio::test]
async fn trailers_pass_between_the_protocols() {
    use crate::support::upstream as one;
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
    let act = one::Act::Answer(format!("{head}2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n").into());
    let upstream = one::Upstream::play([act]).await;
    let proxy = Proxy::start(&super::super::one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    let answer = client.ask(request("GET", "/a", &[]), b"").await;
    assert_eq!((answer.text(), answer.trailer("x-sum")), ("hi", Some("7")));
    let act = one::Act::Answer(format!("{head}2\r\nhi\r\n0\r\nContent-Length: 7\r\n\r\n").into());
    let forbidden = one::Upstream::play([act]).await;
    let none = Proxy::start(&super::super::one_route(&forbidden, ""));
    let answer = Client::connect(none.address).await.ask(request("GET", "/a", &[]), b"").await;
    assert_eq!((answer.text(), &answer.trailers), ("hi", &None));
    // An HTTP/1.1 client gets them where it says that it takes them.
    let ask = |te: &str| format!("GET /a HTTP/1.1\r\nHost: t\r\nConnection: close{te}\r\n\r\n");
    for (te, there) in [("", false), (", te\r\nTE: trailers", true)] {
        let mut client = proxy.connect().await;
        client.send(ask(te)).await;
        let said = String::from_utf8(client.rest().await).unwrap();
        assert_eq!(said.ends_with("0\r\nx-sum: 7\r\n\r\n"), there, "{said}");
    }
}

#[tokio::test]
async fn an_http_1_client_s_trailers_reach_an_http_2_upstream() {
    let upstream = Upstream::play([Act::Answer(reply(200, ""))]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let head = "PUT /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
    let response = proxy.ask(&format!("{head}2\r\nhi\r\n0\r\nX-Sum: 1\r\nHost: z\r\n\r\n")).await;
    assert_eq!(response.status, 200);
    let trailers = upstream.requests()[0].trailers.clone().unwrap();
    assert_eq!((trailers.len(), &trailers["x-sum"]), (1, &"1".parse().unwrap()));
}

#[tokio::test]
async fn announced_trailers_reach_an_http_1_upstream_on_every_attempt() {
    use crate::support::upstream as one;
    let acts = [one::always(503, "", ""), one::always(200, "", "good")];
    let upstream = one::Upstream::play(acts).await;
    let proxy =
        Proxy::start(&super::super::one_route(&upstream, &retry("Provider.Call.Http.Unavailable")));
    let mut client = proxy.connect().await;
    let body = "2\r\nhi\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\nAuthorization: z\r\n\r\n";
    let head = "PUT /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Content-Length\r\n\r\n";
    assert_eq!(client.ask(&format!("{head}{body}")).await.body, "good");
    for seen in upstream.requests() {
        assert_eq!(seen.field("trailer"), ["x-sum"]);
        assert!(seen.field("x-sum").is_empty() && seen.field("authorization").is_empty());
        assert_eq!(seen.trailers, ["x-sum: 1"]);
    }
    assert_eq!(client.ask(GET).await.status, 200);
}
