//! A client for either protocol, by the HTTP library.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::peer::Protocol;
use super::proxy::within;

/// A request's body.
pub(crate) type Upload = UnsyncBoxBody<Bytes, Infallible>;

/// How a request's body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none.
    None,
    /// By a `Content-Length`.
    Length(usize),
    /// By its end: chunks, or the last DATA frame.
    Open,
}

/// A request without its body.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) framing: Framing,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct User {
    sender: Sender,
    /// Drives it.
    _driver: JoinSet<()>,
}

#[derive(Debug)]
enum Sender {
    One(http1::SendRequest<Upload>),
    Two(http2::SendRequest<Upload>),
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Whether that is all of it.
    pub(crate) whole: bool,
}

impl User {
    pub(crate) async fn connect(address: SocketAddr, protocol: Protocol) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let io = TokioIo::new(stream);
        let mut driver = JoinSet::new();
        let sender = match protocol {
            Protocol::One => {
                let (sender, connection) = http1::handshake(io).await.unwrap();
                driver.spawn(async move { drop(connection.await) });
                Sender::One(sender)
            }
            Protocol::Two => {
                let builder = http2::Builder::new(TokioExecutor::new());
                let (sender, connection) = builder.handshake(io).await.unwrap();
                driver.spawn(async move { drop(connection.await) });
                Sender::Two(sender)
            }
        };
        Self { sender, _driver: driver }
    }

    /// Waits until the connection can take another request.
    async fn ready(&mut self) -> Result<(), hyper::Error> {
        match &mut self.sender {
            Sender::One(sender) => sender.ready().await,
            Sender::Two(sender) => sender.ready().await,
        }
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn send(
        &mut self,
        ask: &Ask,
        body: Upload,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let mut request = Request::builder().method(&ask.method);
        for (name, value) in &ask.fields {
            request = request.header(*name, value);
        }
        if let Framing::Length(length) = ask.framing {
            request = request.header(header::CONTENT_LENGTH, length);
        }
        let response = async {
            self.ready().await?;
            match &mut self.sender {
                Sender::One(sender) => {
                    request = request.uri(&ask.path).header(header::HOST, "proxy.test");
                    if ask.framing == Framing::Open {
                        request = request.header(header::TRANSFER_ENCODING, "chunked");
                    }
                    sender.send_request(request.body(body).unwrap()).await
                }
                Sender::Two(sender) => {
                    request = request.uri(format!("http://proxy.test{}", ask.path));
                    sender.send_request(request.body(body).unwrap()).await
                }
            }
        };
        within(response).await
    }

    /// Sends a request without a body and reads its response; `None` if the connection is lost.
    pub(crate) async fn get(&mut self, path: &str) -> Option<Got> {
        let (method, fields, framing) = (Method::GET, Vec::new(), Framing::None);
        let ask = Ask { method, path: path.to_owned(), fields, framing };
        Some(Got::read(self.send(&ask, nothing()).await.ok()?).await)
    }
}

impl Got {
    /// Reads all of `response`.
    pub(crate) async fn read(response: Response<Incoming>) -> Self {
        Self::read_with(response, || {}).await
    }

    /// Reads all of `response`; calls `begun` when the first part of its body arrives.
    pub(crate) async fn read_with(response: Response<Incoming>, begun: impl Fn()) -> Self {
        let (parts, mut incoming) = response.into_parts();
        let mut body = Vec::new();
        let mut whole = true;
        while let Some(frame) = within(incoming.frame()).await {
            match frame {
                Ok(frame) => body.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
                Err(_broken) => {
                    whole = false;
                    break;
                }
            }
            begun();
        }
        Self { status: parts.status.as_u16(), headers: parts.headers, body, whole }
    }

    /// The value of a field; empty if it is absent.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// No body.
pub(crate) fn nothing() -> Upload {
    Empty::new().boxed_unsync()
}

/// A body of everything that is sent to the other half, until that is dropped.
pub(crate) fn piecewise() -> (mpsc::Sender<Bytes>, Upload) {
    let (pieces, coming) = mpsc::channel(1);
    let frames = futures_util::stream::unfold(coming, async |mut coming: mpsc::Receiver<Bytes>| {
        let piece = coming.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(piece)), coming))
    });
    (pieces, StreamBody::new(frames).boxed_unsync())
}
