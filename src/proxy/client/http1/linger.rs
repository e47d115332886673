//! Closes a client connection.
//!
//! If a connection is closed while its client still sends, the system resets it, and the client may see the
//! reset before the answer. So if unread data may remain, the proxy closes its sending side first and discards
//! what still arrives for a while (RFC 9112 §9.6).

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::Http1Session;
use crate::proxy::io::Io;

/// How many bytes a client may still send after its last answer, if that came before the end of an upload.
const LINGER_BYTES: usize = 64 * 1024 * 1024;
/// How many of them are read at a time.
const LINGER_ROOM: usize = 64 * 1024;
/// How long it may stall while the proxy drains.
const DRAIN_PATIENCE: Duration = Duration::from_secs(1);

/// What is left of the limits for a client that still sends. It may stall as long as in any body
/// (`limits.bodyTimeout`). The connection carries no request any more, so `limits.idleTimeout` applies too.
struct Linger {
    patience: Duration,
    until: Pin<Box<Sleep>>,
    bytes: usize,
    sink: Box<[MaybeUninit<u8>]>,
}

impl Http1Session {
    /// Closes the connection, and lingers if more data may arrive.
    pub(super) async fn close(&mut self) -> io::Result<()> {
        self.break_at_end(false);
        self.departure = None;
        let patience = self.worker.site().runtime.limits.body_timeout;
        let mut linger = None;
        std::future::poll_fn(|cx| {
            if linger.is_none() {
                // Nothing more will come, so closing a plain socket says the same without a call of its own.
                let mut conn = self.conn.lock();
                if conn.is_over() && matches!(conn.io()?, Io::Tcp(_)) {
                    return Poll::Ready(Ok(()));
                }
                drop(conn);
                ready!(self.poll_shutdown(cx))?;
                if self.conn.lock().is_over() {
                    return Poll::Ready(Ok(()));
                }
            }
            let linger = linger.get_or_insert_with(|| Linger::new(patience));
            if self.ends() {
                linger.shorten(DRAIN_PATIENCE);
            }
            linger.poll(self.conn.lock().io()?, cx).map(Ok)
        })
        .await
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(self.conn.lock().io()?).poll_shutdown(cx);
        if polled.is_pending() != self.blocked {
            self.blocked = polled.is_pending();
            self.state.set_blocked(self.blocked);
        }
        polled
    }
}

impl Linger {
    fn new(patience: Duration) -> Self {
        let until = Box::pin(sleep(patience));
        Self { patience, until, bytes: LINGER_BYTES, sink: Box::new_uninit_slice(LINGER_ROOM) }
    }

    /// Allows no longer stalls than `patience`.
    fn shorten(&mut self, patience: Duration) {
        if patience < self.patience {
            self.patience = patience;
            self.restart();
        }
    }

    fn restart(&mut self) {
        let now = Instant::now();
        self.until.as_mut().reset(now.checked_add(self.patience).unwrap_or(now));
    }

    /// Ready when the client has closed, or a limit is reached.
    fn poll(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<()> {
        let mut progress = false;
        loop {
            let mut buf = ReadBuf::uninit(&mut self.sink);
            match Pin::new(&mut *io).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    progress = true;
                    self.bytes = self.bytes.saturating_sub(buf.filled().len());
                    if self.bytes == 0 {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        if progress {
            self.restart();
        }
        self.until.as_mut().poll(cx)
    }
}
