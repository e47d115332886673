//! Notices that the other side of a connection has closed it, although bytes that it sent before are still unread.
//!
//! A reader finds the end only after all bytes before it. If nobody reads them (the Flow does not want the body, or the
//! next request is waiting), the end would be noticed too late. The kernel reports it at once, with the events of the
//! socket, but whoever waits until a socket is readable gets no further event while bytes are unread. So a second
//! descriptor of the socket is watched. On it, the readiness for reading is cleared whenever bytes arrive, so that only
//! the end remains.
//!
//! A reset is always noticed. A close is noticed while everything that the other side sent fits into the buffer of this
//! side's socket: otherwise its end waits with the rest of its bytes.
//!
//! This costs four system calls for a request that needs it, and nothing for the others.

use std::io;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Watches a socket for its end only.
#[derive(Debug)]
pub(crate) struct Departure(TcpStream);

impl Departure {
    /// Watches `socket`.
    ///
    /// # Errors
    /// When there is no free descriptor.
    pub(crate) fn of(socket: &TcpStream) -> io::Result<Self> {
        let second = SockRef::from(socket).try_clone()?;
        Ok(Self(TcpStream::from_std(second.into())?))
    }

    /// Ready when the other side has closed the connection or its own half of it, or has reset it.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // An error means that the runtime ends.
            let known = ready!(self.0.poll_read_ready(cx)).and_then(|()| {
                let ready = self.0.ready(Interest::READABLE).now_or_never();
                ready.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
            });
            if known.is_ok_and(|ready| !ready.is_read_closed()) {
                // Somebody else reads the bytes that have arrived.
                let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                let _forgotten = self.0.try_io(Interest::READABLE, nothing).is_err();
            } else {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Waker;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[tokio::test]
    async fn the_end_is_noticed_before_the_bytes_are_read() {
        for reset in [false, true] {
            let (near, mut far) = connected().await;
            far.write_all(&vec![b'x'; 100_000]).await.unwrap();
            let departure = Departure::of(&near).unwrap();
            let mut cx = Context::from_waker(Waker::noop());
            near.readable().await.unwrap();
            assert!(departure.poll(&mut cx).is_pending());
            far.write_all(b"more").await.unwrap();
            near.readable().await.unwrap();
            assert!(departure.poll(&mut cx).is_pending());
            if reset {
                SockRef::from(&far).set_linger(Some(std::time::Duration::ZERO)).unwrap();
            }
            drop(far);
            poll_fn(|cx| departure.poll(cx)).await;
            // Whoever begins to watch later also notices it, and the bytes are still there.
            let late = Departure::of(&near).unwrap();
            poll_fn(|cx| late.poll(cx)).await;
            assert!(near.try_read(&mut [0]).is_ok() || reset);
        }
    }

    #[tokio::test]
    async fn a_half_closed_connection_has_ended() {
        let (near, mut far) = connected().await;
        let departure = Departure::of(&near).unwrap();
        far.write_all(b"x").await.unwrap();
        far.shutdown().await.unwrap();
        poll_fn(|cx| departure.poll(cx)).await;
    }
}
