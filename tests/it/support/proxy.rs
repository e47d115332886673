//! The whole proxy in a test: the text of a configuration, one worker, real sockets on loopback.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::message::field;
use super::names::Names;
use mwl_proxy::config::{self, Origin};
use mwl_proxy::language::provider::Catalog;
use mwl_proxy::proxy::{Runtime, Server, UpstreamRegistry};
use mwl_proxy::telemetry::metrics::Metrics;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// The server.
    pub(crate) server: Server,
    /// Its metrics.
    pub(crate) metrics: Arc<Metrics>,
    /// What it knows over reloads.
    kept: Kept,
    /// The address on which it listens.
    pub(crate) address: SocketAddr,
}

/// What a process keeps over reloads: of upstreams, and in the middlewares of its catalog.
#[derive(Debug)]
struct Kept {
    upstreams: UpstreamRegistry,
    catalog: Catalog,
}

impl Default for Kept {
    fn default() -> Self {
        Self { upstreams: UpstreamRegistry::default(), catalog: mwl_proxy::proxy::catalog(None) }
    }
}

/// The files that a configuration names, by name.
pub(crate) type Files = BTreeMap<&'static str, String>;

/// The runtime of the configuration `yaml`.
pub(crate) fn runtime(yaml: &str, metrics: &Arc<Metrics>) -> Arc<Runtime> {
    Arc::new(built(yaml, &Files::new(), metrics, &Kept::default()))
}

fn built(yaml: &str, files: &Files, metrics: &Arc<Metrics>, kept: &Kept) -> Runtime {
    built_with(yaml, (files, &|_| None), metrics, kept)
}

/// A variable's value.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

fn built_with(
    yaml: &str,
    (files, variable): (&Files, Variable<'_>),
    metrics: &Arc<Metrics>,
    kept: &Kept,
) -> Runtime {
    let read = |path: &Path| {
        let found = path.to_str().and_then(|path| files.get(path));
        Ok(found.unwrap_or_else(|| panic!("the test reads {}", path.display())).clone())
    };
    let origin = Origin { read: &read, variable, ..Origin::system() };
    let loaded = match config::parse(Path::new("proxy.yaml"), yaml, origin) {
        Ok(loaded) => loaded,
        Err(refused) => panic!("{}", refused.sources.render(&refused.diagnostics)),
    };
    match Runtime::build(loaded.settings, &kept.catalog, metrics, &kept.upstreams) {
        Ok((runtime, _warnings)) => runtime,
        Err(found) => panic!("{}", loaded.sources.render(&found)),
    }
}

impl Proxy {
    /// Serves `rest`, a configuration without its listeners, on a port that the system chooses.
    pub(crate) fn start(rest: &str) -> Self {
        Self::limited("", rest)
    }

    /// The same, with these further members of `limits`: `headTimeout: PT1S, `.
    pub(crate) fn limited(limits: &str, rest: &str) -> Self {
        Self::whole(&text(limits, rest), &Files::new())
    }

    /// The same, with `names` as the resolver.
    pub(crate) fn resolved(rest: &str, names: &Arc<Names>) -> Self {
        let (metrics, kept) = (Metrics::new(), Kept::default());
        let runtime = built(&text("", rest), &Files::new(), &metrics, &kept);
        Self::serve(runtime.resolved_by(Arc::clone(names) as _), metrics, kept)
    }

    /// Serves a whole configuration whose variables have these values.
    pub(crate) fn with_variables(yaml: &str, variable: Variable<'_>) -> Self {
        let (metrics, kept) = (Metrics::new(), Kept::default());
        let runtime = built_with(yaml, (&Files::new(), variable), &metrics, &kept);
        Self::serve(runtime, metrics, kept)
    }

    /// Serves a whole configuration with these files.
    pub(crate) fn whole(yaml: &str, files: &Files) -> Self {
        let (metrics, kept) = (Metrics::new(), Kept::default());
        let runtime = built(yaml, files, &metrics, &kept);
        Self::serve(runtime, metrics, kept)
    }

    /// Serves this whole configuration from now on.
    pub(crate) async fn replace_whole(&self, yaml: &str, files: &Files) {
        let runtime = built(yaml, files, &self.metrics, &self.kept);
        self.server.replace(Arc::new(runtime)).await.unwrap();
    }

    fn serve(runtime: Runtime, metrics: Arc<Metrics>, kept: Kept) -> Self {
        let server = Server::start(Arc::new(runtime)).unwrap();
        let address = server.local_addrs()[0];
        Self { server, metrics, kept, address }
    }

    /// Serves `rest` from now on.
    pub(crate) async fn replace(&self, rest: &str) {
        self.replace_whole(&text("", rest), &Files::new()).await;
    }

    /// A connection to it.
    pub(crate) async fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        Client { stream, buffer: Vec::new() }
    }

    /// Sends one request on a new connection.
    pub(crate) async fn ask(&self, request: &str) -> Response {
        self.connect().await.ask(request).await
    }

    /// The value of one series of `/metrics`; 0 if it does not exist.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        metric(&self.metrics, series)
    }

    /// Waits until `holds` returns true; fails after ten seconds.
    pub(crate) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        within(async {
            while !holds(self) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Waits until no request is in flight.
    pub(crate) async fn until_idle(&self) {
        self.until(|proxy| proxy.server.in_flight() == 0).await;
    }

    /// Waits until no request is in flight and no connection open.
    pub(crate) async fn until_empty(&self) {
        self.until(|proxy| proxy.server.in_flight() + proxy.server.connections() == 0).await;
    }
}

/// The value of one series of `/metrics`; 0 if it does not exist.
pub(crate) fn metric(metrics: &Metrics, series: &str) -> u64 {
    let text = metrics.render();
    let found = text.lines().find_map(|line| line.strip_prefix(series));
    found.map_or(0, |value| value.trim().parse().unwrap())
}

fn text(limits: &str, rest: &str) -> String {
    format!("listeners: [{{ address: '127.0.0.1:0' }}]\nlimits: {{ {limits}workers: 1 }}\n{rest}")
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Client<T = TcpStream> {
    /// The socket, or a stream over it.
    pub(crate) stream: T,
    buffer: Vec<u8>,
}

/// What a client got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// The status.
    pub(crate) status: u16,
    /// The head, including the empty line.
    pub(crate) head: String,
    /// The body, decoded.
    pub(crate) body: String,
    /// Whether the body is complete.
    pub(crate) whole: bool,
}

impl Response {
    /// The values of a field, in order.
    pub(crate) fn field(&self, name: &str) -> Vec<&str> {
        field(&self.head, name)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Client<T> {
    /// A client on this connection.
    pub(crate) const fn over(stream: T) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Sends bytes.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends bytes. Returns false if the other side takes no more.
    pub(crate) async fn offer(&mut self, bytes: &[u8]) -> bool {
        within(self.stream.write_all(bytes)).await.is_ok()
    }

    /// Sends a request and reads its response.
    pub(crate) async fn ask(&mut self, request: &str) -> Response {
        self.send(request).await;
        let head = request.starts_with("HEAD ");
        self.response(head).await
    }

    /// The next response. `head`: the request was a HEAD.
    pub(crate) async fn response(&mut self, head: bool) -> Response {
        within(self.read_response(head)).await
    }

    /// Bytes that were read and belong to no response.
    pub(crate) fn buffered(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Everything that arrives until the other side closes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        within(async {
            let mut all = std::mem::take(&mut self.buffer);
            // A reset is an end too.
            let _end = self.stream.read_to_end(&mut all).await;
            all
        })
        .await
    }

    async fn read_response(&mut self, to_head: bool) -> Response {
        let head = loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = self.buffer.split_off(end + 4);
                let head = std::mem::replace(&mut self.buffer, rest);
                break String::from_utf8(head).unwrap();
            }
            assert!(self.more().await, "closed within a head: {:?}", self.buffer);
        };
        let mut response = Response {
            status: head[9..12].parse().unwrap(),
            head,
            body: String::new(),
            whole: true,
        };
        if response.status == 100 {
            return Box::pin(self.read_response(to_head)).await;
        }
        if to_head || matches!(response.status, 101 | 204 | 304) {
            return response;
        }
        let (body, whole) = if response.field("transfer-encoding").is_empty() {
            let length = response.field("content-length").first().map(|text| text.parse().unwrap());
            self.sized(length).await
        } else {
            self.chunked().await
        };
        response.body = String::from_utf8_lossy(&body).into_owned();
        response.whole = whole;
        response
    }

    async fn sized(&mut self, length: Option<usize>) -> (Vec<u8>, bool) {
        let Some(length) = length else {
            while self.more().await {}
            return (std::mem::take(&mut self.buffer), true);
        };
        while self.buffer.len() < length {
            if !self.more().await {
                return (std::mem::take(&mut self.buffer), false);
            }
        }
        let rest = self.buffer.split_off(length);
        (std::mem::replace(&mut self.buffer, rest), true)
    }

    async fn chunked(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let Some(line) = self.buffer.windows(2).position(|two| two == b"\r\n") else {
                if !self.more().await {
                    return (body, false);
                }
                continue;
            };
            let size = std::str::from_utf8(&self.buffer[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            while self.buffer.len() < line + 2 + size + 2 {
                if !self.more().await {
                    return (body, false);
                }
            }
            body.extend_from_slice(&self.buffer[line + 2..line + 2 + size]);
            self.buffer.drain(..line + 2 + size + 2);
            if size == 0 {
                return (body, true);
            }
        }
    }

    async fn more(&mut self) -> bool {
        self.stream.read_buf(&mut self.buffer).await.is_ok_and(|size| size > 0)
    }
}

/// Awaits `future`, and fails after ten seconds.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::select! {
        done = future => done,
        () = tokio::time::sleep(Duration::from_secs(10)) => panic!("nothing came for ten seconds"),
    }
}
