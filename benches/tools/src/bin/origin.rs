//! The origin behind the proxies. `origin PORT…` answers on every port, on one thread, and parses as
//! little HTTP as it can, so that it never limits a measurement.
//!
//! `/64k`, `/1m` and paths that end in `/1k` answer with that many bytes. `/post` reads a body and
//! answers with two bytes. `/flaky` is like `/1k`, but every tenth answer is a 503. `/seen` reports how
//! many requests and connections there were.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
static FLAKY: AtomicU64 = AtomicU64::new(0);

static KIB: LazyLock<Vec<u8>> = LazyLock::new(|| answer("200 OK", 1024));
static KIB64: LazyLock<Vec<u8>> = LazyLock::new(|| answer("200 OK", 64 * 1024));
static MIB: LazyLock<Vec<u8>> = LazyLock::new(|| answer("200 OK", 1024 * 1024));
static TWO: LazyLock<Vec<u8>> = LazyLock::new(|| answer("200 OK", 2));
static FAILED: LazyLock<Vec<u8>> = LazyLock::new(|| answer("503 Service Unavailable", 5));
static UNKNOWN: LazyLock<Vec<u8>> = LazyLock::new(|| answer("404 Not Found", 0));

fn answer(status: &str, length: usize) -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nServer: origin\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    answer.resize(answer.len() + length, b'x');
    answer
}

fn main() -> io::Result<()> {
    let ports: Result<Vec<u16>, _> = std::env::args().skip(1).map(|port| port.parse()).collect();
    let ports = ports.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        for port in ports {
            let listener = TcpListener::bind(("127.0.0.1", port)).await?;
            tokio::spawn(accept(Arc::new(listener)));
        }
        std::future::pending().await
    })
}

async fn accept(listener: Arc<TcpListener>) {
    while let Ok((stream, _)) = listener.accept().await {
        CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            // A proxy that closes its connection is no error here.
            serve(stream).await.ok();
        });
    }
}

async fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::with_capacity(64 * 1024);
    loop {
        let head = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
        read.drain(..head);
        skip_body(&mut stream, &mut read, &text).await?;
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        let path = text.split(' ').nth(1).unwrap_or_default();
        let answer: &[u8] = match path {
            "/64k" => &KIB64,
            "/1m" => &MIB,
            "/post" => &TWO,
            "/flaky" if FLAKY.fetch_add(1, Ordering::Relaxed) % 10 == 9 => &FAILED,
            "/flaky" => &KIB,
            path if path.ends_with("/1k") => &KIB,
            "/seen" => {
                let (requests, connections) = (&REQUESTS, &CONNECTIONS);
                let seen = format!(
                    "{} {}",
                    requests.load(Ordering::Relaxed),
                    connections.load(Ordering::Relaxed)
                );
                let length = seen.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{seen}");
                stream.write_all(head.as_bytes()).await?;
                continue;
            }
            _ => &UNKNOWN,
        };
        stream.write_all(answer).await?;
    }
}

/// Skips a body: one of a known length, or a chunked one without trailers.
async fn skip_body(stream: &mut TcpStream, read: &mut Vec<u8>, head: &str) -> io::Result<()> {
    let field = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned())
    };
    if let Some(length) = field("content-length:").and_then(|value| value.parse::<usize>().ok()) {
        let mut left = length;
        loop {
            let here = left.min(read.len());
            read.drain(..here);
            left -= here;
            if left == 0 {
                return Ok(());
            }
            if stream.read_buf(read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    if field("transfer-encoding:").is_some() {
        let last = b"0\r\n\r\n";
        loop {
            if let Some(at) = read.windows(last.len()).position(|five| five == last) {
                read.drain(..at + last.len());
                return Ok(());
            }
            if stream.read_buf(read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    Ok(())
}
