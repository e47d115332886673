//! The task of a connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::proxy::h2::{self, ClientConnection, CountsSnapshot, PingPong, Traffic};
use crate::proxy::io::Io;

/// Reads and writes a connection until it ends.
pub(super) struct Driver {
    connection: ClientConnection<Io>,
    traffic: Arc<Traffic>,
    /// How many requests it carries.
    carried: Arc<AtomicU32>,
    pings: Option<Pings>,
}

/// If nothing arrives for `interval` while requests are running, sends a PING, and ends the connection if nothing arrives
/// for as long again. Otherwise its requests would be lost one by one, and more would be put on it.
struct Pings {
    ping_pong: PingPong,
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    /// The byte counts and the time when something last arrived.
    mark: CountsSnapshot,
    heard: Instant,
    /// When a PING was sent, until something arrives.
    asked: Option<Instant>,
}

/// Why a connection ended with an error.
#[derive(Debug, thiserror::Error)]
pub(super) enum DriverError {
    /// It broke.
    #[error(transparent)]
    Broken(#[from] h2::Error),
    /// The other side did not answer a PING.
    #[error("a PING was not answered (pingInterval)")]
    Silent,
}

impl Driver {
    /// Drives `connection`. The `counts` are of its bytes and its requests. An `interval`
    /// of zero sends no PINGs.
    pub(super) fn new(
        mut connection: ClientConnection<Io>,
        (traffic, carried): (Arc<Traffic>, Arc<AtomicU32>),
        interval: Duration,
    ) -> Self {
        let ping_pong = (!interval.is_zero()).then(|| connection.ping_pong());
        let pings = ping_pong.map(|ping_pong| Pings {
            ping_pong,
            interval,
            timer: Box::pin(sleep(interval)),
            mark: traffic.mark(),
            heard: Instant::now(),
            asked: None,
        });
        connection.take_turns();
        Self { connection, traffic, carried, pings }
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DriverError>> {
        let Self { connection, traffic, carried, pings, .. } = self;
        loop {
            if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(cx) {
                return Poll::Ready(ended.map_err(DriverError::Broken));
            }
            let Some(pings) = pings else { return Poll::Pending };
            let busy = carried.load(Ordering::Relaxed) > 0;
            // After the connection has read what arrived. If there is a PING to send, it goes around again.
            ready!(pings.poll(traffic, busy, cx))?;
        }
    }
}

impl Future for Driver {
    type Output = Result<(), DriverError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let driver = self.get_mut();
        let polled = driver.poll_connection(cx);
        driver.connection.flush(cx);
        polled
    }
}

impl Pings {
    /// Ready when a PING is to be sent, or one was not answered.
    fn poll(
        &mut self,
        traffic: &Traffic,
        busy: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), DriverError>> {
        if traffic.read_since(self.mark) {
            // Anything that arrives proves that the other side is there.
            (self.mark, self.heard, self.asked) = (traffic.mark(), Instant::now(), None);
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            let since = self.asked.unwrap_or(self.heard);
            let due = since.checked_add(self.interval).filter(|due| *due > now);
            let next = due.or_else(|| now.checked_add(self.interval)).unwrap_or(now);
            self.timer.as_mut().reset(next);
            match (due, self.asked) {
                (Some(_), _) => {}
                (None, Some(_)) => return Poll::Ready(Err(DriverError::Silent)),
                (None, None) if busy => {
                    self.asked = Some(now);
                    // If an earlier PING is still unanswered, that one serves as well.
                    self.ping_pong.send_ping();
                    return Poll::Ready(Ok(()));
                }
                (None, None) => self.heard = now,
            }
        }
    }
}
