//! An HTTP/2 connection that dies under its requests.

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::one_route;
use crate::support::h2::{Client, request, whole};
use crate::support::proxy::{Proxy, within};

/// An upstream whose first connection dies under two requests: `/a`, whose answer has begun by then, and another. It takes
/// leave before, with a `goodbye`. The second connection serves properly. How many requests that served is returned.
async fn dying(
    goodbye: bool,
    begun: oneshot::Receiver<()>,
) -> (std::net::SocketAddr, tokio::task::JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut server = h2::server::handshake(stream).await.unwrap();
        let (_, mut respond) = server.accept().await.unwrap().unwrap();
        respond.send_response(http::Response::new(()), true).unwrap();
        let mut bodies = Vec::new();
        let mut held = Vec::new();
        for _ in 0..2 {
            let (request, mut respond) = server.accept().await.unwrap().unwrap();
            if request.uri().path() == "/a" {
                let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                body.send_data(Bytes::from_static(b"some"), false).unwrap();
                bodies.push(body);
            } else {
                held.push(respond);
            }
        }
        if goodbye {
            server.graceful_shutdown();
        }
        tokio::select! {
            _ = server.accept() => {}
            _ = begun => {}
        }
        drop((server, bodies, held));
        let (stream, _) = listener.accept().await.unwrap();
        let mut server = h2::server::handshake(stream).await.unwrap();
        let mut requests = 0;
        while let Some(Ok((_, mut respond))) = server.accept().await {
            requests += 1;
            respond.send_response(http::Response::new(()), true).unwrap();
        }
        requests
    });
    (address, serving)
}

/// The rules are those of HTTP/1.1. What arrived on other streams, and that the upstream took leave, does not count.
#[tokio::test]
async fn a_request_on_a_connection_that_dies_is_sent_again_if_that_is_safe() {
    for (method, goodbye, status) in
        [("GET", false, 200), ("GET", true, 200), ("POST", false, 502), ("POST", true, 502)]
    {
        let (begins, begun) = oneshot::channel();
        let (address, serving) = dying(goodbye, begun).await;
        let proxy = Proxy::start(&one_route(address, "", ""));
        let mut client = Client::connect(proxy.address).await;
        assert_eq!(client.ask(request("GET", "/", &[]), b"").await.status, 200);
        let (first, _) = client.begin(request("GET", "/a", &[]), true).await;
        let (second, _) = client.begin(request(method, "/b", &[]), true).await;
        let first = within(first).await.unwrap();
        begins.send(()).unwrap();
        let second = within(whole(second)).await.unwrap();
        assert_eq!(second.status, status, "{method}, {goodbye}");
        assert!(whole(std::future::ready(Ok(first))).await.is_err(), "it breaks off");
        let resends = proxy.metric(r#"mwl_stale_connection_resends_total{upstream="u"}"#);
        assert_eq!(resends, u64::from(status == 200));
        if status == 502 {
            assert_eq!(second.json()["code"], "Provider.Call.Http.ConnectionClosed");
            assert_eq!(client.ask(request("GET", "/", &[]), b"").await.status, 200);
        }
        drop((client, proxy));
        assert_eq!(within(serving).await.unwrap(), 1);
    }
}
