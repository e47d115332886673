//! A limit for each key.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError, RwLock};

use super::places::Places;
use super::settings::Settings;

/// In how many maps the keys are, so that two workers seldom write to the same one.
const SHARDS: usize = 16;

/// For how many keys of a limit places are kept. Further ones share the places of one key.
pub(super) const KEYS: usize = 16_384;

/// The places of all keys.
#[derive(Debug)]
pub(super) struct Keyed {
    settings: Settings,
    hasher: RandomState,
    /// By the hash of a key: clients choose keys, and a hash is never large.
    shards: [RwLock<HashMap<u64, Arc<Places>>>; SHARDS],
    further: Arc<Places>,
}

impl Keyed {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            hasher: RandomState::new(),
            shards: Default::default(),
            further: Arc::new(Places::new(&settings)),
        }
    }

    /// The places of `key`.
    pub(super) fn of(&self, key: &str) -> Arc<Places> {
        let hash = self.hasher.hash_one(key);
        #[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are used")]
        let Some(shard) = self.shards.get(hash as usize % SHARDS) else {
            return Arc::clone(&self.further);
        };
        // A key that is known keeps nobody waiting.
        let known = shard.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = known.get(&hash) {
            return Arc::clone(places);
        }
        drop(known);
        let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have been faster.
        if let Some(places) = shard.get(&hash) {
            return Arc::clone(places);
        }
        if shard.len() >= KEYS / SHARDS {
            // Nobody but this map has places that nobody uses: `ask` is called under no lock, so whoever asks has its own.
            shard.retain(|_, places| Arc::strong_count(places) > 1 || !places.is_idle());
            if shard.len() >= KEYS / SHARDS {
                return Arc::clone(&self.further);
            }
        }
        let places = Arc::new(Places::new(&self.settings));
        shard.insert(hash, Arc::clone(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::Admission;
    use super::*;
    use crate::language::value::Value;

    #[test]
    fn keys_are_bounded_and_those_in_use_are_kept() {
        let with = Value::from(serde_json::json!({ "max": 1 }));
        let keyed = Keyed::new(Settings::read(&with, true).unwrap());
        let Admission::Place(held) = keyed.of("held").ask() else { panic!() };
        for key in 0..3 * KEYS {
            assert!(matches!(keyed.of(&key.to_string()).ask(), Admission::Place(_)));
        }
        let kept: usize = keyed.shards.iter().map(|shard| shard.read().unwrap().len()).sum();
        assert!(kept <= KEYS, "{kept}");
        assert!(matches!(keyed.of("held").ask(), Admission::Full));
        drop(held);
        assert!(matches!(keyed.of("held").ask(), Admission::Place(_)));
    }

    #[test]
    fn where_all_keys_are_in_use_further_ones_share_places() {
        let with = Value::from(serde_json::json!({ "max": 1 }));
        let keyed = Keyed::new(Settings::read(&with, true).unwrap());
        let ask = |key: usize| keyed.of(&key.to_string()).ask();
        let held: Vec<_> =
            (0..2 * KEYS).map(ask).filter(|got| matches!(got, Admission::Place(_))).collect();
        assert_eq!(held.len(), KEYS + 1);
    }
}
