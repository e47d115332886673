//! The task of a connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::Connection;
use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

use crate::proxy::h2::{CountsSnapshot, GuardedIo, Outlet, Traffic};
use crate::proxy::io::Io;

/// Reads and writes a connection until it ends.
pub(super) struct Driver {
    connection: Connection<GuardedIo<Io>, Bytes>,
    outlet: Outlet<Io>,
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
    /// The other side floods it with frames.
    #[error("too many frames that belong to no message")]
    Flooded,
    /// The other side did not answer a PING.
    #[error("a PING was not answered (pingInterval)")]
    Silent,
}

impl Driver {
    /// Drives `connection`, whose writes leave through `outlet`. The `counts` are of its bytes and its requests. An `interval`
    /// of zero sends no PINGs.
    pub(super) fn new(
        mut connection: Connection<GuardedIo<Io>, Bytes>,
        outlet: Outlet<Io>,
        (traffic, carried): (Arc<Traffic>, Arc<AtomicU32>),
        interval: Duration,
    ) -> Self {
        let ping_pong = if interval.is_zero() { None } else { connection.ping_pong() };
        let pings = ping_pong.map(|ping_pong| Pings {
            ping_pong,
            interval,
            timer: Box::pin(sleep(interval)),
            mark: traffic.mark(),
            heard: Instant::now(),
            asked: None,
        });
        outlet.gather();
        Self { connection, outlet, traffic, carried, pings }
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DriverError>> {
        let Self { connection, traffic, carried, pings, .. } = self;
        if traffic.take_queued() {
            // Requests are written before anything is read. Otherwise, if the other side now lowers how many it
            // accepts, the library would keep requests until others have ended.
            traffic.hold_reads(true);
            let polled = Pin::new(&mut *connection).poll(cx);
            traffic.hold_reads(false);
            if let Poll::Ready(ended) = polled {
                return Poll::Ready(ended.map_err(DriverError::Broken));
            }
        }
        loop {
            if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(cx) {
                return Poll::Ready(ended.map_err(DriverError::Broken));
            }
            if traffic.violation().is_some() {
                return Poll::Ready(Err(DriverError::Flooded));
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
        driver.outlet.flush(cx);
        polled
    }
}

impl Pings {
    /// Ready when a PING was handed to the library, or one was not answered.
    fn poll(
        &mut self,
        traffic: &Traffic,
        busy: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), DriverError>> {
        if traffic.read_since(self.mark) {
            (self.mark, self.heard, self.asked) = (traffic.mark(), Instant::now(), None);
            // Anything that arrives proves that the other side is there. The answer is taken so that another PING
            // can be sent.
            let _pong = self.ping_pong.poll_pong(cx).is_ready();
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
                    // If this fails, an earlier PING is still unanswered, which serves as well.
                    let _sent = self.ping_pong.send_ping(Ping::opaque());
                    return Poll::Ready(Ok(()));
                }
                (None, None) => self.heard = now,
            }
        }
    }
}
