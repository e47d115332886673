//! Rate limits in a store.

use std::sync::Arc;
use std::time::Duration;

use super::script::Script;
use super::{Store, StoreError};

/// A rate, as the generic cell rate algorithm has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    /// The interval at which one more is due.
    pub(crate) interval: Duration,
    /// How many may come at once after a pause.
    pub(crate) burst: u32,
}

/// What came of taking from a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// There is a turn after this wait; so many are left.
    Turn { wait: Duration, left: u32, ticket: Ticket },
    /// There is none. One may ask again after this time.
    None { again: Duration },
}

/// A turn in a store, by which it can be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(String);

impl Rate {
    /// How far ahead of the steady rate one may come.
    pub(crate) fn ahead(self) -> Duration {
        self.interval.saturating_mul(self.burst.saturating_sub(1))
    }
}

impl Store {
    /// Takes one of `rate` from the limit of `key`, with at most `patience` before its turn.
    pub(crate) async fn take(
        self: &Arc<Self>,
        key: &str,
        rate: Rate,
        patience: Duration,
    ) -> Result<Taken, StoreError> {
        let [interval, ahead, patience] = [rate.interval, rate.ahead(), patience].map(micros);
        let arguments = [interval.as_bytes(), ahead.as_bytes(), patience.as_bytes()];
        let (wait, again, left, held): (i64, u64, u32, String) =
            self.ask(Script::Take, key, &arguments).await?;
        Ok(match u64::try_from(wait) {
            Ok(wait) => {
                Taken::Turn { wait: Duration::from_micros(wait), left, ticket: Ticket(held) }
            }
            Err(_) => Taken::None { again: Duration::from_micros(again) },
        })
    }

    /// Gives a turn back that nobody used. It is lost if somebody has taken one since, or the store does not answer.
    pub(crate) async fn give_back(self: Arc<Self>, key: Arc<str>, rate: Rate, ticket: Ticket) {
        let interval = micros(rate.interval);
        let arguments = [ticket.0.as_bytes(), interval.as_bytes()];
        let given: Result<bool, _> = self.ask(Script::GiveBack, &key, &arguments).await;
        if let Ok(false) | Err(_) = given {
            tracing::debug!(store = self.name(), "A turn of a rate limit was lost.");
        }
    }
}

/// In microseconds, as text.
fn micros(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64() * 1e6)
}
