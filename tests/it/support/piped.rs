//! One client's connection to the proxy over pipes, in paused time, which passes when everybody waits.

use std::sync::Arc;

use mwl_proxy::proxy::testing::alone;
use mwl_proxy::telemetry::metrics::Metrics;
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::proxy::{Client, metric, runtime};
use super::upstream::{Act, Upstream};

/// A client whose requests the proxy answers.
#[derive(Debug)]
pub(crate) struct Piped {
    /// The client.
    pub(crate) client: Client<DuplexStream>,
    /// Ends with its connection.
    pub(crate) served: JoinHandle<()>,
    /// The proxy's metrics.
    pub(crate) metrics: Arc<Metrics>,
}

impl Piped {
    /// A client of a proxy with these further members of `limits`, and one route `r` at `/a` with these further
    /// keys. The pipe to the client holds `holds` bytes. `idle` are the upstream's connections.
    pub(crate) fn serve(limits: &str, route: &str, holds: usize, idle: Vec<DuplexStream>) -> Self {
        Self::with_upstream("", (limits, route), holds, idle)
    }

    /// The same, with these further keys of the upstream: `, maxWait: PT1S`.
    pub(crate) fn with_upstream(
        upstream: &str,
        (limits, route): (&str, &str),
        holds: usize,
        idle: Vec<DuplexStream>,
    ) -> Self {
        let file = format!(
            "listeners: [{{ address: '127.0.0.1:0' }}]
limits: {{ {limits}workers: 1 }}
upstreams: {{ u: {{ endpoints: ['http://127.0.0.1:1'], keepAlive: PT1M{upstream} }} }}
routes:
  - name: r
    match: {{ pathPrefix: /a }}
    upstream: u
{route}"
        );
        Self::whole(&file, holds, idle)
    }

    /// The same for a whole configuration, whose first upstream's connections are `idle`.
    pub(crate) fn of_file(file: &str, idle: Vec<DuplexStream>) -> Self {
        Self::whole(file, 1 << 16, idle)
    }

    fn whole(file: &str, holds: usize, idle: Vec<DuplexStream>) -> Self {
        let metrics = Metrics::new();
        let runtime = runtime(file, &metrics);
        let (near, client) = duplex(holds);
        let served = tokio::spawn(alone::serve(runtime, near, idle));
        Self { client: Client::over(client), served, metrics }
    }

    /// The same with an upstream that plays `acts`.
    pub(crate) fn before(
        acts: impl IntoIterator<Item = Act>,
        limits: &str,
        route: &str,
    ) -> (Self, Upstream) {
        let (upstream, idle) = Upstream::piped(acts);
        (Self::serve(limits, route, 1 << 16, idle), upstream)
    }

    /// The value of one series of `/metrics`; 0 if it does not exist.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        metric(&self.metrics, series)
    }
}
