//! What is asked of an upstream's endpoints, and when one is left out.

use std::sync::Arc;
use std::time::Duration;

/// Active checks: each endpoint is asked from time to time whether it is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// What it is asked.
    pub question: Question,
    /// How long between two checks, give or take a tenth (default PT5S).
    pub interval: Duration,
    /// How long a check may take (default PT1S).
    pub timeout: Duration,
    /// After how many good checks in a row an unhealthy endpoint is healthy (default 2).
    pub healthy_after: u32,
    /// After how many bad checks in a row a healthy endpoint is unhealthy (default 3).
    pub unhealthy_after: u32,
}

/// What a check asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A `GET` of a path.
    Http {
        /// The path and query.
        path: Arc<str>,
        /// The statuses of a healthy endpoint, as inclusive ranges (default `2xx`).
        statuses: Vec<(u16, u16)>,
    },
    /// gRPC's own health service, about the service of this name. The empty name is the server as a whole.
    Grpc {
        /// The service.
        service: Arc<str>,
    },
}

/// Passive ejection: an endpoint whose attempts fail is left out for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// After how many failed attempts in a row (default 5).
    pub consecutive_failures: u32,
    /// For how long the first time; the second time for twice as long, and so on (default PT30S).
    pub base_time: Duration,
    /// For how long at most (default PT5M).
    pub max_time: Duration,
    /// How many of the endpoints may be ejected at once.
    pub max_share: Share,
}

/// A share of a number of things, from none to all. It is exact to a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    const WHOLE: u32 = 1_000_000;

    /// `share` of 1. Beyond 0 and 1 it is 0 and 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and a million"
    )]
    pub fn new(share: f64) -> Self {
        Self((share.clamp(0.0, 1.0) * f64::from(Self::WHOLE)).round() as u32)
    }

    /// This share of `count`, rounded down.
    pub fn of(self, count: usize) -> usize {
        let parts = count as u128 * u128::from(self.0) / u128::from(Self::WHOLE);
        usize::try_from(parts).unwrap_or(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_down() {
        for (share, count, wanted) in [
            (0.5, 3, 1),
            (0.5, 4, 2),
            (0.0, 9, 0),
            (1.0, 9, 9),
            (0.1, 10, 1),
            (2.0, 2, 2),
            (0.29, 100, 29),
        ] {
            assert_eq!(Share::new(share).of(count), wanted, "{share} of {count}");
        }
        assert_eq!(Share::new(1.0).of(usize::MAX), usize::MAX);
    }
}
