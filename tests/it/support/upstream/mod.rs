//! A scripted upstream: a server on loopback that does what a test says, request by request, and records the
//! exact bytes that it receives.

/// Reads requests.
mod read;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use self::read::{read_body, read_head};
use super::message::field;

/// What to do with one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Send these bytes once the request is complete, and keep the connection.
    Answer(Vec<u8>),
    /// Send these bytes once the request is complete, then close.
    AnswerAndClose(Vec<u8>),
    /// Send these bytes once the head has arrived, read no more of the body, and keep the connection open.
    Early(Vec<u8>),
    /// Send these bytes once the head and this many bytes of the body have arrived, then close.
    EarlyAndClose(usize, Vec<u8>),
    /// Send the parts with a pause of this length in between, and keep the connection.
    Slowly(Duration, Vec<Vec<u8>>),
    /// Send these bytes once the request is complete, then nothing, with the connection open.
    AnswerAndHang(Vec<u8>),
    /// Ask for the body with a 100, and send these bytes once the request is complete.
    Ask(Vec<u8>),
    /// Send the first bytes once the head has arrived, and the others once the request is complete.
    Before(Vec<u8>, Vec<u8>),
    /// Send these bytes once the request is complete, then return whatever arrives.
    Echo(Vec<u8>),
    /// Close without a byte, once the request is complete.
    Close,
    /// Reset the connection, once the request is complete.
    Reset,
    /// Never answer.
    Hang,
}

/// What to do with a connection, before any request.
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
    /// The head, including the empty line.
    pub(crate) head: String,
    /// The body, decoded.
    pub(crate) body: Vec<u8>,
    /// The lines after a chunked body.
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
        field(&self.head, name)
    }
}

/// The action for each request, by its number, from 0, and its head.
type Script = Arc<dyn Fn(usize, &Arrived) -> Act + Send + Sync>;
/// Which connections are served, by number, from 0.
type Doors = Arc<dyn Fn(usize) -> Door + Send + Sync>;

/// The running server. It stops when dropped.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// The address on which it listens.
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

    /// Answers every request on `listener` with `body`.
    pub(crate) fn behind(listener: TcpListener, body: &'static str) -> Self {
        Self::on(listener, |_| Door::Open, move |_, _| always(200, "", body))
    }

    /// Plays `acts` over pipes, and returns the proxy's ends: open, idle connections.
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

    /// Waits until `done` returns true for the requests; fails after ten seconds.
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

/// The stream of a request.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {
    /// Makes its end a reset.
    fn resets(&self) -> std::io::Result<()>;
}

impl Connection for TcpStream {
    fn resets(&self) -> std::io::Result<()> {
        self.set_zero_linger()
    }
}

impl Connection for DuplexStream {
    fn resets(&self) -> std::io::Result<()> {
        // A pipe has only one way to end.
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
    // An error means that the other side ended.
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

/// Holds the connection open until the other side closes it.
async fn hang(mut stream: impl Connection) -> std::io::Result<()> {
    let mut sink = [0; 4096];
    while stream.read(&mut sink).await? > 0 {}
    Ok(())
}

/// A response with a length.
pub(crate) fn answer(status: u16, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let known = http::StatusCode::from_u16(status).ok();
    let reason = known.and_then(|status| status.canonical_reason()).unwrap_or_default();
    format!("HTTP/1.1 {status} {reason}\r\n{fields}content-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Answers every request with this.
pub(crate) fn always(status: u16, fields: &str, body: &str) -> Act {
    Act::Answer(answer(status, fields, body))
}
