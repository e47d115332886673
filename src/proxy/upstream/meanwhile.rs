//! An answer that comes while its request is still being sent.
//!
//! Whoever reads the answer may read slowly, or wait for the request to end before it reads at all: the upload
//! must not wait for that. So a task of its own sends what is left, over the same connection, until it is done or
//! the answer's reader is. Few requests have one: an upstream that answers in the middle of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Frame;
use tokio::task::AbortHandle;

use super::connection::Alone;
use crate::proxy::h1::Error;

/// A connection that is read here and written by a task, which ends with this.
#[derive(Debug)]
pub(super) struct Meanwhile {
    both: Arc<Mutex<Both>>,
    task: AbortHandle,
}

/// What the reader and the task share. Both are on one thread, and neither holds it while it waits.
#[derive(Debug)]
struct Both {
    /// `None` once it was taken, or closed because the request broke.
    connection: Option<Alone>,
    /// How the request broke, for the reader, which waits here.
    broken: Option<Error>,
    reader: Option<Waker>,
}

impl Meanwhile {
    /// Has the rest of the request that is on `connection` sent.
    pub(super) fn new(connection: Alone) -> Self {
        let connection = Some(connection);
        let both = Arc::new(Mutex::new(Both { connection, broken: None, reader: None }));
        let task = tokio::spawn(send(Arc::clone(&both))).abort_handle();
        Self { both, task }
    }

    /// The next piece of the answer's body.
    pub(super) fn poll_body(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut both = lock(&self.both);
        if let Some(error) = both.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let polled = match &mut both.connection {
            Some(connection) => connection.link.poll_body(cx),
            None => Poll::Ready(None),
        };
        if polled.is_pending() {
            both.reader = Some(cx.waker().clone());
        }
        polled
    }

    /// How much of the answer's body is left, where that is known.
    pub(super) fn left(&self) -> Option<u64> {
        lock(&self.both).connection.as_ref().and_then(|connection| connection.link.left())
    }

    /// The connection back. What is still to be sent is not sent by anybody any more.
    pub(super) fn take(&self) -> Option<Alone> {
        lock(&self.both).connection.take()
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn send(both: Arc<Mutex<Both>>) {
    let sent = std::future::poll_fn(|cx| match &mut lock(&both).connection {
        Some(connection) => connection.link.poll_upload(cx),
        None => Poll::Ready(()),
    });
    sent.await;
    let mut both = lock(&both);
    both.broken = both.connection.as_mut().and_then(|connection| connection.link.take_broken());
    if both.broken.is_some() {
        both.connection = None;
        if let Some(reader) = both.reader.take() {
            reader.wake();
        }
    }
}

fn lock(both: &Mutex<Both>) -> MutexGuard<'_, Both> {
    both.lock().unwrap_or_else(PoisonError::into_inner)
}
