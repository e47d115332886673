//! The byte stream under HTTP.

pub(crate) mod acked;
pub(crate) mod buffered;
pub(crate) mod departure;
pub(crate) mod failed_write;
pub(crate) mod loopback;
pub(crate) mod peer;
pub(crate) mod prefixed;
pub(crate) mod socket;
pub(crate) mod splice;
pub(crate) mod wrapped;

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use self::acked::Addresses;
use crate::proxy::tls::{ClientStream, ServerStream};

/// The stream of one connection. A socket, the common case, is called directly; everything else through a vtable.
pub(crate) enum Io {
    /// A socket.
    Tcp(TcpStream),
    /// TLS to an upstream.
    Tls(ClientStream<TcpStream>),
    /// TLS from a client.
    Served(ServerStream<TcpStream>),
    /// Anything else: the pipe of a rehearsal or a test.
    Other(Box<dyn Transport>),
}

/// A stream that can replace a socket.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Transport for T {}

impl Io {
    /// Whether there is nothing to read, neither bytes nor an end. The runtime knows which sockets may be
    /// ready, so a system call is made only for those.
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

    /// Ready when a read may find something. Makes no system call.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_read_ready(cx),
            Self::Tls(_) | Self::Served(_) | Self::Other(_) => Poll::Ready(Ok(())),
        }
    }

    /// The socket, if this is a plain one.
    pub(crate) const fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(socket) => Some(socket),
            Self::Tls(_) | Self::Served(_) | Self::Other(_) => None,
        }
    }

    /// The addresses of its ends, of which `peer` is the other. A pipe has none.
    pub(crate) fn addresses(&self, peer: SocketAddr) -> Option<Addresses> {
        Some(Addresses { local: self.any_socket()?.local_addr().ok()?, peer })
    }

    /// The socket, which may carry TLS.
    pub(crate) fn any_socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(socket) => Some(socket),
            Self::Tls(tls) => Some(tls.get_ref().0),
            Self::Served(tls) => Some(tls.get_ref().0),
            Self::Other(_) => None,
        }
    }

    /// Sets whether closing the connection must be a reset, which nobody can take for the end of a message. Over TLS
    /// a close without `close_notify` is already a break (RFC 8446 §6.1), but some clients do not check that.
    pub(crate) fn breaks_at_end(&self, breaks: bool) {
        // A pipe has only one kind of end.
        let Some(socket) = self.any_socket() else { return };
        if let Err(error) = SockRef::from(socket).set_linger(breaks.then_some(Duration::ZERO)) {
            tracing::debug!(%error, "SO_LINGER could not be set.");
        }
    }

    /// Says goodbye if that needs no waiting: TLS sends `close_notify` (RFC 8446 §6.1). For a socket, closing
    /// is enough.
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
            Self::Tcp(socket) => socket::poll_send(socket, buf, cx),
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
