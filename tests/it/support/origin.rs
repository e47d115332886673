//! A scripted upstream on a real socket: it keeps what it saw, byte for byte, and does as told.

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

/// How much of a body is kept; all of it is counted.
const KEPT: usize = 1 << 20;

/// What the origin does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// These bytes, once the request is whole.
    Say(Vec<u8>),
    /// These bytes once so much of the body has come, and nothing more of it is asked for.
    Early(usize, Vec<u8>),
    /// The connection is reset once so much of the body has come.
    Reset(usize),
    /// The connection is closed once the request is whole.
    Close,
    /// Nothing, until the peer leaves.
    Hang,
    /// These bytes, once the request is whole and the gate is open.
    Gated(Gate, Vec<u8>),
    /// The first bytes, once the request is whole; the others, once the gate is open.
    Halves(Vec<u8>, Gate, Vec<u8>),
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its body is on its way.
    Arriving,
    /// All of it is here.
    Whole,
    /// The peer left before all of it was here.
    Cut,
    /// The peer left before it was answered.
    Left,
    /// What the script says was done.
    Served,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Which connection brought it, from 0.
    pub(crate) connection: usize,
    /// When its head was whole.
    pub(crate) at: Instant,
    pub(crate) head: Head,
    pub(crate) framing: Option<Framing>,
    /// Of its body, at most the first MiB.
    pub(crate) body: Vec<u8>,
    /// How long its body was.
    pub(crate) length: u64,
    pub(crate) state: State,
}

type Script = dyn Fn(&Head, usize) -> Turn + Send + Sync;

/// A port that is held, so that nobody else gets it, and refuses connections.
#[derive(Debug)]
pub(crate) struct Port {
    socket: Socket,
    pub(crate) address: SocketAddr,
}

/// A scripted upstream. Dropped, it refuses connections.
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

    /// Begins to listen.
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
    /// Does as `script` says of a head and the number of its request, from 0.
    pub(crate) fn by(script: impl Fn(&Head, usize) -> Turn + Send + Sync + 'static) -> Self {
        Port::hold().listen(script)
    }

    /// Plays these turns in order. A request too many gets a 599, and a test that counts sees it.
    pub(crate) fn script(turns: impl IntoIterator<Item = Turn>) -> Self {
        let turns: Vec<Turn> = turns.into_iter().collect();
        Self::by(move |_, number| {
            turns.get(number).cloned().unwrap_or_else(|| answer(599, &[], "the script is over"))
        })
    }

    /// Plays one turn again and again.
    pub(crate) fn always(turn: Turn) -> Self {
        Self::by(move |_, _| turn.clone())
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.now().clone()
    }

    /// How many requests have come.
    pub(crate) fn count(&self) -> usize {
        self.seen.now().len()
    }

    /// Waits for so many requests (heads).
    pub(crate) fn until_count(&self, count: usize) -> Vec<Seen> {
        let what = format!("{count} requests at the origin");
        self.seen.until(&what, |seen| (seen.len() >= count).then(|| seen.clone()))
    }

    /// Waits until the request of that number is in that state.
    pub(crate) fn until_state(&self, number: usize, state: State) -> Seen {
        let what = format!("request {number} at the origin to be {state:?}");
        self.seen.until(&what, |seen| seen.get(number).filter(|seen| seen.state == state).cloned())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // Ends the thread that accepts.
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

    /// Serves one request. Whether the connection goes on.
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
                // What is still coming is read away: a reset would overtake the answer.
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
        // Said before it is written: who has read the answer may count on it.
        self.mark(number, State::Served);
        (&self.stream).write_all(bytes)?;
        Ok(!closes(bytes))
    }
}

/// Whether an answer says that it is the connection's last.
fn closes(bytes: &[u8]) -> bool {
    bytes.windows(17).any(|part| part.eq_ignore_ascii_case(b"connection: close"))
}

/// A whole answer with these fields and this body.
pub(crate) fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> Turn {
    Turn::Say(bytes(status, fields, body))
}

/// Its bytes. A `Date` that stays the same, so that what arrives can be compared with what was sent.
pub(crate) fn bytes(status: u16, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\ndate: Sun, 01 Mar 2026 12:00:00 GMT\r\n");
    for (name, value) in fields {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    write!(head, "content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    head.into_bytes()
}
