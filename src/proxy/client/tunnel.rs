//! A tunnel: after a 101, bytes pass in both directions, and nobody here interprets them (RFC 9110 §7.8).
//!
//! The tunnel runs on the task of the client's connection. Until it ends, it counts against the limit of
//! connections, and its request is in flight. It ends when both sides have closed, when neither has sent a byte
//! for `limits.tunnelTimeout`, and when a drain's grace period is over. Each direction has its own buffer,
//! which is filled only when it is empty, so that a slow reader slows its writer.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::proxy::io::Io;
use crate::proxy::io::rewound::Rewound;
use crate::proxy::io::wrapped::{Hooks, Wrapped};
use crate::proxy::request::flight::Flight;
use crate::proxy::upstream::connection::Alone;

/// A tunnel, after the client's side has switched the protocol too.
#[derive(Debug)]
pub(crate) struct Tunnel {
    far: Alone,
    flight: Flight,
}

/// Why a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both sides have closed, or one has failed.
    Ended,
    /// Neither side has sent anything for the timeout.
    Idle,
    /// The process stops.
    Cut,
}

impl Tunnel {
    /// A tunnel that runs until it ends. `flight` ends with it.
    pub(crate) const fn new(far: Alone, flight: Flight) -> Self {
        Self { far, flight }
    }

    /// Copies bytes in both directions (`near` is the client's side) until both sides have closed, no byte has
    /// passed for `idle`, or `cut` is cancelled.
    pub(crate) async fn run(self, near: Rewound<Io>, idle: Duration, cut: &CancellationToken) {
        let Self { mut far, flight } = self;
        let end = pass(near, far.link.bytes(), idle, cut).await;
        tracing::debug!(reason = ?end, "A tunnel has ended.");
        drop(far);
        // Tunnelled bytes are not a body.
        flight.finish(0);
    }
}

/// Copies bytes until both sides have closed or one fails, neither has sent anything for `idle`, or `cut`.
async fn pass<A, B>(near: A, far: B, idle: Duration, cut: &CancellationToken) -> End
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let heard = Arc::new(Mutex::new(Instant::now()));
    let mut near = Wrapped { io: near, hooks: Heard(Arc::clone(&heard)) };
    let mut far = Wrapped { io: far, hooks: Heard(Arc::clone(&heard)) };
    let copied = copy_bidirectional(&mut near, &mut far);
    let silent = async {
        while let Some(until) = last(&heard).checked_add(idle) {
            if Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
        // A timeout beyond the end of time never fires.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        // A side that fails ends the tunnel like one that closes: there is nobody left to tell.
        _broken = copied => End::Ended,
        () = silent => End::Idle,
        () = cut.cancelled() => End::Cut,
    }
}

/// Remembers when a read last returned data, so that idleness is noticed without a timer per read.
#[derive(Debug)]
struct Heard(Arc<Mutex<Instant>>);

fn last(heard: &Mutex<Instant>) -> Instant {
    *heard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hooks for Heard {
    fn has_read(&mut self, polled: Poll<io::Result<()>>, size: usize) -> Poll<io::Result<()>> {
        if size > 0 {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const IDLE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn bytes_pass_until_both_sides_have_ended() {
        let ((near, mut client), (far, mut server)) = (duplex(4), duplex(4));
        let cut = CancellationToken::new();
        let passed = pass(near, far, IDLE, &cut);
        let talk = async {
            let (mut asked, mut answered) = (String::new(), String::new());
            let ask = async {
                client.write_all(b"a question").await.unwrap();
                client.shutdown().await.unwrap();
                client.read_to_string(&mut answered).await.unwrap();
            };
            let answer = async {
                server.read_to_string(&mut asked).await.unwrap();
                server.write_all(b"and its answer").await.unwrap();
                server.shutdown().await.unwrap();
            };
            tokio::join!(ask, answer);
            (asked, answered)
        };
        let (end, said) = tokio::join!(passed, talk);
        assert_eq!(end, End::Ended);
        assert_eq!(said, ("a question".to_owned(), "and its answer".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_tunnel_ends_and_one_with_a_word_now_and_then_does_not() {
        let ((near, mut client), (far, mut server)) = (duplex(64), duplex(64));
        let begun = Instant::now();
        let cut = CancellationToken::new();
        let passed = pass(near, far, IDLE, &cut);
        let talk = async {
            for _ in 0..10 {
                tokio::time::sleep(IDLE / 2).await;
                server.write_all(b"x").await.unwrap();
                client.read_exact(&mut [0]).await.unwrap();
            }
        };
        let (end, ()) = tokio::join!(passed, talk);
        assert_eq!(end, End::Idle);
        assert_eq!(begun.elapsed(), 10 * (IDLE / 2) + IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_ends_a_tunnel() {
        let ((near, _client), (far, _server)) = (duplex(64), duplex(64));
        let cut = CancellationToken::new();
        cut.cancel();
        assert_eq!(pass(near, far, IDLE, &cut).await, End::Cut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_slows_its_writer() {
        let ((near, mut client), (far, _server)) = (duplex(64), duplex(64));
        let cut = CancellationToken::new();
        let passed = pass(near, far, IDLE, &cut);
        let mut sent = 0_usize;
        let write = async {
            loop {
                client.write_all(&[0; 1024]).await.unwrap();
                sent += 1024;
            }
        };
        tokio::select! {
            end = passed => assert_eq!(end, End::Idle),
            () = write => {}
        }
        assert!(sent <= 16 * 1024, "nobody read, and {sent} bytes were taken");
    }
}
