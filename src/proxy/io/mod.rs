//! What messages go over.

pub(crate) mod nearby;
pub(crate) mod peer;
pub(crate) mod pour;
pub(crate) mod rewound;

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::proxy::tls::{Greeted, Secured};

/// The transport of one connection. The common one is called directly; whatever else there is, through a table.
pub(crate) enum Io {
    /// A socket.
    Tcp(TcpStream),
    /// TLS over one, to an upstream.
    Tls(Secured<TcpStream>),
    /// TLS over one, from a client.
    Served(Greeted<TcpStream>),
    /// Anything else: a rehearsal's pipe, a test's.
    Other(Box<dyn Transport>),
}

/// What can stand in for a socket.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Transport for T {}

impl Io {
    /// Whether nothing lies to be read, neither bytes nor an end. A socket is only asked by a system call where
    /// the runtime has heard of something: otherwise its own note of what is ready says it.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        match self {
            Self::Tcp(socket) => {
                let read = socket.try_read(&mut byte);
                read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
            Self::Tls(_) | Self::Served(_) | Self::Other(_) => {
                let mut cx = Context::from_waker(Waker::noop());
                Pin::new(self).poll_read(&mut cx, &mut ReadBuf::new(&mut byte)).is_pending()
            }
        }
    }

    /// Ready when a read may find something; without a system call.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_read_ready(cx),
            Self::Tls(_) | Self::Served(_) | Self::Other(_) => Poll::Ready(Ok(())),
        }
    }

    /// The socket, where it is that and nothing else.
    pub(crate) const fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(socket) => Some(socket),
            Self::Tls(_) | Self::Served(_) | Self::Other(_) => None,
        }
    }

    /// From now on, or no longer, the end of the connection is one that nobody takes for the end of a message: a
    /// reset, where there is such a thing. An end that TLS has not said is a break as it is (RFC 8446 §6.1), but clients
    /// are known that do not look.
    pub(crate) fn breaks_at_end(&self, breaks: bool) {
        let socket = match self {
            Self::Tcp(socket) => socket,
            Self::Tls(tls) => tls.get_ref().0,
            Self::Served(tls) => tls.get_ref().0,
            // A pipe has one kind of end.
            Self::Other(_) => return,
        };
        if let Err(error) = SockRef::from(socket).set_linger(breaks.then_some(Duration::ZERO)) {
            tracing::debug!(%error, "SO_LINGER could not be set.");
        }
    }

    /// Says goodbye, as far as that needs no waiting: TLS has a word for it (RFC 8446 §6.1). A socket's is its close.
    pub(crate) fn farewell(&mut self) {
        if !matches!(self, Self::Tcp(_)) {
            let mut cx = Context::from_waker(Waker::noop());
            let _said = Pin::new(self).poll_shutdown(&mut cx).is_ready();
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
            Self::Served(tls) => Pin::new(tls).poll_read(cx, buf),
            Self::Other(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
            Self::Served(tls) => Pin::new(tls).poll_write(cx, buf),
            Self::Other(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
            Self::Served(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
            Self::Other(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
            Self::Served(tls) => tls.is_write_vectored(),
            Self::Other(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Self::Served(tls) => Pin::new(tls).poll_flush(cx),
            Self::Other(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Self::Served(tls) => Pin::new(tls).poll_shutdown(cx),
            Self::Other(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(socket) => f.debug_tuple("Tcp").field(socket).finish(),
            Self::Tls(_) | Self::Served(_) => f.write_str("Tls"),
            Self::Other(_) => f.write_str("Other"),
        }
    }
}
