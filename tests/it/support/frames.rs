//! HTTP/2 frame by frame, for what no library would say.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::proxy::within;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// Flags.
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const ENDS: u8 = END_STREAM | END_HEADERS;

/// Settings.
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The reason of a reset, or of a GOAWAY.
    pub(crate) fn reason(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Settings as a payload.
pub(crate) fn settings(all: &[(u16, u32)]) -> Vec<u8> {
    let one = |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
    all.iter().flat_map(one).collect()
}

/// Fields as a header block: literals that nobody remembers.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        text(&mut block, name);
        text(&mut block, value);
    }
    block
}

fn text(block: &mut Vec<u8>, text: &str) {
    integer(block, 7, text.len());
    block.extend(text.as_bytes());
}

/// An integer behind a prefix of so many bits, the others of which are zero (RFC 7541 §5.1).
fn integer(block: &mut Vec<u8>, bits: u32, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        return block.push(u8::try_from(value).unwrap());
    }
    block.push(u8::try_from(most).unwrap());
    let mut rest = value - most;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128 + 128).unwrap());
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap());
}

/// The block of a request for `path`, with these further fields.
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let line = [(":method", method), (":scheme", "http"), (":authority", "t"), (":path", path)];
    block(&[&line[..], fields].concat())
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Raw<S> {
    pub(crate) stream: S,
}

impl Raw<TcpStream> {
    /// Connects as a client, and greets with these settings.
    pub(crate) async fn connect(address: SocketAddr, greeting: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::greet(stream, greeting).await
    }

    /// Connects as a client, and sends the preface without the SETTINGS that belong to it.
    pub(crate) async fn without_settings(address: SocketAddr) -> Self {
        let mut raw = Self { stream: TcpStream::connect(address).await.unwrap() };
        raw.write(PREFACE).await;
        raw
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    /// Greets as a client.
    pub(crate) async fn greet(stream: S, greeting: &[(u16, u32)]) -> Self {
        let mut raw = Self { stream };
        raw.write(PREFACE).await;
        raw.send(SETTINGS, 0, 0, &settings(greeting)).await;
        raw
    }

    /// Greets as a server, once the client has.
    pub(crate) async fn welcome(stream: S, greeting: &[(u16, u32)]) -> Self {
        let mut raw = Self { stream };
        let mut preface = [0; 24];
        within(raw.stream.read_exact(&mut preface)).await.unwrap();
        assert_eq!(preface, PREFACE);
        raw.send(SETTINGS, 0, 0, &settings(greeting)).await;
        raw
    }

    /// Writes bytes; whoever has closed does not take them.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> bool {
        within(self.stream.write_all(bytes)).await.is_ok()
    }

    /// Sends a frame.
    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.write(&frame(kind, flags, stream, payload)).await
    }

    /// Sends a whole request without a body.
    pub(crate) async fn ask(&mut self, stream: u32, path: &str) {
        self.send(HEADERS, ENDS, stream, &request("GET", path, &[])).await;
    }

    /// Opens a window: a stream's, or the connection's.
    pub(crate) async fn open(&mut self, stream: u32, more: u32) {
        self.send(WINDOW_UPDATE, 0, stream, &more.to_be_bytes()).await;
    }

    /// The next frame, SETTINGS answered on the way; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let size = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; size as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
            let frame = Frame { kind: head[3], flags: head[4], stream, payload };
            match (frame.kind, frame.flags & ACK) {
                (SETTINGS, 0) => drop(self.send(SETTINGS, ACK, 0, &[]).await),
                (SETTINGS, _) => {}
                _ => return Some(frame),
            }
        }
    }

    /// The next frame that is of interest.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Frame {
        within(async {
            loop {
                let frame = self.next().await.expect("the connection ended before");
                if wanted(&frame) {
                    return frame;
                }
            }
        })
        .await
    }

    /// The next frame of this type on this stream.
    pub(crate) async fn of(&mut self, kind: u8, stream: u32) -> Frame {
        self.until(|frame| (frame.kind, frame.stream) == (kind, stream)).await
    }

    /// All that comes until the connection ends.
    pub(crate) async fn rest(&mut self) -> Vec<Frame> {
        let mut all = Vec::new();
        within(async {
            while let Some(frame) = self.next().await {
                all.push(frame);
            }
        })
        .await;
        all
    }
}
