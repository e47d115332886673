//! A client on a raw socket. It sends what the test wrote, and checks strictly what it reads.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use socket2::SockRef;

use super::message::{Framing, Head, Reader};
use super::watched::PATIENCE;

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    reader: Reader<TcpStream>,
}

/// A whole response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let reader = Reader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    /// Writes these bytes. A peer that has already closed shows when the answer is read.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        if let Err(error) = self.stream.write_all(bytes.as_ref()) {
            assert!(super::message::broken(&error), "{error}");
        }
    }

    /// The next final response to anything but HEAD.
    pub(crate) fn answer(&mut self) -> Answer {
        self.read(false)
    }

    /// The next final response to HEAD.
    pub(crate) fn answer_to_head(&mut self) -> Answer {
        self.read(true)
    }

    /// Sends and reads.
    pub(crate) fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Answer {
        self.send(bytes);
        self.answer()
    }

    /// The head of the next response, whose body is still to be read.
    pub(crate) fn head(&mut self) -> Head {
        self.reader.head().expect("an answer").expect("an answer, not the end")
    }

    /// The rest of the response whose head was read; `None` if it breaks off.
    pub(crate) fn body(&mut self, head: Head) -> Option<Answer> {
        let framing = head.framing().unwrap_or(Framing::Close);
        let mut body = Vec::new();
        let take = |piece: &[u8]| {
            body.extend_from_slice(piece);
            true
        };
        match self.reader.body(framing, take) {
            Ok(_) => Some(Answer { status: 200, head, body }),
            Err(error) => {
                assert!(super::message::broken(&error), "no body: {error}");
                None
            }
        }
    }

    /// Whether the proxy closes the connection without another byte.
    pub(crate) fn ended(&mut self) -> bool {
        self.reader.ended()
    }

    /// The next response, or none if the connection ends first.
    pub(crate) fn answer_or_end(&mut self) -> Option<Answer> {
        match self.reader.head() {
            Ok(None) => None,
            Ok(Some(head)) => Some(self.rest(head, false)),
            Err(error) if super::message::broken(&error) => None,
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// Whether the next response is complete. `None` if the connection ends before or at its last byte, so that
    /// it carries no other.
    pub(crate) fn whole_answer_or_end(&mut self) -> Option<bool> {
        let gone = |error: std::io::Error| {
            assert!(super::message::broken(&error), "no answer: {error}");
        };
        let head = self.reader.head().map_err(gone).ok()??;
        let last = head.field("connection").is_some_and(|value| value == "close");
        let framing = head.framing().unwrap_or(Framing::Close);
        let whole = self.reader.body(framing, |_| true).map_err(gone).ok()?;
        (!last).then_some(whole)
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    fn read(&mut self, to_head: bool) -> Answer {
        loop {
            let head = self.reader.head().expect("an answer").expect("an answer, not the end");
            let answer = self.rest(head, to_head);
            if answer.status >= 200 {
                return answer;
            }
        }
    }

    fn rest(&mut self, head: Head, to_head: bool) -> Answer {
        let mut words = head.line.splitn(3, ' ');
        assert_eq!(words.next(), Some("HTTP/1.1"), "{}", head.line);
        let status = words.next().and_then(|digits| digits.parse().ok()).expect("a status");
        let framing = head.framing().unwrap_or(Framing::Close);
        let bodiless = to_head || status < 200 || matches!(status, 204 | 304);
        let framing = if bodiless { Framing::Empty } else { framing };
        let mut body = Vec::new();
        let take = |piece: &[u8]| {
            body.extend_from_slice(piece);
            true
        };
        self.reader.body(framing, take).expect("a whole body");
        Answer { status, head, body }
    }
}

impl Answer {
    pub(crate) fn field<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.head.field(name)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("a body of JSON ({error}): {}", self.text()))
    }
}

/// A request's bytes, with its length if it has a body.
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in fields {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    if !body.is_empty() || method == "POST" || method == "PUT" {
        write!(head, "Content-Length: {}\r\n", body.len()).unwrap();
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// Sends a request on a new connection.
pub(crate) fn ask(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Answer {
    Client::connect(address).ask(bytes)
}

/// Sends a GET on a new connection.
pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, request("GET", path, &[], b""))
}

/// Sends a POST on a new connection.
pub(crate) fn post(address: SocketAddr, path: &str, body: &str) -> Answer {
    ask(address, request("POST", path, &[("Content-Type", "application/json")], body.as_bytes()))
}
