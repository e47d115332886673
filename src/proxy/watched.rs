//! The bytes of a client's connection: when a request's head begins to arrive, what is said between and within
//! the library's messages, and how it is closed.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::watch::State;

/// What a client is told whose head did not come in time (RFC 9110 §15.5.9).
const TOO_LATE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// How long, and how much, a client may go on sending after its answer.
const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 * 1024;

/// What the library says when a body is first read whose client waits to be asked for it.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What a client's connection runs over.
pub(crate) trait Line: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// From now on, or no longer, the end of the connection is one that no client takes for the end of an
    /// answer: a reset, where the line has such a thing.
    fn breaks_at_end(&self, breaks: bool);
}

impl Line for TcpStream {
    fn breaks_at_end(&self, breaks: bool) {
        if let Err(error) = SockRef::from(self).set_linger(breaks.then_some(Duration::ZERO)) {
            tracing::debug!(%error, "SO_LINGER could not be set.");
        }
    }
}

impl Line for DuplexStream {
    /// A pipe has one kind of end.
    fn breaks_at_end(&self, _: bool) {}
}

/// The connection's bytes; notes when the head of a request begins to arrive.
///
/// A connection that is closed while its client still sends is reset by the system, and the reset may
/// overtake the answer. So where a request was answered before it was read, the way back is closed first,
/// and what still comes is read for a while (RFC 9112 §9.6).
///
/// A client whose head is late is answered here: the HTTP library answers heads, not the want of one. It
/// then finds the connection at its end.
///
/// An answer to an HTTP/1.0 client whose length nobody knows ends with the connection (RFC 9112 §6.3). While it
/// is on its way the connection would be reset, whatever ends it, this process's end included; only behind the
/// last byte it closes.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    io: T,
    state: Arc<State>,
    /// Whether the last write found no room.
    blocked: bool,
    /// Whether what was written before is held on the way, for want of room.
    held: bool,
    /// What is to be written before anything of the library's.
    own: Vec<u8>,
    /// Whether an end now would be a reset.
    breaks: bool,
    linger: Option<Linger>,
}

/// What is left of the patience with a client that still sends.
#[derive(Debug)]
struct Linger {
    until: Pin<Box<Sleep>>,
    bytes: usize,
}

impl<T> Watched<T> {
    /// Watches `io` for `state`.
    pub(crate) const fn new(io: T, state: Arc<State>) -> Self {
        Self {
            io,
            state,
            blocked: false,
            held: false,
            own: Vec::new(),
            breaks: false,
            linger: None,
        }
    }

    /// What is watched.
    pub(crate) fn into_inner(self) -> T {
        self.io
    }
}

impl<T: Line> Watched<T> {
    /// The last word to a client whose head is late. There is room for it, unless an earlier answer still
    /// waits to go out: then there is nothing to say that would be understood.
    fn say_late(&mut self, cx: &mut Context<'_>) {
        if !self.blocked
            && let Poll::Ready(Err(error)) = Pin::new(&mut self.io).poll_write(cx, TOO_LATE)
        {
            tracing::debug!(%error, "A client whose head is late was gone already.");
        }
    }

    /// Notes whether the client takes bytes.
    fn wrote<R>(&mut self, polled: Poll<R>) -> Poll<R> {
        if polled.is_pending() != self.blocked {
            self.blocked = polled.is_pending();
            self.state.set_blocked(self.blocked);
        }
        polled
    }

    /// Notes whether what was written before has left. A socket holds nothing; TLS does, so that a client may take
    /// no bytes though every write found room.
    fn pushed<R>(&mut self, polled: Poll<R>) -> Poll<R> {
        if polled.is_ready() && !self.held {
            return polled;
        }
        self.held = polled.is_pending();
        self.wrote(polled)
    }

    /// Ready when all of our own is out.
    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own.is_empty() {
            let polled = Pin::new(&mut self.io).poll_write(cx, &self.own);
            let size = ready!(self.wrote(polled))?;
            if size == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.own.drain(..size.min(self.own.len()));
        }
        Poll::Ready(Ok(()))
    }

    /// The library writes `bytes`, and there is something to say: what is still to be written before them is,
    /// and what belongs behind their first line is put there, of which they then are as many as were taken.
    fn poll_within(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<Option<usize>>> {
        if self.state.speech().take_unframed() {
            self.breaks = true;
            self.io.breaks_at_end(true);
        }
        ready!(self.poll_own(cx))?;
        if bytes.starts_with(CONTINUE) {
            self.own.extend_from_slice(CONTINUE);
            return Poll::Ready(Ok(Some(CONTINUE.len())));
        }
        let behind = self.state.speech().take_behind();
        let line = bytes.windows(2).position(|two| two == b"\r\n");
        let line = line.and_then(|end| bytes.get(..end.saturating_add(2)));
        let Some(line) = line.filter(|_| !behind.is_empty()) else {
            return Poll::Ready(Ok(None));
        };
        self.own.extend_from_slice(line);
        self.own.extend_from_slice(&behind);
        Poll::Ready(Ok(Some(line.len())))
    }

    /// The library has nothing to write.
    fn poll_between(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_own(cx))?;
            self.own = self.state.speech().take_before();
            if self.own.is_empty() {
                break;
            }
        }
        self.state.flushed();
        Poll::Ready(Ok(()))
    }

    /// Ready when the client has ended, or patience has.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut sink = [MaybeUninit::uninit(); 4096];
        let linger = self.linger.get_or_insert_with(|| Linger {
            until: Box::pin(sleep(LINGER_TIME)),
            bytes: LINGER_BYTES,
        });
        loop {
            let mut buf = ReadBuf::uninit(&mut sink);
            match Pin::new(&mut self.io).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    linger.bytes = linger.bytes.saturating_sub(buf.filled().len());
                    if linger.bytes == 0 {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return linger.until.as_mut().poll(cx),
            }
        }
    }
}

impl<T: Line> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.state.is_late() {
            self.say_late(cx);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.state.heard();
        }
        polled
    }
}

impl<T: Line> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if (!self.own.is_empty() || self.state.speech().any())
            && let Some(size) = ready!(self.poll_within(cx, buf))?
        {
            return Poll::Ready(Ok(size));
        }
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.own.is_empty() || self.state.speech().any() {
            // A head is whole in the first.
            let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| buf);
            return self.poll_write(cx, first);
        }
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.own.is_empty() || self.state.speech().any() {
            ready!(self.poll_between(cx))?;
        }
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.pushed(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.breaks) {
            // The library shuts down what has come to its end.
            self.io.breaks_at_end(false);
        }
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        ready!(self.pushed(polled))?;
        if self.state.leaves_unread() {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::watch::Connections;
    use proptest::prelude::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use tokio::io::AsyncReadExt;

    /// One request, as the connection's bytes have it.
    #[derive(Clone, Debug)]
    struct Said {
        before: Vec<String>,
        /// Whether the library asks for the body first.
        asks: bool,
        behind: bool,
        body: usize,
    }

    const LINE: &str = "content-length: 7\r\n";

    impl Said {
        /// What the client reads, or, of it, what the library writes.
        fn bytes(&self, all: bool) -> String {
            let asked = if self.asks { "HTTP/1.1 100 Continue\r\n\r\n" } else { "" };
            let before = if all { self.before.concat() } else { String::new() };
            let behind = if all && self.behind { LINE } else { "" };
            let body = "b".repeat(self.body);
            format!("{before}{asked}HTTP/1.1 200 OK\r\n{behind}x: 1\r\n\r\n{body}")
        }
    }

    /// The library's flush: all of `buffer`, at most `most` bytes at a time, then the connection's.
    fn poll_flush<T: Line>(
        watched: &mut Watched<T>,
        buffer: &mut Vec<u8>,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        while !buffer.is_empty() {
            let some = &buffer[..most.min(buffer.len())];
            let size = ready!(Pin::new(&mut *watched).poll_write(cx, some)).unwrap();
            buffer.drain(..size);
        }
        Pin::new(watched).poll_flush(cx).map(Result::unwrap)
    }

    /// Says all of it over a pipe of so many bytes, as the library and the service do in turn.
    async fn say(all: &[Said], pipe: usize, most: usize) -> String {
        let (near, mut far) = tokio::io::duplex(pipe);
        let connections = Connections::default();
        let (state, _registered) = connections.register();
        let mut watched = Watched::new(near, Arc::clone(&state));
        let writing = async {
            let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
            state.woken_by(&waker);
            let mut buffer = Vec::new();
            for said in all {
                state.begin();
                for before in &said.before {
                    state.say_before(before.as_bytes()).unwrap();
                }
                if state.speech().answer() || said.behind {
                    let mut quiet = pin!(state.speech().quiet());
                    poll_fn(|cx| {
                        if quiet.as_mut().poll(cx).is_ready() {
                            return Poll::Ready(());
                        }
                        let _flushed = poll_flush(&mut watched, &mut buffer, most, cx);
                        Poll::Pending
                    })
                    .await;
                }
                if said.behind {
                    state.speech().behind(LINE.as_bytes().to_vec());
                }
                buffer.extend_from_slice(said.bytes(false).as_bytes());
                if said.behind {
                    // A line is in the library's first write, however much of the rest is.
                    let whole = buffer.len();
                    poll_fn(|cx| poll_flush(&mut watched, &mut buffer, whole, cx)).await;
                }
            }
            poll_fn(|cx| poll_flush(&mut watched, &mut buffer, most, cx)).await;
            drop(watched);
        };
        let reading = async {
            let mut read = String::new();
            far.read_to_string(&mut read).await.unwrap();
            read
        };
        tokio::join!(writing, reading).1
    }

    fn said() -> impl Strategy<Value = Said> {
        let before = prop::collection::vec("[a-z]{1,9}", 0..4).prop_map(|all| {
            all.iter().map(|x| format!("HTTP/1.1 103 \r\nx: {x}\r\n\r\n")).collect()
        });
        (before, any::<bool>(), any::<bool>(), 0_usize..200)
            .prop_map(|(before, asks, behind, body)| Said { before, asks, behind, body })
    }

    proptest! {
        /// Whatever the client takes at a time, and whatever is left of the answers before: everything is said
        /// at its place, once, and nothing within anything else.
        #[test]
        fn all_is_said_at_its_place(
            all in prop::collection::vec(said(), 1..6),
            pipe in 1_usize..300,
            most in 1_usize..300,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let heard = runtime.block_on(say(&all, pipe, most));
            let wanted: String = all.iter().map(|said| said.bytes(true)).collect();
            prop_assert_eq!(heard, wanted);
        }
    }

    /// Takes every byte, and lets it go when it is told to.
    struct Holds {
        lets_go: bool,
    }

    impl Line for Holds {
        fn breaks_at_end(&self, _: bool) {}
    }

    impl AsyncRead for Holds {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Holds {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.lets_go { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_flush(cx)
        }
    }

    #[test]
    fn a_client_that_makes_no_room_takes_nothing_though_writes_succeed() {
        let connections = Connections::default();
        let (state, _registered) = connections.register();
        let mut watched = Watched::new(Holds { lets_go: false }, Arc::clone(&state));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let polled = Pin::new(&mut watched).poll_write(&mut cx, b"answer");
        assert!(polled.is_ready() && !state.is_blocked());
        assert!(Pin::new(&mut watched).poll_flush(&mut cx).is_pending());
        assert!(state.is_blocked());
        watched.io.lets_go = true;
        assert!(Pin::new(&mut watched).poll_flush(&mut cx).is_ready());
        assert!(!state.is_blocked());
        watched.io.lets_go = false;
        assert!(Pin::new(&mut watched).poll_shutdown(&mut cx).is_pending());
        assert!(state.is_blocked(), "a farewell is held, too");
    }
}
