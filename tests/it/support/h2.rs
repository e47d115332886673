//! HTTP/2 on both ends: a client with prior knowledge, and a scripted server.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
pub(crate) use h2::client;
use h2::{Reason, RecvStream, SendStream, server};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::proxy::within;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// Sends requests.
    pub(crate) sender: client::SendRequest<Bytes>,
    /// Ends with the connection.
    pub(crate) driver: JoinHandle<Result<(), h2::Error>>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    /// The values of a field, in order.
    pub(crate) fn field(&self, name: &str) -> Vec<&str> {
        self.fields.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    /// The first value of a trailer field.
    pub(crate) fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.as_ref()?.get(name).map(|value| value.to_str().unwrap())
    }

    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A request to the authority `t`.
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Request<()> {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = Request::builder().method(method).uri(format!("http://t{path}"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// Fields of these names and values.
pub(crate) fn fields(all: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in all {
        map.append(*name, value.parse().unwrap());
    }
    map
}

impl Client {
    /// Connects and does the HTTP/2 handshake.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream).await
    }

    /// Does the HTTP/2 handshake on a connection.
    pub(crate) async fn over<T>(stream: T) -> Self
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = within(client::handshake(stream)).await.unwrap();
        Self { sender, driver: tokio::spawn(connection) }
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn ask(&mut self, request: Request<()>, body: &'static [u8]) -> Answer {
        self.try_ask(request, body).await.unwrap()
    }

    /// Sends a request and reads its answer, or the error that ended the stream.
    pub(crate) async fn try_ask(
        &mut self,
        request: Request<()>,
        body: &'static [u8],
    ) -> Result<Answer, h2::Error> {
        let (response, mut stream) = self.begin(request, body.is_empty()).await;
        if !body.is_empty() {
            stream.send_data(Bytes::from_static(body), true)?;
        }
        within(whole(response)).await
    }

    /// Sends a head. `end` ends the stream too.
    pub(crate) async fn begin(
        &mut self,
        request: Request<()>,
        end: bool,
    ) -> (client::ResponseFuture, SendStream<Bytes>) {
        std::future::poll_fn(|cx| self.sender.poll_ready(cx)).await.unwrap();
        self.sender.send_request(request, end).unwrap()
    }
}

/// The next interim answer; `None` where the answer itself is there.
pub(crate) async fn interim(response: &mut client::ResponseFuture) -> Option<Response<()>> {
    let heard = std::future::poll_fn(|cx| response.poll_informational(cx));
    within(heard).await.map(|heard| heard.unwrap())
}

/// Reads a whole answer.
pub(crate) async fn whole(
    response: impl Future<Output = Result<Response<RecvStream>, h2::Error>>,
) -> Result<Answer, h2::Error> {
    let (head, body) = response.await?.into_parts();
    let (body, trailers) = drain(body).await?;
    Ok(Answer { status: head.status.as_u16(), fields: head.headers, body, trailers })
}

/// Reads a whole body and its trailers.
async fn drain(mut body: RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut all = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        all.extend_from_slice(&chunk);
    }
    Ok((all, body.trailers().await?))
}

/// What to do with one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Read the request, then answer.
    Answer(Reply),
    /// The same, and ask for the request's body before.
    Ask(Reply),
    /// The same, and say this before it: hints of these fields.
    Hint(Vec<HeaderMap>, Reply),
    /// Answer without reading the body.
    Early(Reply),
    /// Reset the stream at once, unread.
    Reset(Reason),
    /// Read the request, then reset the stream.
    ReadAndReset(Reason),
    /// Read the request, and never answer.
    Hang,
}

/// A response to send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) fields: HeaderMap,
    /// Each one after a pause.
    pub(crate) chunks: Vec<(Duration, &'static [u8])>,
    /// After another pause.
    pub(crate) trailers: Option<(Duration, HeaderMap)>,
    /// What the last chunk waits for.
    pub(crate) gate: Option<Arc<Notify>>,
    /// How the stream is reset instead of ended, once everything before that was sent.
    pub(crate) reset: Option<Reason>,
}

/// A response with a body.
pub(crate) fn reply(status: u16, body: &'static str) -> Reply {
    let chunks = if body.is_empty() { vec![] } else { vec![(Duration::ZERO, body.as_bytes())] };
    Reply { status, chunks, ..Reply::default() }
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    /// Which connection, from 0.
    pub(crate) connection: usize,
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
    /// Whether all of it arrived.
    pub(crate) whole: bool,
    /// The code with which the other side reset the stream.
    pub(crate) reset: Option<Reason>,
}

impl Arrived {
    /// The values of a field, in order.
    pub(crate) fn field(&self, name: &str) -> Vec<&str> {
        self.fields.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }
}

type Script = Arc<dyn Fn(usize, &Arrived) -> Act + Send + Sync>;

/// The running server. It stops when dropped.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    log: Arc<Log>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Log {
    requests: Mutex<Vec<Arrived>>,
    accepted: Mutex<usize>,
    changed: Notify,
}

impl Upstream {
    /// Plays `acts` in order, the last one for all further requests.
    pub(crate) async fn play(acts: impl IntoIterator<Item = Act>) -> Self {
        let acts: Vec<Act> = acts.into_iter().collect();
        Self::run(100, move |number, _| acts[number.min(acts.len() - 1)].clone()).await
    }

    /// Asks `script` for each request, and accepts `streams` at a time on one connection.
    pub(crate) async fn run(
        streams: u32,
        script: impl Fn(usize, &Arrived) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), streams, script)
    }

    /// The same on `listener`.
    pub(crate) fn on(
        listener: TcpListener,
        streams: u32,
        script: impl Fn(usize, &Arrived) -> Act + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let script: Script = Arc::new(script);
        let task = {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                let mut serving = tokio::task::JoinSet::new();
                for connection in 0.. {
                    let (stream, _) = listener.accept().await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    *log.accepted.lock().unwrap() += 1;
                    log.changed.notify_waiters();
                    serving.spawn(serve(stream, connection, streams, log.clone(), script.clone()));
                }
            })
        };
        Self { address, log, task }
    }

    /// The requests so far, in the order of their heads.
    pub(crate) fn requests(&self) -> Vec<Arrived> {
        self.log.requests.lock().unwrap().clone()
    }

    /// How many connections there were.
    pub(crate) fn accepted(&self) -> usize {
        *self.log.accepted.lock().unwrap()
    }

    /// The requests, once `enough` returns true for them.
    pub(crate) async fn until(&self, enough: impl Fn(&[Arrived]) -> bool) -> Vec<Arrived> {
        within(async {
            loop {
                let changed = self.log.changed.notified();
                let seen = self.requests();
                if enough(&seen) {
                    return seen;
                }
                changed.await;
            }
        })
        .await
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Log {
    fn change(&self, number: usize, change: impl FnOnce(&mut Arrived)) {
        change(&mut self.requests.lock().unwrap()[number]);
        self.changed.notify_waiters();
    }
}

async fn serve(stream: TcpStream, connection: usize, streams: u32, log: Arc<Log>, script: Script) {
    let mut builder = server::Builder::new();
    builder.max_concurrent_streams(streams);
    let Ok(mut server) = builder.handshake::<_, Bytes>(stream).await else {
        return;
    };
    let mut answering = tokio::task::JoinSet::new();
    while let Some(Ok((request, respond))) = server.accept().await {
        let (head, body) = request.into_parts();
        let arrived = Arrived {
            connection,
            method: head.method.to_string(),
            uri: head.uri.to_string(),
            fields: head.headers,
            body: Vec::new(),
            trailers: None,
            whole: false,
            reset: None,
        };
        let number = {
            let mut requests = log.requests.lock().unwrap();
            requests.push(arrived.clone());
            requests.len() - 1
        };
        log.changed.notify_waiters();
        let act = script(number, &arrived);
        answering.spawn(answer(act, body, respond, number, log.clone()));
    }
}

/// Says what comes before the answer.
fn say_before(act: &Act, respond: &mut server::SendResponse<Bytes>) {
    let all = match act {
        Act::Ask(_) => vec![(StatusCode::CONTINUE, HeaderMap::new())],
        Act::Hint(hints, _) => {
            hints.iter().map(|hint| (StatusCode::EARLY_HINTS, hint.clone())).collect()
        }
        _ => Vec::new(),
    };
    for (status, fields) in all {
        let mut interim = Response::new(());
        (*interim.status_mut(), *interim.headers_mut()) = (status, fields);
        respond.send_informational(interim).unwrap();
    }
}

async fn answer(
    act: Act,
    body: RecvStream,
    mut respond: server::SendResponse<Bytes>,
    number: usize,
    log: Arc<Log>,
) {
    say_before(&act, &mut respond);
    let reply = match act {
        Act::Reset(reason) => return respond.send_reset(reason),
        Act::Early(reply) => reply,
        Act::Answer(reply) | Act::Ask(reply) | Act::Hint(_, reply) => {
            if !read(body, number, &log).await {
                return;
            }
            reply
        }
        Act::ReadAndReset(reason) => {
            read(body, number, &log).await;
            return respond.send_reset(reason);
        }
        Act::Hang => {
            read(body, number, &log).await;
            if let Ok(reason) = std::future::poll_fn(|cx| respond.poll_reset(cx)).await {
                log.change(number, |arrived| arrived.reset = Some(reason));
            }
            return;
        }
    };
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::from_u16(reply.status).unwrap();
    *head.headers_mut() = reply.fields.clone();
    let end = reply.chunks.is_empty() && reply.trailers.is_none() && reply.reset.is_none();
    let Ok(stream) = respond.send_response(head, end) else {
        return;
    };
    if end {
        return;
    }
    send(stream, reply, number, &log).await;
}

/// Sends the body of an answer, and waits for the other side's reaction.
async fn send(mut stream: SendStream<Bytes>, reply: Reply, number: usize, log: &Log) {
    let last = reply.chunks.len();
    for (at, (pause, chunk)) in reply.chunks.into_iter().enumerate() {
        tokio::time::sleep(pause).await;
        if at + 1 == last
            && let Some(gate) = &reply.gate
        {
            gate.notified().await;
        }
        let end = at + 1 == last && reply.trailers.is_none() && reply.reset.is_none();
        if stream.send_data(Bytes::from_static(chunk), end).is_err() {
            break;
        }
    }
    if let Some((pause, trailers)) = reply.trailers {
        tokio::select! {
            reason = std::future::poll_fn(|cx| stream.poll_reset(cx)) => {
                return log.change(number, |arrived| arrived.reset = reason.ok());
            }
            () = tokio::time::sleep(pause) => {}
        }
        // A stream that was reset accepts none.
        stream.send_trailers(trailers).ok();
    }
    if let Some(reason) = reply.reset {
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream.send_reset(reason);
    }
    if let Ok(reason) = std::future::poll_fn(|cx| stream.poll_reset(cx)).await {
        log.change(number, |arrived| arrived.reset = Some(reason));
    }
}

/// Reads a request's body. Returns false if it broke off.
async fn read(mut body: RecvStream, number: usize, log: &Log) -> bool {
    while let Some(chunk) = body.data().await {
        let Ok(chunk) = chunk else {
            return false;
        };
        body.flow_control().release_capacity(chunk.len()).unwrap();
        log.change(number, |arrived| arrived.body.extend_from_slice(&chunk));
    }
    let Ok(trailers) = body.trailers().await else {
        return false;
    };
    log.change(number, |arrived| {
        arrived.trailers = trailers;
        arrived.whole = true;
    });
    true
}
