//! A limit for each key, within bounded memory.
//!
//! A key is remembered while its limit is in use. Once that is unused again, it holds nothing that a new one would not, so
//! forgetting it changes nothing; no other one is ever forgotten. A client that sends many keys therefore cannot make the limit
//! of one be forgotten. While all places are in use, further keys share one limit for each shard: they get less than their own,
//! never more.
//!
//! Keys are kept as hashes under a secret of the process, so nobody can choose keys that meet.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError, RwLock};

use super::bucket::Bucket;

/// How many keys are remembered, for each entry.
const KEYS: usize = 65_536;
/// Into how many parts they are divided, each with its own lock.
const SHARDS: usize = 64;
/// How long a shard is not searched again for limits that can be forgotten, in nanoseconds: 100 ms.
const SEARCHED: u64 = 100_000_000;

/// A limit for each key.
#[derive(Debug)]
pub(super) struct Buckets {
    hasher: RandomState,
    shards: Box<[Shard]>,
}

#[derive(Debug, Default)]
struct Shard {
    known: RwLock<Known>,
    /// For keys that find no place.
    shared: Arc<Bucket>,
}

#[derive(Debug, Default)]
struct Known {
    buckets: HashMap<u64, Arc<Bucket>>,
    /// Until when a search is in vain.
    full_until: u64,
}

impl Buckets {
    /// None is in use.
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self { hasher: RandomState::new(), shards }
    }

    /// The limit of `key`.
    pub(super) fn of(&self, key: &str, now: u64) -> Arc<Bucket> {
        let hash = self.hasher.hash_one(key);
        let place = usize::try_from(hash % SHARDS as u64).unwrap_or_default();
        self.shards.get(place).map(|shard| shard.of(hash, now)).unwrap_or_default()
    }

    /// How many keys are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.known.read().unwrap().buckets.len()).sum()
    }
}

impl Shard {
    fn of(&self, hash: u64, now: u64) -> Arc<Bucket> {
        // A key that is known keeps nobody waiting.
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = known.buckets.get(&hash) {
            return Arc::clone(bucket);
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have been faster.
        if let Some(bucket) = known.buckets.get(&hash) {
            return Arc::clone(bucket);
        }
        if known.buckets.len() >= KEYS / SHARDS {
            if now < known.full_until {
                return Arc::clone(&self.shared);
            }
            // Whoever holds one is about to take from it.
            known.buckets.retain(|_, one| !one.is_unused(now) || Arc::strong_count(one) > 1);
            if known.buckets.len() >= KEYS / SHARDS {
                known.full_until = now.saturating_add(SEARCHED);
                return Arc::clone(&self.shared);
            }
        }
        Arc::clone(known.buckets.entry(hash).or_default())
    }
}
