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
use tokio::time::{Sleep, sleep};

use super::Conversation;
use crate::proxy::io::Io;

/// How long, and how many bytes, a client may still send after its last answer.
const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 * 1024;

/// What is left of these limits.
struct Linger {
    until: Pin<Box<Sleep>>,
    bytes: usize,
}

impl Conversation {
    /// Closes the connection, and lingers if more data may arrive.
    pub(super) async fn close(&mut self) -> io::Result<()> {
        self.break_at_end(false);
        let mut linger = None;
        std::future::poll_fn(|cx| {
            if linger.is_none() {
                ready!(self.poll_shutdown(cx))?;
                if self.talk.lock().is_over() {
                    return Poll::Ready(Ok(()));
                }
            }
            let linger = linger.get_or_insert_with(Linger::new);
            linger.poll(self.talk.lock().io()?, cx).map(Ok)
        })
        .await
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(self.talk.lock().io()?).poll_shutdown(cx);
        if polled.is_pending() != self.blocked {
            self.blocked = polled.is_pending();
            self.state.set_blocked(self.blocked);
        }
        polled
    }
}

impl Linger {
    fn new() -> Self {
        Self { until: Box::pin(sleep(LINGER_TIME)), bytes: LINGER_BYTES }
    }

    /// Ready when the client has closed, or a limit is reached.
    fn poll(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<()> {
        let mut sink = [MaybeUninit::uninit(); 4096];
        loop {
            let mut buf = ReadBuf::uninit(&mut sink);
            match Pin::new(&mut *io).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    self.bytes = self.bytes.saturating_sub(buf.filled().len());
                    if self.bytes == 0 {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.until.as_mut().poll(cx),
            }
        }
    }
}
