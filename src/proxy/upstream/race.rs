//! Connects to one of several addresses (RFC 8305 §5).
//!
//! The addresses are tried in order. The next one starts when the previous one has failed or has not answered
//! for a while, so an address that swallows packets costs its turn and not the whole timeout. The first
//! connection wins, and the others are dropped.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::sleep;

/// How long an address is tried alone (recommended by RFC 8305 §8).
const TURN: Duration = Duration::from_millis(250);
/// The minimum (the same section).
const LEAST: Duration = Duration::from_millis(10);

/// Returns the first result of `connect` for one of `addresses`, and which, within about `limit` for all of them.
///
/// # Errors
/// Each address's error, in the order in which they failed; none if there is no address.
pub(super) async fn first<T, E, F>(
    addresses: &[SocketAddr],
    limit: Duration,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<(T, SocketAddr), Vec<(SocketAddr, E)>>
where
    F: Future<Output = Result<T, E>>,
{
    let turn = turn(addresses.len(), limit);
    let mut waiting = addresses.iter().copied();
    let mut running = FuturesUnordered::new();
    let mut failed = Vec::new();
    loop {
        if let Some(address) = waiting.next() {
            let connecting = connect(address);
            running.push(async move { (address, connecting.await) });
        }
        let next = async {
            match waiting.len() {
                0 => std::future::pending().await,
                _ => sleep(turn).await,
            }
        };
        tokio::select! {
            biased;
            ended = running.next() => match ended {
                Some((address, Ok(connection))) => return Ok((connection, address)),
                Some((address, Err(error))) => failed.push((address, error)),
                None => return Err(failed),
            },
            () = next => {}
        }
    }
}

/// The turn of each of `addresses`, so that all of them fit into `limit` if possible.
fn turn(addresses: usize, limit: Duration) -> Duration {
    let share = limit.checked_div(u32::try_from(addresses).unwrap_or(u32::MAX));
    share.unwrap_or(TURN).clamp(LEAST, TURN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use tokio::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    /// What an address does: it connects or fails after this many milliseconds, or never answers.
    #[derive(Clone, Copy)]
    enum Does {
        Come(u64),
        Fail(u64),
        Hang,
    }
    use Does::{Come, Fail, Hang};

    /// Which address won, or which failed; after how many milliseconds; and when each was tried.
    async fn race(limit: Duration, does: &[Does]) -> (Result<u16, Vec<u16>>, u128, Vec<u128>) {
        let begun = Instant::now();
        let tried = RefCell::new(Vec::new());
        let addresses: Vec<SocketAddr> =
            (0..does.len()).map(|at| ([127, 0, 0, 1], u16::try_from(at).unwrap()).into()).collect();
        let connect = |address: SocketAddr| {
            tried.borrow_mut().push(begun.elapsed().as_millis());
            let does = does[usize::from(address.port())];
            async move {
                match does {
                    Come(after) => {
                        sleep(Duration::from_millis(after)).await;
                        Ok(())
                    }
                    Fail(after) => {
                        sleep(Duration::from_millis(after)).await;
                        Err(())
                    }
                    Hang => std::future::pending().await,
                }
            }
        };
        let ended = first(&addresses, limit, connect).await;
        let ended = match ended {
            Ok(((), address)) => Ok(address.port()),
            Err(failed) => Err(failed.iter().map(|(address, ())| address.port()).collect()),
        };
        let took = begun.elapsed().as_millis();
        (ended, took, tried.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_is_taken_where_it_comes() {
        assert_eq!(race(SECOND, &[Come(200), Come(0)]).await, (Ok(0), 200, vec![0]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_lets_the_next_begin_at_once() {
        let does = [Fail(0), Fail(20), Come(5)];
        assert_eq!(race(SECOND, &does).await, (Ok(2), 25, vec![0, 0, 20]));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_takes_its_turn_only() {
        assert_eq!(race(SECOND, &[Hang, Hang, Come(5)]).await, (Ok(2), 505, vec![0, 250, 500]));
        // The turns are shorter with more addresses or less time.
        let (ended, took, tried) = race(SECOND / 10, &[Hang, Hang, Come(5)]).await;
        assert_eq!((ended, took), (Ok(2), 73));
        assert_eq!(tried.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_one_still_wins_where_it_is_first_there() {
        assert_eq!(race(SECOND, &[Come(300), Hang]).await, (Ok(0), 300, vec![0, 250]));
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_failed_are_told() {
        assert_eq!(race(SECOND, &[Fail(400), Fail(9)]).await.0, Err(vec![1, 0]));
        assert_eq!(race(SECOND, &[]).await, (Err(vec![]), 0, vec![]));
    }

    #[test]
    fn a_turn_is_never_shorter_than_the_least() {
        assert_eq!(turn(1, SECOND), TURN);
        assert_eq!(turn(5, SECOND), SECOND / 5);
        assert_eq!(turn(5000, SECOND), LEAST);
        assert_eq!(turn(0, SECOND), TURN);
    }
}
