//! The telemetry settings of one configuration load.

use std::sync::Arc;
use std::time::Duration;

/// The default upper bounds of duration buckets, in seconds: from an answer on loopback to the longest timeout.
pub const BUCKETS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];

/// Which records of requests to write, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetrySettings {
    /// `log.access`.
    pub access: Access,
    /// `tracing`; `None` if no spans are exported.
    pub tracing: Option<Tracing>,
    /// Upper bounds of the buckets of duration histograms, in seconds, ascending.
    pub buckets: Vec<f64>,
}

/// Which requests the access log contains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// Requests that are always logged.
    pub when: When,
    /// The share of the other requests that is logged, from 0 to 1.
    pub sample: f64,
}

/// Which requests are logged whatever the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// None.
    None,
    /// Those that failed: a failure Result, a refusal, a client that left.
    Failures,
    /// These, and requests with more than one attempt.
    Retried,
    /// All.
    All,
}

/// Where spans are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracing {
    /// The URL that batches are posted to, with its path.
    pub endpoint: Arc<str>,
    /// Header fields of each POST, for example a collector's key.
    pub headers: Vec<(Arc<str>, Arc<str>)>,
    /// How long one POST may take.
    pub timeout: Duration,
    /// `service.name` of the resource.
    pub service: Arc<str>,
    /// The share of requests that is sampled if their caller has not decided, from 0 to 1.
    pub sample: f64,
    /// How many requests may wait for export. The spans of further ones are dropped and counted.
    pub queue: usize,
}

impl When {
    /// The words of the configuration, from the fewest requests to the most.
    pub const WORDS: [&'static str; 4] = ["none", "failures", "retried", "all"];

    /// The word's meaning.
    pub fn of(word: &str) -> Option<Self> {
        let all = [Self::None, Self::Failures, Self::Retried, Self::All];
        Self::WORDS.into_iter().zip(all).find(|(known, _)| *known == word).map(|(_, when)| when)
    }
}
