//! tonic's client through the proxy to tonic's server.

use futures_util::StreamExt;
use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::support::grpc::{COUNT, DOUBLE, ECHO, FAILS, FAILS_WITH, Number, Numbers, SUM, Service};
use crate::support::proxy::{Proxy, within};
use crate::support::stack::timeout;

/// Four attempts at what gRPC calls unavailable.
const RETRYING: &str = "    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [ { match: { codes: [Provider.Call.Http.Grpc.Unavailable] }, attempts: 4 } ] } }
";

/// A service, a proxy and a client.
struct Scene {
    service: Service,
    proxy: Proxy,
    client: Grpc<Channel>,
}

impl Scene {
    async fn new(route: &str) -> Self {
        let service = Service::start().await;
        let proxy = Proxy::start(&format!(
            "upstreams: {{ u: {{ endpoints: ['http://{}'], protocol: http2 }} }}\nroutes:\n  - name: r\n    match: {{ pathPrefix: / }}\n    upstream: u\n{route}",
            service.address
        ));
        let endpoint = Endpoint::from_shared(format!("http://{}", proxy.address)).unwrap();
        let client = Grpc::new(within(endpoint.connect()).await.unwrap());
        Self { service, proxy, client }
    }

    async fn double(&mut self, request: Request<Number>) -> Result<Response<Number>, Status> {
        within(async {
            self.client.ready().await.unwrap();
            let path = PathAndQuery::from_static(DOUBLE);
            self.client.unary(request, path, Numbers::default()).await
        })
        .await
    }

    async fn count(
        &mut self,
        request: Request<Number>,
    ) -> Result<Response<Streaming<Number>>, Status> {
        within(async {
            self.client.ready().await.unwrap();
            let path = PathAndQuery::from_static(COUNT);
            self.client.server_streaming(request, path, Numbers::default()).await
        })
        .await
    }
}

/// A request with this id, of which the first `fails` calls fail with `code`.
fn request(
    id: &'static str,
    value: u64,
    fails: &'static str,
    code: &'static str,
) -> Request<Number> {
    let mut request = Request::new(Number { value, ballast: b"ballast".to_vec() });
    let metadata = request.metadata_mut();
    metadata.insert("x-request-id", id.parse().unwrap());
    metadata.insert(FAILS, fails.parse().unwrap());
    metadata.insert(FAILS_WITH, code.parse().unwrap());
    request
}

#[tokio::test]
async fn a_call_and_its_metadata_pass() {
    let mut scene = Scene::new(RETRYING).await;
    let response = scene.double(request("a", 21, "0", "14")).await.unwrap();
    assert_eq!(response.metadata().get("x-doubled").unwrap(), "yes");
    assert_eq!(response.into_inner(), Number { value: 42, ballast: b"ballast".to_vec() });
    assert_eq!(scene.service.calls("a"), 1);
}

#[tokio::test]
async fn an_error_status_passes_unchanged_and_is_not_tried_again() {
    let mut scene = Scene::new(RETRYING).await;
    let status = scene.double(request("a", 13, "0", "14")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "thirteen"));
    assert_eq!(scene.service.calls("a"), 1);
    let series = r#"mwl_attempts_total{code="Provider.Call.Http.Grpc.InvalidArgument",route="r",upstream="u"}"#;
    assert_eq!(scene.proxy.metric(series), 1);
}

#[tokio::test]
async fn what_is_unavailable_is_called_again() {
    let mut scene = Scene::new(RETRYING).await;
    let response = scene.double(request("a", 21, "3", "14")).await.unwrap();
    assert_eq!(response.into_inner(), Number { value: 42, ballast: b"ballast".to_vec() });
    assert_eq!(scene.service.calls("a"), 4);
    // The last of the upstream's own answers, when there were enough.
    let status = scene.double(request("b", 21, "9", "14")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "call 4 fails: 100 %"));
    assert_eq!(scene.service.calls("b"), 4);
}

#[tokio::test]
async fn every_status_has_its_own_name() {
    let mut scene = Scene::new("").await;
    for (number, name) in (1..).zip([
        "Cancelled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ]) {
        let digits: &'static str = number.to_string().leak();
        let status = scene.double(request("a", 1, "99", digits)).await.unwrap_err();
        assert_eq!(status.code(), Code::from(number), "{name}");
        let code = format!("Provider.Call.Http.Grpc.{name}");
        let series = format!(r#"mwl_attempts_total{{code="{code}",route="r",upstream="u"}}"#);
        assert_eq!(scene.proxy.metric(&series), 1, "{name}");
    }
}

#[tokio::test]
async fn a_stream_of_answers_comes_whole_and_so_does_the_error_at_its_end() {
    let mut scene = Scene::new(RETRYING).await;
    for (count, code) in [(0, None), (1, None), (1000, None), (1001, Some(Code::OutOfRange))] {
        let id = count.to_string().leak();
        let mut numbers = scene.count(request(id, count, "1", "14")).await.unwrap().into_inner();
        let mut next = 0;
        let end = loop {
            match within(numbers.message()).await {
                Ok(Some(number)) => {
                    assert_eq!((number.value, number.ballast.len()), (next, 7));
                    next += 1;
                }
                Ok(None) => break None,
                Err(status) => break Some(status.code()),
            }
        };
        assert_eq!((next, end), (count, code));
        assert_eq!(scene.service.calls(id), 2, "the first call fails before any message");
    }
}

#[tokio::test]
async fn a_stream_of_requests_is_replayed_and_summed() {
    let mut scene = Scene::new(RETRYING).await;
    let numbers =
        futures_util::stream::iter((1..=100).map(|value| Number { value, ballast: vec![] }));
    let request = request("a", 0, "2", "14").map(|_| numbers);
    scene.client.ready().await.unwrap();
    let path = PathAndQuery::from_static(SUM);
    let sum = within(scene.client.client_streaming(request, path, Numbers::default())).await;
    assert_eq!(sum.unwrap().into_inner().value, 5050);
    assert_eq!(scene.service.calls("a"), 3);
}

#[tokio::test]
async fn two_streams_go_in_lock_step() {
    let mut scene = Scene::new(RETRYING).await;
    let (numbers, coming) = mpsc::channel(1);
    let coming = futures_util::stream::unfold(coming, async |mut coming| {
        let number = coming.recv().await?;
        Some((number, coming))
    });
    let request = request("a", 0, "0", "14").map(|_| coming.boxed());
    scene.client.ready().await.unwrap();
    let path = PathAndQuery::from_static(ECHO);
    // The head of the answer comes before the first message is sent.
    let answer = within(scene.client.streaming(request, path, Numbers::default())).await;
    let mut echoes = answer.unwrap().into_inner();
    for value in 0..50 {
        // Nothing is held back: each echo is awaited before the next message goes out.
        numbers.send(Number { value, ballast: vec![b'x'; 3000] }).await.unwrap();
        let echo = within(echoes.message()).await.unwrap().unwrap();
        assert_eq!((echo.value, echo.ballast.len()), (value, 3000));
    }
    drop(numbers);
    assert_eq!(within(echoes.message()).await.unwrap(), None);
    assert_eq!(scene.service.calls("a"), 1);
}

#[tokio::test]
async fn the_proxy_s_own_failures_are_grpc_s() {
    let timeout = concat!("    middleware:\n", timeout!("PT0.1S"));
    let mut scene = Scene::new(timeout).await;
    let (held, coming) = mpsc::channel::<Number>(1);
    let coming = futures_util::stream::unfold(coming, async |mut coming| {
        let number = coming.recv().await?;
        Some((number, coming))
    });
    // The sum does not come before the last number, and that does not come.
    let endless = request("a", 0, "0", "14").map(|_| coming.boxed());
    scene.client.ready().await.unwrap();
    let path = PathAndQuery::from_static(SUM);
    let status = within(scene.client.client_streaming(endless, path, Numbers::default())).await;
    assert_eq!(status.unwrap_err().code(), Code::DeadlineExceeded);
    drop(held);
    let Scene { service, proxy: _proxy, client } = scene;
    let address = service.address;
    drop(service);
    within(async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut client = client;
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static(DOUBLE);
    let gone = request("b", 1, "0", "14");
    let status = within(client.unary(gone, path, Numbers::default())).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}
