//! Which endpoint gets the next attempt.
//!
//! First the endpoints that are well; if fewer than half are, all that no operator has drained. Of these, the ones that
//! the execution has not tried; if it has tried all, any but the last. Of these, one by the upstream's `balance`.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::rendezvous;
use super::tried::Tried;

/// An endpoint that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Its place in the list.
    pub(super) place: usize,
    /// Its id.
    pub(super) id: u64,
    /// Its weight, times its share.
    pub(super) weight: f64,
    /// Less than 1 while it has only just become well again.
    pub(super) share: f64,
    /// Whether it is well.
    pub(super) well: bool,
    /// Whether an operator has drained it.
    pub(super) drained: bool,
}

/// Those that are left.
pub(super) type Candidates = SmallVec<[Candidate; 8]>;

/// Draws at random. Each worker has its own.
#[derive(Debug)]
pub(crate) struct Draws(AtomicU64);

/// Leaves the `candidates` of which one should be chosen. There is one unless there was none.
pub(super) fn narrow(candidates: &mut Candidates, tried: &Tried, failed_only: bool) {
    let well = candidates.iter().filter(|candidate| candidate.well).count();
    let live = candidates.iter().filter(|candidate| !candidate.drained).count();
    if well.saturating_mul(2) >= live && well > 0 {
        candidates.retain(|candidate| candidate.well);
    } else if live > 0 {
        candidates.retain(|candidate| !candidate.drained);
    }
    if tried.is_empty() {
        return;
    }
    let fresh = |candidate: &Candidate| !tried.has(candidate.id, failed_only);
    if candidates.iter().any(fresh) {
        candidates.retain(|candidate| fresh(candidate));
        return;
    }
    let among = |id| candidates.iter().any(|candidate| candidate.id == id);
    let last = tried.last(failed_only, among);
    if candidates.len() > 1 {
        candidates.retain(|candidate| Some(candidate.id) != last);
    }
}

/// `leastRequest`: draws two, and takes the one with the smaller `load` for its weight. If both are equal, the weights
/// alone decide.
pub(super) fn least_request(
    candidates: &Candidates,
    draws: &Draws,
    load: impl Fn(&Candidate) -> usize,
) -> Option<Candidate> {
    let first = random(candidates, draws)?;
    let others: Candidates =
        candidates.iter().filter(|other| other.place != first.place).copied().collect();
    let Some(second) = random(&others, draws) else {
        return Some(first);
    };
    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 requests in flight")]
    let (one, two) = (load(&first) as f64 * second.weight, load(&second) as f64 * first.weight);
    Some(if two < one { second } else { first })
}

/// `random`: each as often as its weight says.
pub(super) fn random(candidates: &Candidates, draws: &Draws) -> Option<Candidate> {
    let first = candidates.first()?;
    if candidates.iter().all(|candidate| same(candidate.weight, first.weight)) {
        return candidates.get(draws.below(candidates.len())).copied();
    }
    let all: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
    let mut left = draws.unit() * all;
    for candidate in candidates {
        left -= candidate.weight;
        if left < 0.0 {
            return Some(*candidate);
        }
    }
    candidates.last().copied()
}

/// `roundRobin`: the next in the `order` of turns. `turn` counts them. A turn of an endpoint that has only just become
/// well again is passed over as often as its share says.
pub(super) fn round_robin(
    candidates: &Candidates,
    order: &[usize],
    draws: &Draws,
    turn: impl Fn() -> usize,
) -> Option<Candidate> {
    // Each comes up once in the order; the second round is for those that are passed over.
    for _ in 0..order.len().saturating_mul(2) {
        let place = turn().checked_rem(order.len()).and_then(|at| order.get(at));
        let found = candidates.iter().find(|candidate| Some(&candidate.place) == place);
        let Some(candidate) = found else { continue };
        if candidate.share >= 1.0 || draws.unit() < candidate.share {
            return Some(*candidate);
        }
    }
    candidates.first().copied()
}

/// `hash`: the one that `key` belongs to.
pub(super) fn by_key(
    candidates: &Candidates,
    key: &str,
    hash: impl Fn(&Candidate) -> u64,
) -> Option<Candidate> {
    let key = rendezvous::hash(key.as_bytes());
    let ranked = candidates.iter().map(|candidate| {
        (rendezvous::rank(key, hash(candidate), candidate.weight), hash(candidate), candidate)
    });
    let best = ranked.max_by(|(a, one, _), (b, two, _)| a.total_cmp(b).then(one.cmp(two)));
    best.map(|(_, _, candidate)| *candidate)
}

/// The places of endpoints with these `weights` in the order of their turns: each comes up as often as its weight says,
/// and as evenly as possible (the smooth round robin of NGINX).
pub(super) fn turns(weights: &[u32]) -> Vec<usize> {
    /// How many turns an order may have. Beyond that, shares are rounded.
    const MOST: u64 = 1024;
    let first = weights.first().copied().unwrap_or(1);
    if weights.iter().all(|weight| *weight == first) {
        return (0..weights.len()).collect();
    }
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    let sum: u64 = weights.iter().map(|weight| u64::from(weight / divisor)).sum();
    let scaled = |weight: &u32| {
        let weight = u64::from(weight / divisor);
        let fits = if sum > MOST { weight.saturating_mul(MOST) / sum } else { weight };
        i64::try_from(fits.max(1)).unwrap_or(1)
    };
    let weights: Vec<i64> = weights.iter().map(scaled).collect();
    let all: i64 = weights.iter().sum();
    let mut current = vec![0; weights.len()];
    let mut order = Vec::new();
    for _ in 0..all {
        current.iter_mut().zip(&weights).for_each(|(current, weight)| *current += weight);
        // The first of the largest.
        let largest = current.iter().enumerate().rev().max_by_key(|(_, current)| **current);
        let Some(place) = largest.map(|(place, _)| place) else { break };
        if let Some(current) = current.get_mut(place) {
            *current -= all;
        }
        order.push(place);
    }
    order
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn same(a: f64, b: f64) -> bool {
    a.total_cmp(&b).is_eq()
}

impl Draws {
    /// The same draws for the same seed.
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next number (`SplitMix64`). Only one thread draws, so there is no race.
    fn next(&self) -> u64 {
        let state = self.0.load(Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.store(state, Ordering::Relaxed);
        rendezvous::mix(state)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&self, bound: usize) -> usize {
        let wide = u128::from(self.next()) * bound as u128;
        usize::try_from(wide >> 64).unwrap_or_default()
    }

    /// A number from 0 up to 1, without 1.
    fn unit(&self) -> f64 {
        rendezvous::fraction(self.next())
    }
}

#[cfg(test)]
mod tests;
