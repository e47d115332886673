//! The endpoints of an upstream as one worker sees them, and which gets the next attempt.

use std::any::Any;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::uri::Scheme;
use tokio::time::Instant;

use super::balance::{
    Candidate, Candidates, Draws, by_key, least_request, narrow, random, round_robin, turns,
};
use super::tried::Tried;
use super::{EndpointState, Endpoints};
use crate::language::provider::ReachedEndpoint;
use crate::proxy::settings::Balance;
use crate::proxy::upstream::condition::Reported;

/// An endpoint behind a worker's own reference counts.
#[derive(Debug)]
pub(crate) struct WorkerEndpoint {
    state: Arc<EndpointState>,
    /// Its name, likewise.
    name: Arc<str>,
    /// Whether there are others, so that it matters how many requests are at it.
    counts: bool,
}

/// The endpoints of one upstream.
#[derive(Debug)]
pub(crate) struct View {
    /// Of the list that this shows.
    version: Option<u64>,
    all: Vec<Arc<WorkerEndpoint>>,
    /// Whether all have the same weight.
    even: bool,
    /// For `roundRobin`: the places in `all` in the order of turns.
    order: Vec<usize>,
}

/// A request is at an endpoint, from before its connect until its connection is free for another one.
#[derive(Debug)]
pub(crate) struct Visit(Arc<WorkerEndpoint>);

/// What a choice depends on, beside the endpoints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<'a> {
    pub(crate) balance: &'a Balance,
    /// The endpoints that the execution has tried.
    pub(crate) tried: &'a Tried,
    /// For `hash`.
    pub(crate) key: Option<&'a str>,
    pub(crate) draws: &'a Draws,
}

/// The endpoint of an upstream that has one, and never another: its configuration names an address.
pub(crate) fn only(endpoints: &Endpoints) -> Option<Arc<WorkerEndpoint>> {
    match endpoints.present().as_slice() {
        [one] if !one.is_named() => Some(WorkerEndpoint::new(one, false)),
        _ => None,
    }
}

impl WorkerEndpoint {
    fn new(state: &Arc<EndpointState>, counts: bool) -> Arc<Self> {
        Arc::new(Self { state: Arc::clone(state), name: Arc::from(&**state.name()), counts })
    }

    /// Its name in messages and metrics.
    pub(crate) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The scheme of requests to it.
    pub(crate) fn scheme(&self) -> Scheme {
        if self.at.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// An attempt has succeeded.
    pub(crate) fn succeeded(&self) {
        self.condition().succeeded();
    }

    /// Tells how an attempt ended.
    pub(crate) fn report(&self, reported: Reported, now: Instant) {
        if self.counts && reported != Reported::Success {
            self.kept.failures.add(now);
        }
        self.condition().report(reported, now);
    }
}

impl Deref for WorkerEndpoint {
    type Target = EndpointState;

    fn deref(&self) -> &EndpointState {
        &self.state
    }
}

impl ReachedEndpoint for WorkerEndpoint {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }
}

impl View {
    /// Shows nothing until it is refreshed.
    pub(crate) const fn new() -> Self {
        Self { version: None, all: Vec::new(), even: true, order: Vec::new() }
    }

    /// Shows nothing again.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Shows the present list.
    pub(crate) fn refresh(&mut self, endpoints: &Endpoints) {
        let version = endpoints.version();
        if self.version == Some(version) {
            return;
        }
        let present = endpoints.present();
        let counts = present.len() > 1;
        let shown = |state: &Arc<EndpointState>| {
            let mut known = self.all.iter();
            let same =
                known.find(|known| Arc::ptr_eq(&known.state, state) && known.counts == counts);
            same.map_or_else(|| WorkerEndpoint::new(state, counts), Arc::clone)
        };
        let all: Vec<_> = present.iter().map(shown).collect();
        let weights: Vec<u32> = all.iter().map(|endpoint| endpoint.at.weight).collect();
        let even = weights.windows(2).all(|pair| matches!(pair, [one, other] if one == other));
        *self = Self { version: Some(version), order: turns(&weights), all, even };
    }

    /// The first one.
    #[cfg(test)]
    pub(super) fn first(&self) -> Option<Arc<WorkerEndpoint>> {
        self.all.first().map(Arc::clone)
    }

    /// The one with this address, of the entry in this place of the configuration.
    pub(crate) fn find(&self, place: usize, address: SocketAddr) -> Option<&Arc<WorkerEndpoint>> {
        let mut all = self.all.iter();
        all.find(|endpoint| endpoint.place == place && endpoint.address == Some(address))
    }

    /// The one for the next attempt. There is one if the upstream has any.
    pub(crate) fn choose(
        &self,
        endpoints: &Endpoints,
        choice: Choice<'_>,
    ) -> Option<Arc<WorkerEndpoint>> {
        if let [one] = self.all.as_slice() {
            return Some(Arc::clone(one));
        }
        if choice.tried.is_empty() && endpoints.group.is_steady() {
            let chosen = self.among_equals(endpoints, choice);
            if chosen.is_some() {
                return chosen.map(Arc::clone);
            }
        }
        self.weigh(endpoints, choice).map(Arc::clone)
    }

    /// The same where all are well, have their usual shares, and nothing was tried; `None` if that does not suffice. It does
    /// not look at each of them.
    fn among_equals(
        &self,
        endpoints: &Endpoints,
        Choice { balance, draws, .. }: Choice<'_>,
    ) -> Option<&Arc<WorkerEndpoint>> {
        let count = self.all.len();
        match balance {
            Balance::LeastRequest if self.even && count > 1 => {
                let (first, other) = (draws.below(count), draws.below(count - 1));
                let second = self.all.get(other + usize::from(other >= first))?;
                let first = self.all.get(first)?;
                let fewer = second.load(Instant::now) < first.load(Instant::now);
                Some(if fewer { second } else { first })
            }
            Balance::Random if self.even && count > 1 => self.all.get(draws.below(count)),
            Balance::RoundRobin => {
                let place = endpoints.turn().checked_rem(self.order.len())?;
                self.order.get(place).and_then(|place| self.all.get(*place))
            }
            Balance::LeastRequest | Balance::Random | Balance::Hash(_) => None,
        }
    }

    /// The same in any case.
    pub(super) fn weigh(
        &self,
        endpoints: &Endpoints,
        choice: Choice<'_>,
    ) -> Option<&Arc<WorkerEndpoint>> {
        let Choice { balance, tried, key, draws } = choice;
        let now = Instant::now();
        let mut candidates: Candidates = self
            .all
            .iter()
            .enumerate()
            .map(|(place, endpoint)| endpoint.candidate(place, now))
            .collect();
        // A key's endpoint stays the same for calls side by side.
        narrow(&mut candidates, tried, matches!(balance, Balance::Hash(_)));
        let at = |candidate: &Candidate| self.all.get(candidate.place);
        let load =
            |candidate: &Candidate| at(candidate).map_or(0, |endpoint| endpoint.load(|| now));
        let hash = |candidate: &Candidate| at(candidate).map_or(0, |endpoint| endpoint.kept.hash);
        let chosen = match (balance, key) {
            (Balance::Hash(_), Some(key)) => by_key(&candidates, key, hash),
            (Balance::LeastRequest | Balance::Hash(_), _) => {
                least_request(&candidates, draws, load)
            }
            (Balance::RoundRobin, _) => {
                round_robin(&candidates, &self.order, draws, || endpoints.turn())
            }
            (Balance::Random, _) => random(&candidates, draws),
        };
        chosen.as_ref().and_then(at)
    }
}

impl WorkerEndpoint {
    fn candidate(&self, place: usize, now: Instant) -> Candidate {
        let condition = self.condition();
        let well = condition.is_well_at(now);
        let share = condition.share(now);
        Candidate {
            place,
            id: self.id,
            weight: f64::from(self.at.weight) * share,
            share,
            well,
            drained: !well && condition.is_drained(),
        }
    }
}

impl Visit {
    /// A request comes to `endpoint`.
    pub(crate) fn new(endpoint: Arc<WorkerEndpoint>) -> Self {
        if endpoint.counts {
            endpoint.kept.in_flight.fetch_add(1, Ordering::Relaxed);
        }
        Self(endpoint)
    }

    /// The endpoint.
    pub(crate) const fn endpoint(&self) -> &Arc<WorkerEndpoint> {
        &self.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let Self(endpoint) = self;
        if endpoint.counts {
            endpoint.kept.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
