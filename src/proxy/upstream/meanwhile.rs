//! A response that arrives while its request is still being sent.
//!
//! The client may read the response slowly, or finish its upload before it reads at all. The upload must not
//! wait for that, so a task sends the rest of it over the same connection, until it is complete or the response
//! has no reader any more. This is rare: the upstream must answer in the middle of an upload.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Frame;
use tokio::task::AbortHandle;

use super::connection::Alone;
use crate::proxy::h1::Error;

/// A connection that is read here and written by a task. Dropping this ends the task.
#[derive(Debug)]
pub(super) struct Meanwhile {
    both: Arc<Mutex<Both>>,
    task: AbortHandle,
}

/// Shared by the reader and the task. Both are on one thread, and neither holds the lock while it waits.
#[derive(Debug)]
struct Both {
    /// `None` once it was taken back, or closed because the request broke off.
    connection: Option<Alone>,
    /// How the request broke off, for the reader, which waits here.
    broken: Option<Error>,
    reader: Option<Waker>,
}

impl Meanwhile {
    /// Sends the rest of the request on `connection`.
    pub(super) fn new(connection: Alone) -> Self {
        let connection = Some(connection);
        let both = Arc::new(Mutex::new(Both { connection, broken: None, reader: None }));
        let task = tokio::spawn(send(Arc::clone(&both))).abort_handle();
        Self { both, task }
    }

    /// The next piece of the response's body.
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

    /// How much of the response's body is left, if that is known.
    pub(super) fn left(&self) -> Option<u64> {
        lock(&self.both).connection.as_ref().and_then(|connection| connection.link.left())
    }

    /// Takes the connection back. The rest of the request is not sent.
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
