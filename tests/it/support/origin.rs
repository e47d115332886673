//! A scripted upstream on a real socket. It records what it receives, byte for byte, and follows its script.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use tokio::time::Instant;

use super::message::{Framing, Head, Reader, broken};
use super::watched::{Gate, Watched};

/// How much of a body is kept. All of it is counted.
const KEPT: usize = 1 << 20;

/// What the origin does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// Sends these bytes, once the request is complete.
    Say(Vec<u8>),
    /// Sends these bytes, once this much of the body has arrived, and reads no more of it.
    Early(usize, Vec<u8>),
    /// Resets the connection, once this much of the body has arrived.
    Reset(usize),
    /// Closes the connection, once the request is complete.
    Close,
    /// Does nothing until the peer leaves.
    Hang,
    /// Sends these bytes, once the request is complete and the gate is open.
    Gated(Gate, Vec<u8>),
    /// Sends the first bytes once the request is complete, and the others once the gate is open.
    Halves(Vec<u8>, Gate, Vec<u8>),
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its body is arriving.
    Arriving,
    /// It is complete.
    Whole,
    /// The peer left before it was complete.
    Cut,
    /// The peer left before it was answered.
    Left,
    /// The script's action was done.
    Served,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
    /// When its head was complete.
    pub(crate) at: Instant,
    pub(crate) head: Head,
    pub(crate) framing: Option<Framing>,
    /// At most the first MiB of its body.
    pub(crate) body: Vec<u8>,
    /// The length of its body.
    pub(crate) length: u64,
    pub(crate) state: State,
}

type Script = dyn Fn(&Head, usize) -> Turn + Send + Sync;

/// A port that is held, so that nobody else gets it, and that refuses connections.
#[derive(Debug)]
pub(crate) struct Port {
    socket: Socket,
    pub(crate) address: SocketAddr,
}

/// A scripted upstream. When dropped, it refuses connections.
#[derive(Debug)]
pub(crate) struct Origin {
    socket: Socket,
    pub(crate) address: SocketAddr,
    seen: Arc<Watched<Vec<Seen>>>,
}

impl Port {
    pub(crate) fn hold() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(&any.into()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        Self { socket, address }
    }

    /// Starts to listen.
    pub(crate) fn listen(
        self,
        script: impl Fn(&Head, usize) -> Turn + Send + Sync + 'static,
    ) -> Origin {
        self.socket.listen(1024).unwrap();
        let seen = Arc::new(Watched::default());
        let listener = TcpListener::from(self.socket.try_clone().unwrap());
        let (script, kept): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&seen));
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                let peer = Peer {
                    connection,
                    stream,
                    script: Arc::clone(&script),
                    seen: Arc::clone(&kept),
                };
                thread::spawn(move || peer.serve());
            }
        });
        Origin { socket: self.socket, address: self.address, seen }
    }
}

impl Origin {
    /// Follows `script`, which gets a head and the number of its request, from 0.
    pub(crate) fn by(script: impl Fn(&Head, usize) -> Turn + Send + Sync + 'static) -> Self {
        Port::hold().listen(script)
    }

    /// Plays these turns in order. A request too many gets a 599, which a test that counts will see.
    pub(crate) fn script(turns: impl IntoIterator<Item = Turn>) -> Self {
        let turns: Vec<Turn> = turns.into_iter().collect();
        Self::by(move |_, number| {
            turns.get(number).cloned().unwrap_or_else(|| answer(599, &[], "the script is over"))
        })
    }

    /// Repeats one turn forever.
    pub(crate) fn always(turn: Turn) -> Self {
        Self::by(move |_, _| turn.clone())
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.now().clone()
    }

    /// How many requests have arrived.
    pub(crate) fn count(&self) -> usize {
        self.seen.now().len()
    }

    /// Waits for this many requests (heads).
    pub(crate) fn until_count(&self, count: usize) -> Vec<Seen> {
        let what = format!("{count} requests at the origin");
        self.seen.until(&what, |seen| (seen.len() >= count).then(|| seen.clone()))
    }

    /// Waits until the request with this number is in this state.
    pub(crate) fn until_state(&self, number: usize, state: State) -> Seen {
        let what = format!("request {number} at the origin to be {state:?}");
        self.seen.until(&what, |seen| seen.get(number).filter(|seen| seen.state == state).cloned())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // This ends the accepting thread.
        self.socket.shutdown(Shutdown::Both).ok();
    }
}

/// One connection.
struct Peer {
    connection: usize,
    stream: TcpStream,
    script: Arc<Script>,
    seen: Arc<Watched<Vec<Seen>>>,
}

impl Peer {
    fn serve(self) {
        let mut reader = Reader::new(self.stream.try_clone().unwrap());
        while let Ok(Some(head)) = reader.head() {
            match self.request(&mut reader, head) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    assert!(broken(&error), "at the origin: {error}");
                    return;
                }
            }
        }
    }

    /// Serves one request. Returns whether the connection goes on.
    fn request(&self, reader: &mut Reader<TcpStream>, head: Head) -> io::Result<bool> {
        let framing = head.framing();
        let (at, state) = (Instant::now(), State::Arriving);
        let connection = self.connection;
        let (turn, number) = self.seen.update(|seen| {
            let number = seen.len();
            let turn = (self.script)(&head, number);
            seen.push(Seen { connection, at, head, framing, body: Vec::new(), length: 0, state });
            (turn, number)
        });
        let enough = match turn {
            Turn::Early(enough, _) | Turn::Reset(enough) => enough,
            _ => usize::MAX,
        };
        let framing = framing.unwrap_or(Framing::Empty);
        let whole = enough == 0 || {
            let take = |piece: &[u8]| self.take(number, piece, enough);
            reader.body(framing, take).inspect_err(|_| self.mark(number, State::Cut))?
        };
        if enough == usize::MAX {
            assert!(whole);
            self.mark(number, State::Whole);
        }
        self.act(turn, number, reader)
    }

    fn take(&self, number: usize, piece: &[u8], enough: usize) -> bool {
        self.seen.update(|seen| {
            let seen = &mut seen[number];
            let room = KEPT.saturating_sub(seen.body.len()).min(piece.len());
            seen.body.extend_from_slice(&piece[..room]);
            seen.length += piece.len() as u64;
            seen.length < enough as u64
        })
    }

    fn mark(&self, number: usize, state: State) {
        self.seen.update(|seen| seen[number].state = state);
    }

    fn act(&self, turn: Turn, number: usize, reader: &mut Reader<TcpStream>) -> io::Result<bool> {
        match turn {
            Turn::Say(bytes) => self.say(number, &bytes),
            Turn::Gated(gate, bytes) => {
                gate.pass();
                self.say(number, &bytes)
            }
            Turn::Halves(first, gate, second) => {
                (&self.stream).write_all(&first)?;
                gate.pass();
                self.say(number, &second)
            }
            Turn::Early(_, bytes) => {
                self.say(number, &bytes)?;
                // The rest is read and discarded: a reset would overtake the answer.
                self.stream.shutdown(Shutdown::Write)?;
                io::copy(&mut (&self.stream), &mut io::sink())?;
                Ok(false)
            }
            Turn::Reset(_) => {
                self.mark(number, State::Served);
                SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))?;
                Ok(false)
            }
            Turn::Close => {
                self.mark(number, State::Served);
                self.stream.shutdown(Shutdown::Both)?;
                Ok(false)
            }
            Turn::Hang => {
                assert!(reader.ended(), "more bytes behind a request that is not answered");
                self.mark(number, State::Left);
                Ok(false)
            }
        }
    }

    fn say(&self, number: usize, bytes: &[u8]) -> io::Result<bool> {
        // Marked before it is written: a client that has read the answer may count on it.
        self.mark(number, State::Served);
        (&self.stream).write_all(bytes)?;
        Ok(!closes(bytes))
    }
}

/// Whether an answer says that its connection closes.
fn closes(bytes: &[u8]) -> bool {
    bytes.windows(17).any(|part| part.eq_ignore_ascii_case(b"connection: close"))
}

/// A whole answer with these fields and this body.
pub(crate) fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> Turn {
    Turn::Say(bytes(status, fields, body))
}

/// Its bytes. The `Date` is fixed, so that what arrives can be compared with what was sent.
pub(crate) fn bytes(status: u16, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\ndate: Sun, 01 Mar 2026 12:00:00 GMT\r\n");
    for (name, value) in fields {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    write!(head, "content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    head.into_bytes()
}
