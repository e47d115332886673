//! Resolves the names of endpoints to addresses.
//!
//! The system's resolver returns the addresses of a name, but not how long they are valid. So a name is looked
//! up for each connect, and the next connection sees a change. Connects at the same time share one lookup, on whatever
//! workers they are; it continues even when all of them have given up. If it takes longer than a share of
//! `connectTimeout`, a packet was probably lost: the addresses of the last lookup are used, and a second lookup begins.
//! There is never a third, so a name server that does not answer occupies two threads, however many requests wait.
//!
//! While connections are kept, there may be no connect for a long time. So names with connections are looked up
//! again every 30 seconds. When a lookup, for whatever reason, finds that a name has lost an address, that endpoint is
//! gone, and connections to it get no further requests. A failed lookup says nothing about addresses: those of the
//! last lookup stay.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, OptionFuture, join_all, select_ok};
use tokio::net::lookup_host;
use tokio::time::{Instant, sleep_until};

use super::Upstream;
use super::connect_error::ConnectError;
use super::endpoints::{MOST_ADDRESSES, WorkerEndpoint};
use super::name_cache::{Addresses, LookupResult, Waiting};
use crate::proxy::settings::{Balance, Endpoint};
use crate::system::descriptors;

/// A lookup is waited for alone during this part of `connectTimeout`.
const PATIENCE: u32 = 8;

/// Finds the addresses of names.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of `host`, each with `port`, in the order in which to try them.
    ///
    /// # Errors
    /// When the name has none, or the lookup fails.
    fn resolve(&self, host: Arc<str>, port: u16)
    -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver, `getaddrinfo`. It uses `/etc/hosts` and `/etc/resolv.conf`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct System;

impl Resolve for System {
    fn resolve(
        &self,
        host: Arc<str>,
        port: u16,
    ) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(lookup_host((&*host, port)).await?.collect()) })
    }
}

impl Upstream {
    /// Looks up the name of `endpoint`, if it has one. If that fails, its last address serves on.
    ///
    /// # Errors
    /// When its name was never found, and is not found now.
    pub(super) async fn look(
        self: &Arc<Self>,
        endpoint: &WorkerEndpoint,
    ) -> Result<(), ConnectError> {
        if endpoint.address.is_none() && matches!(self.settings.balance, Balance::Hash(_)) {
            // A key's endpoint is one of all, so all must be known.
            let unknown = self.common.names.unknown(&self.settings.endpoints);
            join_all(unknown.into_iter().map(|place| self.addresses(place))).await;
        }
        match self.addresses(endpoint.place).await {
            Ok(_) => Ok(()),
            Err(error) if endpoint.address.is_none() => Err(error),
            Err(error) => {
                self.common.kept(&endpoint.at.host, &error);
                Ok(())
            }
        }
    }

    /// The addresses of the endpoint in this `place` of the configuration. Looks its name up.
    pub(super) async fn addresses(self: &Arc<Self>, place: usize) -> LookupResult {
        let Some(at) = self.settings.endpoints.get(place) else {
            return Err(ConnectError::no_endpoint());
        };
        loop {
            let Waiting { lookups, until, known } = self.look_up(place, at);
            let late = OptionFuture::from(until.map(sleep_until));
            tokio::select! {
                biased;
                found = select_ok(lookups) => return found.map(|(addresses, _)| addresses),
                Some(()) = late => {}
            }
            if let Some(known) = known {
                // A lookup that hangs gets company for the sake of the next connect.
                drop(self.look_up(place, at));
                return Ok(known);
            }
        }
    }

    /// Looks names up again whose addresses are old. Returns when to do so again.
    pub(super) fn look_again(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let (due, next) = self.common.names.due(now);
        for place in due {
            if let Some(at) = self.settings.endpoints.get(place) {
                // It runs on its own.
                drop(self.look_up(place, at));
            }
        }
        next
    }

    fn look_up(self: &Arc<Self>, place: usize, at: &Endpoint) -> Waiting {
        let patience = self.settings.connect_timeout / PATIENCE;
        self.common.names.look_up(place, (Instant::now(), patience), |number| {
            let (host, at) = (Arc::clone(&at.host), at.clone());
            // A task of its own, so that it ends, and is known to have ended, even if nobody waits any more.
            let task = tokio::spawn(look(Arc::clone(self), place, number, at));
            let ended = task.map(move |ended| {
                let stopped = |_| Err(ConnectError::dns(&host, "the proxy is stopping"));
                ended.unwrap_or_else(stopped)
            });
            ended.boxed()
        })
    }
}

/// Looks up the name of the endpoint in this `place`, which is `at`.
async fn look(upstream: Arc<Upstream>, place: usize, number: u64, at: Endpoint) -> LookupResult {
    let host = &at.host;
    let found = match upstream.resolver.resolve(Arc::clone(host), at.port).await {
        Ok(found) if found.is_empty() => Err(ConnectError::dns(host, "it has no address")),
        Ok(found) => Ok(in_turn(found.get(..MOST_ADDRESSES).unwrap_or(&found))),
        // Which descriptor a look-up lacked is not said.
        Err(_) if !descriptors::are_left() => Err(ConnectError::no_descriptor()),
        Err(error) => Err(ConnectError::dns(host, &error.to_string())),
    };
    let common = &upstream.common;
    let change = |addresses: &Addresses| common.endpoints.found((place, &at), addresses);
    common.names.looked_up(place, number, found.as_ref().ok(), Instant::now(), change);
    upstream.follow();
    found
}

/// The addresses in order, without duplicates, alternating between the two families, beginning with the first
/// one's. If one family does not work, the next attempt uses the other (RFC 8305 §4).
pub(super) fn in_turn(found: &[SocketAddr]) -> Addresses {
    let first = found.first().is_some_and(SocketAddr::is_ipv4);
    let mut families = [Vec::new(), Vec::new()];
    let [same, other] = &mut families;
    for address in found {
        let family = if address.is_ipv4() == first { &mut *same } else { &mut *other };
        if !family.contains(address) {
            family.push(*address);
        }
    }
    let longest = same.len().max(other.len());
    let by_turns = (0..longest).flat_map(|at| [same.get(at), other.get(at)]);
    by_turns.flatten().copied().collect()
}

#[cfg(test)]
mod tests;
