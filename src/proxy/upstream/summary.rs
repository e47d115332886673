//! An upstream and its endpoints as operators see them, and what operators may do with an endpoint.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::condition::{ConditionState, Standing};
use super::endpoints::EndpointState;
use super::shared::SharedUpstream;
use crate::language::clock::Clock;
use crate::language::temporal::Timestamp;
use crate::proxy::settings::{Balance, Protocol};
use crate::telemetry::switches::{SwitchKind, Switches};

/// One upstream.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamSummary {
    /// Its name.
    pub name: String,
    /// `http1` or `http2`.
    pub protocol: &'static str,
    /// How an endpoint is chosen.
    pub balance: &'static str,
    /// Whether fewer than half of the endpoints that are not drained are well, so that all of these are used.
    pub panic: bool,
    /// Whether its endpoints are checked.
    pub checked: bool,
    /// Whether endpoints that fail are ejected.
    pub ejects: bool,
    /// Its places.
    pub places: PlacesSummary,
    /// Its endpoints, in the order of the configuration.
    pub endpoints: Vec<EndpointSummary>,
}

/// How many requests are at an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PlacesSummary {
    /// How many may be.
    pub most: usize,
    /// How many are.
    pub taken: usize,
    /// How many wait.
    pub waiting: usize,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSummary {
    /// Its name, which is the label `endpoint`.
    pub endpoint: String,
    /// `up`, `drained`, `unhealthy` or `ejected`.
    pub state: &'static str,
    /// Since when.
    pub since: String,
    /// Why it is out.
    pub why: Option<String>,
    /// When its ejection ends.
    pub until: Option<String>,
    /// Its weight.
    pub weight: u32,
    /// How much of its usual share of requests it gets: less than 1 for a while after it has come back.
    pub share: f64,
    /// How many requests are at it.
    pub in_flight: usize,
    /// Attempts.
    pub attempts: Outcomes,
    /// Checks.
    pub checks: Outcomes,
    /// How many attempts have failed in a row.
    pub failures_in_a_row: u32,
    /// How often it was ejected in succession.
    pub ejections: u32,
}

/// How often something ended well, and how often not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Well.
    pub success: u64,
    /// Not well.
    pub failure: u64,
}

impl SharedUpstream {
    /// The upstream at this moment.
    pub(crate) fn summary(&self) -> UpstreamSummary {
        let settings = &self.settings;
        let (most, taken, waiting) = self.places.counts();
        let (now, present) = (Instant::now(), self.endpoints.present());
        let endpoints: Vec<_> = present.iter().map(|endpoint| endpoint.summary(now)).collect();
        let are = |standing: Standing| {
            endpoints.iter().filter(|endpoint| endpoint.state == standing.as_str()).count()
        };
        let (well, drained) = (are(Standing::Up), are(Standing::Drained));
        UpstreamSummary {
            name: settings.name.as_ref().to_owned(),
            protocol: match settings.protocol {
                Protocol::Http1 => "http1",
                Protocol::Http2 => "http2",
            },
            balance: match settings.balance {
                Balance::LeastRequest => "leastRequest",
                Balance::RoundRobin => "roundRobin",
                Balance::Random => "random",
                Balance::Hash(_) => "hash",
            },
            panic: well * 2 < endpoints.len().saturating_sub(drained),
            checked: settings.health.is_some(),
            ejects: settings.ejection.is_some(),
            places: PlacesSummary { most, taken, waiting },
            endpoints,
        }
    }

    /// Takes the endpoints of this name out, or restores them. Returns how many there are. A drain is a switch, so it
    /// goes on when the configuration changes.
    pub(crate) fn drain(&self, switches: &Arc<Switches>, endpoint: &str, drains: bool) -> usize {
        let (now, present) = (Instant::now(), self.endpoints.present());
        let named: Vec<_> = present.iter().filter(|state| &**state.name() == endpoint).collect();
        if named.is_empty() {
            return 0;
        }
        let switch = self.endpoints.group.switch(endpoint);
        if drains {
            switches.set(SwitchKind::Drain, &switch, None);
        } else {
            switches.clear(SwitchKind::Drain, &switch);
        }
        for state in &named {
            if drains {
                state.condition().drain(now);
            } else {
                state.condition().restore(now);
            }
        }
        named.len()
    }
}

impl EndpointState {
    fn summary(&self, now: Instant) -> EndpointSummary {
        let ConditionState { standing, since, share, failures, ejections, found, ejected, checks } =
            self.condition().state(now);
        let clock = Clock::system();
        let ends = |left: Duration| moment(clock.at(now.checked_add(left).unwrap_or(now)));
        let begun = now.checked_sub(since).unwrap_or(now);
        let (success, failure) = self.metrics.attempts();
        EndpointSummary {
            endpoint: self.name().as_ref().to_owned(),
            state: standing.as_str(),
            since: moment(clock.at(begun)),
            why: match standing {
                Standing::Up => None,
                Standing::Drained => Some("an operator has drained it".into()),
                Standing::Unhealthy => Some(found.map_or_else(
                    || "checks have not been good often enough since it was unhealthy".into(),
                    |found| format!("the last check: {found}"),
                )),
                Standing::Ejected => ejected
                    .map(|(_, cause)| format!("its attempts have failed: {}", cause.as_str())),
            },
            until: ejected.map(|(left, _)| ends(left)),
            weight: self.at.weight,
            share: (share * 100.0).round() / 100.0,
            in_flight: self.in_flight(),
            attempts: Outcomes { success, failure },
            checks: Outcomes { success: checks.0, failure: checks.1 },
            failures_in_a_row: failures,
            ejections,
        }
    }
}

/// To the second.
fn moment(at: Timestamp) -> String {
    const SECOND: i128 = 1_000_000_000;
    Timestamp::from_nanos(at.as_nanos().div_euclid(SECOND) * SECOND).to_string()
}
