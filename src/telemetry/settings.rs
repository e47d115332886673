//! What an operator asks to be told, as one configuration load resolves it.

use std::sync::Arc;
use std::time::Duration;

/// Upper bounds of duration buckets where the configuration names none, in seconds: from a loopback
/// answer to the longest patience.
pub const BUCKETS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];

/// What is told of requests, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// `log.access`.
    pub access: Access,
    /// `tracing`; `None` where no spans are exported.
    pub tracing: Option<Tracing>,
    /// Upper bounds of the buckets of duration histograms, in seconds, ascending.
    pub buckets: Vec<f64>,
}

/// Which requests the access log has a record of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// Those that are always written.
    pub when: When,
    /// The share of the others that is written, from 0 to 1.
    pub sample: f64,
}

/// Which requests are written whatever the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// None.
    None,
    /// Those that failed: a failure Result, a refusal, a client that left.
    Failures,
    /// Those, and those that took more than one attempt.
    Retried,
    /// All.
    All,
}

/// Where spans go.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracing {
    /// The URL that batches are posted to, its path included.
    pub endpoint: Arc<str>,
    /// Fields of the posts: a collector's key, say.
    pub headers: Vec<(Arc<str>, Arc<str>)>,
    /// How long one post may take.
    pub timeout: Duration,
    /// `service.name` of the resource.
    pub service: Arc<str>,
    /// The share of requests without a decision of their caller's that is sampled, from 0 to 1.
    pub sample: f64,
    /// How many requests may wait for export; beyond it their spans are dropped and counted.
    pub queue: usize,
}

impl When {
    /// The words of the configuration, in order of how much they let through.
    pub const WORDS: [&'static str; 4] = ["none", "failures", "retried", "all"];

    /// The word's meaning.
    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "none" => Self::None,
            "failures" => Self::Failures,
            "retried" => Self::Retried,
            "all" => Self::All,
            _ => return None,
        })
    }
}
