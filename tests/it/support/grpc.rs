//! A gRPC service with tonic, and what its clients need. Written by hand, so that no protocol buffer compiler
//! is required.

use std::collections::HashMap;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures_util::{Stream, StreamExt, stream};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::server::{
    ClientStreamingService, ServerStreamingService, StreamingService, UnaryService,
};
use tonic::{Request, Response, Status, Streaming};

/// The message of all methods, in both directions.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Number {
    #[prost(uint64, tag = "1")]
    pub(crate) value: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) ballast: Vec<u8>,
}

/// [`Number`]s on the wire.
#[derive(Debug, Default)]
pub(crate) struct Numbers(PhantomData<Number>);

/// Unary: returns twice the number. 13 is an invalid argument.
pub(crate) const DOUBLE: &str = "/test.Numbers/Double";
/// Server streaming: as many messages as the number says, each with the request's ballast.
pub(crate) const COUNT: &str = "/test.Numbers/Count";
/// Client streaming: the sum.
pub(crate) const SUM: &str = "/test.Numbers/Sum";
/// Both: each message as it arrives, in lock step.
pub(crate) const ECHO: &str = "/test.Numbers/Echo";

/// Metadata: how many calls with this `x-request-id` fail, and with which code.
pub(crate) const FAILS: &str = "x-fails";
pub(crate) const FAILS_WITH: &str = "x-fails-with";

/// The running service. It stops when dropped.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    calls: Calls,
    _task: JoinSet<()>,
}

/// How many calls there were, by request id.
#[derive(Clone, Debug, Default)]
struct Calls(Arc<Mutex<HashMap<String, usize>>>);

type Boxed<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;
type Many = Pin<Box<dyn Stream<Item = Result<Number, Status>> + Send>>;

impl Service {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Calls::default();
        let mut task = JoinSet::new();
        let kept = calls.clone();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let calls = kept.clone();
                let service = service_fn(move |request| serve(calls.clone(), request));
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let connection = builder.serve_connection(TokioIo::new(stream), service);
                connections.spawn(async move { drop(connection.await) });
            }
        });
        Self { address, calls, _task: task }
    }

    /// How many calls with this id arrived.
    pub(crate) fn calls(&self, id: &str) -> usize {
        self.calls.0.lock().unwrap().get(id).copied().unwrap_or(0)
    }
}

async fn serve(
    calls: Calls,
    request: http::Request<hyper::body::Incoming>,
) -> Result<http::Response<tonic::body::Body>, Infallible> {
    let mut grpc = tonic::server::Grpc::new(Numbers::default());
    Ok(match request.uri().path() {
        DOUBLE => grpc.unary(calls, request).await,
        COUNT => grpc.server_streaming(calls, request).await,
        SUM => grpc.client_streaming(calls, request).await,
        ECHO => grpc.streaming(calls, request).await,
        _ => Status::unimplemented("no such method").into_http(),
    })
}

impl Calls {
    /// Counts the call, and fails it if its metadata says so.
    fn count(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let text = |name| metadata.get(name).and_then(|value| value.to_str().ok());
        let id = text("x-request-id").unwrap_or_default().to_owned();
        let mut calls = self.0.lock().unwrap();
        let calls = calls.entry(id).or_default();
        *calls += 1;
        let fails = text(FAILS).map_or(0, |digits| digits.parse().unwrap());
        if *calls > fails {
            return Ok(());
        }
        let code = text(FAILS_WITH).map_or(14, |digits| digits.parse().unwrap());
        Err(Status::new(tonic::Code::from(code), format!("call {calls} fails: 100 %")))
    }
}

impl UnaryService<Number> for Calls {
    type Response = Number;
    type Future = Boxed<Number>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        let counted = self.count(request.metadata());
        let Number { value, ballast } = request.into_inner();
        Box::pin(async move {
            counted?;
            if value == 13 {
                return Err(Status::invalid_argument("thirteen"));
            }
            let mut response = Response::new(Number { value: 2 * value, ballast });
            response.metadata_mut().insert("x-doubled", "yes".parse().unwrap());
            Ok(response)
        })
    }
}

impl ServerStreamingService<Number> for Calls {
    type Response = Number;
    type ResponseStream = Many;
    type Future = Boxed<Many>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        let counted = self.count(request.metadata());
        let Number { value: count, ballast } = request.into_inner();
        Box::pin(async move {
            counted?;
            let number = move |value| Ok(Number { value, ballast: ballast.clone() });
            let numbers = stream::iter((0..count).map(number));
            // A request for over a thousand fails in the trailers, after all messages.
            let end = (count > 1000).then(|| Err(Status::out_of_range("over a thousand")));
            Ok(Response::new(Box::pin(numbers.chain(stream::iter(end))) as Many))
        })
    }
}

impl ClientStreamingService<Number> for Calls {
    type Response = Number;
    type Future = Boxed<Number>;

    fn call(&mut self, request: Request<Streaming<Number>>) -> Self::Future {
        let counted = self.count(request.metadata());
        let mut numbers = request.into_inner();
        Box::pin(async move {
            counted?;
            let mut sum = Number::default();
            while let Some(number) = numbers.message().await? {
                sum.value += number.value;
            }
            Ok(Response::new(sum))
        })
    }
}

impl StreamingService<Number> for Calls {
    type Response = Number;
    type ResponseStream = Many;
    type Future = Boxed<Many>;

    fn call(&mut self, request: Request<Streaming<Number>>) -> Self::Future {
        let counted = self.count(request.metadata());
        let numbers = request.into_inner();
        Box::pin(async move {
            counted?;
            Ok(Response::new(Box::pin(numbers) as Many))
        })
    }
}

impl Codec for Numbers {
    type Encode = Number;
    type Decode = Number;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Self {
        Self::default()
    }
}

impl Encoder for Numbers {
    type Item = Number;
    type Error = Status;

    fn encode(&mut self, number: Number, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        number.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Numbers {
    type Item = Number;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Number>, Status> {
        Number::decode(buffer).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
