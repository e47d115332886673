//! Moves large bodies from one socket to the other without copying them into this process.
//!
//! Half of the cost of a megabyte is copying it out of the kernel and back. If nobody here reads a body (both
//! sides speak HTTP/1.1 in clear text, and its length is known), the kernel can hand its pages on: from the
//! upstream's socket into a pipe, and from the pipe into the client's socket (`splice(2)`). That takes two
//! system calls per piece, like reading and writing, and pays off from about 48 KiB.
//!
//! A pipe is lent for one piece: it is taken empty, filled, drained, and given back. So a request that waits
//! for its upstream holds none; only a client that does not read keeps one. A worker has at most [`MOST`]. If
//! none is free, the data is copied instead; nobody waits for a pipe. A pipe that is not empty is never given
//! back, because its bytes belong to one answer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;

use self::system::Ends;

/// If less of a body is left, it is copied, because that is at least as cheap.
pub(crate) const LEAST: u64 = 48 * 1024;
/// The capacity of a pipe, in bytes.
const ROOM: usize = 256 * 1024;
/// The most pipes of a worker. By default, all processes of a user may have 64 MiB in pipes together
/// (`pipe-user-pages-soft`).
const MOST: usize = 32;
/// How many unused pipes are kept.
const KEPT: usize = 4;

/// The pipes of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Empty pipes.
    idle: Mutex<Vec<Ends>>,
    /// How many exist, including the lent ones.
    open: AtomicUsize,
}

/// A lent pipe, and what it holds.
#[derive(Debug)]
pub(crate) struct Pipe {
    ends: Option<Ends>,
    /// How many bytes it holds.
    held: usize,
    pipes: Pipes,
}

impl Pipes {
    /// A pipe filled with at most `most` bytes from `socket`; an empty one at the end. `None` if no pipe is free.
    pub(crate) fn poll_fill(
        &self,
        socket: &TcpStream,
        cx: &mut Context<'_>,
        most: u64,
    ) -> Poll<Option<io::Result<Pipe>>> {
        let size = usize::try_from(most).unwrap_or(ROOM).min(ROOM);
        loop {
            ready!(socket.poll_read_ready(cx))?;
            let Some(mut pipe) = self.take() else {
                return Poll::Ready(None);
            };
            match pipe.fill(socket, size) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                filled => return Poll::Ready(Some(filled.map(|()| pipe))),
            }
        }
    }

    /// Takes an empty pipe.
    fn take(&self) -> Option<Pipe> {
        let idle = self.lock().pop();
        let ends = match idle {
            Some(ends) => ends,
            None => self.open()?,
        };
        Some(Pipe { ends: Some(ends), held: 0, pipes: self.clone() })
    }

    fn open(&self) -> Option<Ends> {
        if self.0.open.load(Ordering::Relaxed) >= MOST {
            return None;
        }
        match Ends::open(ROOM) {
            Ok(ends) => {
                self.0.open.fetch_add(1, Ordering::Relaxed);
                Some(ends)
            }
            Err(error) => {
                tracing::debug!(%error, "There is no pipe to be had: a large body is copied.");
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Ends>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pipe {
    /// How many bytes it holds.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    /// Must be empty: of a full pipe, too, the kernel says that it would block.
    fn fill(&mut self, socket: &TcpStream, size: usize) -> io::Result<()> {
        if let Some(ends) = &self.ends {
            self.held = ends.fill(socket, size)?;
        }
        Ok(())
    }

    /// Drains it into `socket`. Ready when it is empty.
    pub(crate) fn poll_drain(
        &mut self,
        socket: &TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(ends) = &self.ends else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        while self.held > 0 {
            ready!(socket.poll_write_ready(cx))?;
            match ends.drain(socket, self.held) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                drained => {
                    let drained = drained?;
                    if drained == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    self.held = self.held.saturating_sub(drained);
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// An empty pipe is given back; any other is closed.
impl Drop for Pipe {
    fn drop(&mut self) {
        let ends = self.ends.take();
        let mut idle = self.pipes.lock();
        match ends {
            Some(ends) if self.held == 0 && idle.len() < KEPT => idle.push(ends),
            _ => {
                self.pipes.0.open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// A socket that is written to just before a pipe is drained into it. The kernel is told that more data follows
/// (`MSG_MORE`), and sends both together. Otherwise an answer's head would be a segment of its own and wake the
/// client for nothing.
///
/// The writer must drain a pipe next. If that has to wait, the kernel still sends what it has, as soon as
/// everything before it is acknowledged.
#[derive(Debug)]
pub(crate) struct Before<'a>(pub(crate) &'a TcpStream);

impl AsyncWrite for Before<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_io(Interest::WRITABLE, || system::send_before(self.0, parts)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The data that follows is not the end.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io::{self, IoSlice};
    use std::os::fd::OwnedFd;

    use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
    use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
    use tokio::io::Interest;
    use tokio::net::TcpStream;

    /// The two ends of a pipe.
    #[derive(Debug)]
    pub(super) struct Ends {
        out: OwnedFd,
        into: OwnedFd,
    }

    /// Sends `parts`; more data follows them.
    pub(super) fn send_before(socket: &TcpStream, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        Ok(sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)?)
    }

    impl Ends {
        /// A pipe with this capacity.
        pub(super) fn open(room: usize) -> io::Result<Self> {
            let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            fcntl_setpipe_size(&into, room)?;
            Ok(Self { out, into })
        }

        /// Moves at most `size` bytes out of `socket`.
        pub(super) fn fill(&self, socket: &TcpStream, size: usize) -> io::Result<usize> {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            socket.try_io(Interest::READABLE, || {
                Ok(splice(socket, None, &self.into, None, size, flags)?)
            })
        }

        /// Moves at most `size` bytes into `socket`.
        pub(super) fn drain(&self, socket: &TcpStream, size: usize) -> io::Result<usize> {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            socket.try_io(Interest::WRITABLE, || {
                Ok(splice(&self.out, None, socket, None, size, flags)?)
            })
        }
    }
}

/// Other systems have no such call.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::io::{self, IoSlice};

    use tokio::net::TcpStream;

    pub(super) fn send_before(_: &TcpStream, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Never exists.
    #[derive(Debug)]
    pub(super) enum Ends {}

    impl Ends {
        pub(super) fn open(_: usize) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn fill(&self, _: &TcpStream, _: usize) -> io::Result<usize> {
            match *self {}
        }

        pub(super) fn drain(&self, _: &TcpStream, _: usize) -> io::Result<usize> {
            match *self {}
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    async fn filled(pipes: &Pipes, socket: &TcpStream, most: u64) -> Option<io::Result<Pipe>> {
        poll_fn(|cx| pipes.poll_fill(socket, cx, most)).await
    }

    #[tokio::test]
    async fn what_is_poured_comes_out_as_it_went_in() {
        let pipes = Pipes::default();
        let ((from, mut source), (to, mut sink)) = (connected().await, connected().await);
        let bytes: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let write = async { source.write_all(&bytes).await.unwrap() };
        let pour = async {
            let mut left = bytes.len() as u64;
            while left > 0 {
                let mut pipe = filled(&pipes, &from, left).await.unwrap().unwrap();
                left -= pipe.held() as u64;
                poll_fn(|cx| pipe.poll_drain(&to, cx)).await.unwrap();
            }
        };
        let read = async {
            let mut read = vec![0; bytes.len()];
            sink.read_exact(&mut read).await.unwrap();
            read
        };
        let ((), (), read) = tokio::join!(write, pour, read);
        assert!(read == bytes);
        assert_eq!((pipes.0.open.load(Ordering::Relaxed), pipes.lock().len()), (1, 1));
        drop(source);
        assert_eq!(filled(&pipes, &from, 1).await.unwrap().unwrap().held(), 0, "the end");
    }

    #[tokio::test]
    async fn a_pipe_that_holds_something_never_comes_back_and_there_is_a_bound() {
        let pipes = Pipes::default();
        let (from, mut source) = connected().await;
        source.write_all(&[b'x'; MOST]).await.unwrap();
        let mut lent = Vec::new();
        for _ in 0..MOST {
            lent.push(filled(&pipes, &from, 1).await.unwrap().unwrap());
        }
        source.write_all(b"y").await.unwrap();
        assert!(filled(&pipes, &from, 1).await.is_none());
        lent.clear();
        assert_eq!((pipes.0.open.load(Ordering::Relaxed), pipes.lock().len()), (0, 0));
        assert_eq!(filled(&pipes, &from, 1).await.unwrap().unwrap().held(), 1);
    }
}
