//! A scripted upstream: a server on loopback that does what a test says, request by request, and records
//! the exact bytes that it was sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

/// What to do with one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Send these bytes once the request is whole, and keep the connection.
    Answer(Vec<u8>),
    /// Send these bytes once the request is whole, then close.
    AnswerAndClose(Vec<u8>),
    /// Send these bytes as soon as the head is there, read no more of the body, keep the connection open.
    Early(Vec<u8>),
    /// Send these bytes as soon as the head and this many bytes of the body are there, then close.
    EarlyAndClose(usize, Vec<u8>),
    /// Send the parts, a pause of this length between two, and keep the connection.
    Slowly(Duration, Vec<Vec<u8>>),
    /// Send these bytes after the whole request, then nothing, with the connection open.
    AnswerAndHang(Vec<u8>),
    /// Ask for the body with a 100, and send these bytes once the request is whole.
    Ask(Vec<u8>),
    /// Send the first bytes as soon as the head is there, the others once the request is whole.
    Before(Vec<u8>, Vec<u8>),
    /// Send these bytes once the request is whole, then whatever comes, back.
    Echo(Vec<u8>),
    /// Close without a byte, once the request is whole.
    Close,
    /// Reset the connection, once the request is whole.
    Reset,
    /// Never answer.
    Hang,
}

/// What to do with one connection, before any request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Serve it.
    Open,
    /// Close it without a byte.
    Shut,
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    /// Which connection, from 0.
    pub(crate) connection: usize,
    /// The head, up to and with the empty line.
    pub(crate) head: String,
    /// The body, decoded.
    pub(crate) body: Vec<u8>,
    /// The lines behind a chunked body.
    pub(crate) trailers: Vec<String>,
    /// Whether all of it arrived.
    pub(crate) whole: bool,
}

impl Arrived {
    /// The request line.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// The values of a field, in order.
    pub(crate) fn field(&self, name: &str) -> Vec<&str> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }
}

/// Which act for which request: the request's number, from 0, and what is known of it so far (its head).
type Script = Arc<dyn Fn(usize, &Arrived) -> Act + Send + Sync>;
/// Which connections are served: by number, from 0.
type Doors = Arc<dyn Fn(usize) -> Door + Send + Sync>;

/// The running server; dropped, it stops.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    log: Arc<Log>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Log {
    requests: Mutex<Vec<Arrived>>,
    counts: Mutex<Counts>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    accepted: usize,
    ended: usize,
}

impl Upstream {
    /// Plays `acts` in order, the last one for all further requests.
    pub(crate) async fn play(acts: impl IntoIterator<Item = Act>) -> Self {
        let acts: Vec<Act> = acts.into_iter().collect();
        Self::run(move |number, _| acts[number.min(acts.len() - 1)].clone()).await
    }

    /// Asks `script` for each request.
    pub(crate) async fn run(
        script: impl Fn(usize, &Arrived) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::guarded(|_| Door::Open, script).await
    }

    /// Asks `doors` for each connection, then `script` for each request.
    pub(crate) async fn guarded(
        doors: impl Fn(usize) -> Door + Send + Sync + 'static,
        script: impl Fn(usize, &Arrived) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), doors, script)
    }

    /// Answers every request with `body`, behind `listener`.
    pub(crate) fn behind(listener: TcpListener, body: &'static str) -> Self {
        Self::on(listener, |_| Door::Open, move |_, _| always(200, "", body))
    }

    /// Plays `acts` over pipes, of which it gives the proxy's ends: connections that are open and idle.
    pub(crate) fn piped(acts: impl IntoIterator<Item = Act>) -> (Self, Vec<DuplexStream>) {
        let acts: Vec<Act> = acts.into_iter().collect();
        let log = Arc::new(Log::default());
        let script: Script = Arc::new(move |number, _| acts[number.min(acts.len() - 1)].clone());
        let mut connections = JoinSet::new();
        let mut ends = Vec::new();
        for number in 0..4 {
            let (near, far) = duplex(1 << 20);
            ends.push(near);
            connections.spawn(attend(far, number, Arc::clone(&script), Arc::clone(&log)));
        }
        let task = tokio::spawn(async move { while connections.join_next().await.is_some() {} });
        (Self { address: ([127, 0, 0, 1], 1).into(), log, task }, ends)
    }

    fn on(
        listener: TcpListener,
        doors: impl Fn(usize) -> Door + Send + Sync + 'static,
        script: impl Fn(usize, &Arrived) -> Act + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let (doors, script): (Doors, Script) = (Arc::new(doors), Arc::new(script));
        let task = tokio::spawn(accept(listener, doors, script, Arc::clone(&log)));
        Self { address, log, task }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Arrived> {
        self.log.requests.lock().unwrap().clone()
    }

    /// How many connections there were.
    pub(crate) fn accepted(&self) -> usize {
        self.log.counts.lock().unwrap().accepted
    }

    /// Waits until `done` holds of the requests; fails after ten seconds.
    pub(crate) async fn until(&self, done: impl Fn(&[Arrived]) -> bool) -> Vec<Arrived> {
        self.wait(|log| {
            let requests = log.requests.lock().unwrap();
            done(&requests).then(|| requests.clone())
        })
        .await
    }

    /// Waits until `count` connections have ended; fails after ten seconds.
    pub(crate) async fn ended(&self, count: usize) {
        self.wait(|log| (log.counts.lock().unwrap().ended >= count).then_some(())).await;
    }

    async fn wait<T>(&self, look: impl Fn(&Log) -> Option<T>) -> T {
        let found = async {
            loop {
                let changed = self.log.changed.notified();
                if let Some(found) = look(&self.log) {
                    return found;
                }
                changed.await;
            }
        };
        tokio::select! {
            found = found => found,
            () = tokio::time::sleep(Duration::from_secs(10)) => {
                panic!("the upstream waited in vain; it saw {:#?}", self.requests())
            }
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a request comes over.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {
    /// Has its end be a reset.
    fn resets(&self) -> std::io::Result<()>;
}

impl Connection for TcpStream {
    fn resets(&self) -> std::io::Result<()> {
        self.set_zero_linger()
    }
}

impl Connection for DuplexStream {
    fn resets(&self) -> std::io::Result<()> {
        // A pipe has one way to end.
        Ok(())
    }
}

async fn accept(listener: TcpListener, doors: Doors, script: Script, log: Arc<Log>) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        log.counts.lock().unwrap().accepted += 1;
        log.changed.notify_waiters();
        let (script, log) = (Arc::clone(&script), Arc::clone(&log));
        if doors(number) == Door::Open {
            connections.spawn(attend(stream, number, script, log));
        }
    }
}

/// Serves a connection to its end.
async fn attend(stream: impl Connection, number: usize, script: Script, log: Arc<Log>) {
    // An error is the other side's end.
    let _ended = serve(stream, number, &script, &log).await;
    log.counts.lock().unwrap().ended += 1;
    log.changed.notify_waiters();
}

async fn serve(
    mut stream: impl Connection,
    connection: usize,
    script: &Script,
    log: &Log,
) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let Some(head) = read_head(&mut stream, &mut buffer).await? else {
            return Ok(());
        };
        let (act, place) = {
            let mut requests = log.requests.lock().unwrap();
            let arrived =
                Arrived { connection, head, body: Vec::new(), trailers: Vec::new(), whole: false };
            let number = requests.len();
            let act = script(number, &arrived);
            requests.push(arrived);
            (act, number)
        };
        log.changed.notify_waiters();
        let enough = match &act {
            Act::Early(_) => Some(0),
            Act::EarlyAndClose(size, _) => Some(*size),
            _ => None,
        };
        if matches!(act, Act::Ask(_)) {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        if let Act::Before(bytes, _) = &act {
            stream.write_all(bytes).await?;
        }
        read_body(&mut stream, &mut buffer, log, place, enough).await?;
        match act {
            Act::Echo(bytes) => {
                stream.write_all(&bytes).await?;
                stream.write_all(&buffer).await?;
                let (mut read, mut write) = tokio::io::split(stream);
                tokio::io::copy(&mut read, &mut write).await?;
                return Ok(());
            }
            Act::Answer(bytes) | Act::Ask(bytes) | Act::Before(_, bytes) => {
                stream.write_all(&bytes).await?;
            }
            Act::Early(bytes) | Act::AnswerAndHang(bytes) => {
                stream.write_all(&bytes).await?;
                return hang(stream).await;
            }
            Act::AnswerAndClose(bytes) | Act::EarlyAndClose(_, bytes) => {
                stream.write_all(&bytes).await?;
                return Ok(());
            }
            Act::Slowly(pause, parts) => {
                for part in parts {
                    stream.write_all(&part).await?;
                    tokio::time::sleep(pause).await;
                }
            }
            Act::Close => return Ok(()),
            Act::Reset => {
                stream.resets()?;
                return Ok(());
            }
            Act::Hang => return hang(stream).await,
        }
    }
}

/// Holds the connection until the other side ends it.
async fn hang(mut stream: impl Connection) -> std::io::Result<()> {
    let mut sink = [0; 4096];
    while stream.read(&mut sink).await? > 0 {}
    Ok(())
}

/// The next head; `None` where the connection ended between two requests.
async fn read_head(
    stream: &mut impl Connection,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<String>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = buffer.split_off(end + 4);
            let head = String::from_utf8_lossy(&std::mem::replace(buffer, rest)).into_owned();
            return Ok(Some(head));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// Reads the body of the request at `place`, or as much of it as is `enough`.
async fn read_body(
    stream: &mut impl Connection,
    buffer: &mut Vec<u8>,
    log: &Log,
    place: usize,
    enough: Option<usize>,
) -> std::io::Result<()> {
    let head = log.requests.lock().unwrap()[place].clone();
    let chunked = !head.field("transfer-encoding").is_empty();
    let length = head.field("content-length").first().map(|text| text.parse::<usize>().unwrap());
    loop {
        let (body, trailers, used, whole) = if chunked {
            decode(buffer)
        } else {
            let wanted = length.unwrap_or(0);
            let used = buffer.len().min(wanted);
            (buffer[..used].to_vec(), Vec::new(), used, used == wanted)
        };
        let size = body.len();
        {
            let mut requests = log.requests.lock().unwrap();
            requests[place].body = body;
            requests[place].trailers = trailers;
            requests[place].whole = whole;
        }
        log.changed.notify_waiters();
        if whole {
            buffer.drain(..used);
            return Ok(());
        }
        if enough.is_some_and(|enough| size >= enough) {
            return Ok(());
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The lines behind the last chunk, and the bytes that they took; `None` where they are not all there.
fn trailers(buffer: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut lines = Vec::new();
    let mut at = 0;
    loop {
        let end = at + buffer[at..].windows(2).position(|two| two == b"\r\n")?;
        if end == at {
            return Some((lines, at + 2));
        }
        lines.push(String::from_utf8_lossy(&buffer[at..end]).into_owned());
        at = end + 2;
    }
}

/// A chunked body as far as it is there: its data, its trailers, the bytes that it took, whether it ended.
fn decode(buffer: &[u8]) -> (Vec<u8>, Vec<String>, usize, bool) {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let Some(line) = buffer[at..].windows(2).position(|two| two == b"\r\n") else {
            return (body, Vec::new(), at, false);
        };
        let size = std::str::from_utf8(&buffer[at..at + line]).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
        let data = at + line + 2;
        if size == 0 {
            return match trailers(&buffer[data..]) {
                Some((trailers, used)) => (body, trailers, data + used, true),
                None => (body, Vec::new(), at, false),
            };
        }
        if buffer.len() < data + size + 2 {
            return (body, Vec::new(), at, false);
        }
        body.extend_from_slice(&buffer[data..data + size]);
        at = data + size + 2;
    }
}

/// A response with a length.
pub(crate) fn answer(status: u16, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\n{fields}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// Answers every request with this.
pub(crate) fn always(status: u16, fields: &str, body: &str) -> Act {
    Act::Answer(answer(status, fields, body))
}
