//! Reads from and writes to a socket with little beside the system call.
//!
//! The runtime's own functions count each call against the task's budget, and the C library's are points at which a thread
//! may be cancelled. Here is neither. A task that only moves data must use up its budget at some time, so that others have
//! their turn: it does when its reads have filled their buffer, and the runtime's function fills a larger one.

use std::io;
use std::mem::MaybeUninit;
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A write to a closed connection is an error and no signal.
#[cfg(target_os = "linux")]
const QUIET: SendFlags = SendFlags::NOSIGNAL;
/// The standard library has turned the signal off.
#[cfg(not(target_os = "linux"))]
const QUIET: SendFlags = SendFlags::empty();

/// Reads what has arrived into `room`, which is not empty: nothing at the end.
///
/// # Errors
/// The connection's error.
pub(crate) fn poll_recv<'a>(
    socket: &TcpStream,
    room: &'a mut [MaybeUninit<u8>],
    cx: &mut Context<'_>,
) -> Poll<io::Result<&'a [u8]>> {
    let mut found = None;
    let tried = socket.try_io(Interest::READABLE, || {
        let ((filled, rest), _) = rustix::net::recv(socket, room, RecvFlags::empty())?;
        // Then the socket is empty, and the runtime need not make another call to know that.
        let drained = !filled.is_empty() && !rest.is_empty();
        found = Some(&*filled);
        if drained { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match (found, tried) {
        (Some(found), _) => Poll::Ready(Ok(found)),
        (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Poll::Ready(Err(error)),
        (None, _) => again(socket.poll_read_ready(cx), cx),
    }
}

/// Writes some of `bytes`, which are not empty: how many.
///
/// # Errors
/// The connection's error.
pub(crate) fn poll_send(
    socket: &TcpStream,
    bytes: &[u8],
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut sent = None;
    let tried = socket.try_io(Interest::WRITABLE, || {
        let size = rustix::net::send(socket, bytes, QUIET)?;
        // Then the system has no more room.
        let full = size < bytes.len();
        sent = Some(size);
        if full { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match (sent, tried) {
        (Some(size), _) => Poll::Ready(Ok(size)),
        (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Poll::Ready(Err(error)),
        (None, _) => again(socket.poll_write_ready(cx), cx),
    }
}

/// The task will be woken once the socket is ready. If it is already, after a moment.
fn again<T>(ready: Poll<io::Result<()>>, cx: &Context<'_>) -> Poll<io::Result<T>> {
    match ready {
        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        Poll::Ready(Ok(())) => cx.waker().wake_by_ref(),
        Poll::Pending => {}
    }
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;
    use std::time::Duration;

    use socket2::SockRef;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    /// The next bytes, of at most so many.
    async fn read(socket: &TcpStream, most: usize) -> Vec<u8> {
        poll_fn(|cx| {
            let mut room = vec![MaybeUninit::uninit(); most];
            poll_recv(socket, &mut room, cx).map(|read| read.unwrap().to_vec())
        })
        .await
    }

    fn polled(socket: &TcpStream) -> Poll<usize> {
        let mut room = [MaybeUninit::uninit(); 9];
        let mut cx = Context::from_waker(Waker::noop());
        poll_recv(socket, &mut room, &mut cx).map(|read| read.unwrap().len())
    }

    #[tokio::test]
    async fn what_arrives_is_read_in_order_and_then_the_end() {
        let (near, mut far) = connected().await;
        far.write_all(b"abcde").await.unwrap();
        assert_eq!(read(&near, 3).await, b"abc");
        assert_eq!(read(&near, 3).await, b"de");
        assert!(polled(&near).is_pending());
        let waiting = tokio::spawn(async move { (read(&near, 9).await, near) });
        tokio::task::yield_now().await;
        far.write_all(b"f").await.unwrap();
        let (more, near) = waiting.await.unwrap();
        assert_eq!(more, b"f");
        far.write_all(b"g").await.unwrap();
        drop(far);
        assert_eq!(read(&near, 9).await, b"g");
        assert_eq!(read(&near, 9).await, b"");
        assert_eq!(read(&near, 9).await, b"");
    }

    #[tokio::test]
    async fn a_reset_is_an_error_for_both() {
        let (near, far) = connected().await;
        SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
        drop(far);
        let broken = poll_fn(|cx| {
            let mut room = [MaybeUninit::uninit(); 9];
            poll_recv(&near, &mut room, cx).map(|read| read.map(<[u8]>::len))
        });
        assert_eq!(broken.await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let sent = poll_fn(|cx| poll_send(&near, b"a", cx)).await;
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn what_is_written_arrives_however_slowly_it_is_read() {
        const SIZE: usize = 32 << 20;
        let (near, mut far) = connected().await;
        let writing = tokio::spawn(async move {
            let (all, mut at, mut waited) = (vec![b'x'; SIZE], 0, 0);
            while at < all.len() {
                at += poll_fn(|cx| {
                    let polled = poll_send(&near, &all[at..], cx);
                    waited += usize::from(polled.is_pending());
                    polled
                })
                .await
                .unwrap();
            }
            waited
        });
        let mut read = vec![0; SIZE];
        far.read_exact(&mut read).await.unwrap();
        assert!(read.iter().all(|byte| *byte == b'x'));
        assert!(writing.await.unwrap() > 0, "it had to wait for room");
    }
}
