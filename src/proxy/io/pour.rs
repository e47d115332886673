//! Large bodies poured from one socket into the other, without coming into this process's memory.
//!
//! Half of what a megabyte costs a proxy is copying it out of the system and back in. Where nobody here looks at a
//! body (both sides speak HTTP/1.1 in clear text, its length is known) the system can hand its pages on: from the
//! upstream's socket into a pipe, from the pipe into the client's (`splice(2)`). It costs two system calls for each
//! piece, as reading and writing do, and pays from some 48 KiB on.
//!
//! A pipe is lent for one piece: taken empty, filled, drained, given back. So whoever waits for an upstream holds none,
//! and only clients that do not take what is there keep one. There are [`MOST`] of a worker; who gets none copies, and
//! nobody waits for one. A pipe that still holds something is never given back: its bytes are one answer's.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;

use self::system::Ends;

/// A body of which less is left is copied: that is cheaper, or as cheap.
pub(crate) const LEAST: u64 = 48 * 1024;
/// How much a pipe holds, in bytes.
const ROOM: usize = 256 * 1024;
/// How many pipes a worker has at most. A user's processes may have 64 MiB in pipes together, unless the system is told
/// otherwise (`pipe-user-pages-soft`).
const MOST: usize = 32;
/// How many it keeps while nobody needs them.
const KEPT: usize = 4;

/// The pipes of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Empty ones.
    idle: Mutex<Vec<Ends>>,
    /// How many there are, lent ones included.
    open: AtomicUsize,
}

/// A pipe that is lent, and what it holds.
#[derive(Debug)]
pub(crate) struct Pipe {
    ends: Option<Ends>,
    /// So many bytes.
    held: usize,
    pipes: Pipes,
}

impl Pipes {
    /// A pipe filled with what has come at `socket`, at most `most` bytes, which is nothing at the end. `None` where there
    /// is no pipe to be had.
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

    /// An empty pipe.
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
    /// How much it holds, in bytes.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    /// Only when it is empty: of one that is full, too, the system says that it would block.
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

/// Goes back where it is empty, closes where it is not.
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

/// A socket that is written to before a pipe is drained into it, at once: the system is told that more comes
/// (`MSG_MORE`), and sends both together. Without that an answer's head is a segment of its own, which wakes the client
/// for nothing.
///
/// Whoever writes here must drain a pipe next. Where that has to wait for room the system waits for nothing more: it
/// sends what it has as soon as what is before it is acknowledged.
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

    /// What is drained next ends nothing.
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

    /// Sends `parts`, behind which more comes.
    pub(super) fn send_before(socket: &TcpStream, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        Ok(sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)?)
    }

    impl Ends {
        /// A pipe that holds so many bytes.
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

    /// None.
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
