//! Holds a request body back until the upstream asks for it: `Expect: 100-continue` (RFC 9110 §10.1.1).
//!
//! A client that expects a 100 gets it when its body is first read. So the body is not read until the upstream,
//! which gets the same expectation, has asked for it. If the upstream refuses the request by its head alone, it
//! is not sent a byte of the body, and the client need not send one either.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// How long to wait for an upstream that may not know the expectation.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the body may be sent. Set by the connection that reads the upstream's 100.
#[derive(Debug, Default)]
pub(crate) struct Permission {
    given: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// One attempt's wait for its [`Permission`].
#[derive(Debug)]
pub(crate) struct Hold {
    permission: Arc<Permission>,
    /// Created when the wait begins.
    until: Option<Pin<Box<Sleep>>>,
}

impl Permission {
    /// Whether the body may be sent.
    pub(crate) fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// The upstream has asked for the body.
    pub(crate) fn give(&self) {
        self.given.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Hold {
    /// Waits for `permission`.
    pub(crate) const fn new(permission: Arc<Permission>) -> Self {
        Self { permission, until: None }
    }

    /// The permission that it waits for.
    pub(crate) const fn permission(&self) -> &Arc<Permission> {
        &self.permission
    }

    /// Ready when the body may be sent.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = Some(cx.waker().clone());
        *self.permission.waker.lock().unwrap_or_else(PoisonError::into_inner) = waker;
        if self.permission.given.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        until.as_mut().poll(cx).map(|()| self.permission.given.store(true, Ordering::Release))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_body_goes_when_it_is_asked_for() {
        let permission = Arc::new(Permission::default());
        let mut hold = Hold::new(Arc::clone(&permission));
        let begun = Instant::now();
        let asked = async {
            sleep(PATIENCE / 4).await;
            permission.give();
        };
        tokio::join!(poll_fn(|cx| hold.poll(cx)), asked);
        assert_eq!(begun.elapsed(), PATIENCE / 4);
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_never_asks_gets_it_all_the_same() {
        let mut hold = Hold::new(Arc::default());
        let begun = Instant::now();
        poll_fn(|cx| hold.poll(cx)).await;
        assert_eq!(begun.elapsed(), PATIENCE);
    }
}
