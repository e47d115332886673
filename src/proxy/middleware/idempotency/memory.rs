//! Claims and answers of this process.
//!
//! A claim is held by a request that runs, so there are no more than `limits.requests` allows. Answers have a bound of their own,
//! in number and in bytes. All of an entry are kept for the same time, so the oldest one is also the first to go.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::answer::Answer;

/// How many answers an entry keeps.
const ANSWERS: usize = 65_536;
/// How many bytes the answers of an entry may take.
const BYTES: usize = 64 << 20;

/// A SHA-256.
pub(super) type Digest = [u8; 32];

/// The claims and answers of an entry.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    slots: HashMap<Digest, Slot>,
    /// The keys of answers, the oldest first.
    kept: VecDeque<(Digest, u64)>,
    bytes: usize,
    claims: u64,
}

#[derive(Debug)]
struct Slot {
    fingerprint: Digest,
    claim: u64,
    /// The answer, and until when it is kept. `None` while somebody is at work.
    answer: Option<(Arc<Answer>, Instant)>,
}

/// What came of a claim.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// The work is ours, under this number.
    Ours(u64),
    InProgress,
    Mismatch,
    Kept(Arc<Answer>),
}

impl Memory {
    /// Claims the work of `key`.
    pub(super) fn claim(&self, key: Digest, fingerprint: Digest) -> Found {
        let mut held = self.lock();
        held.expire(Instant::now());
        if let Some(slot) = held.slots.get(&key) {
            return match &slot.answer {
                _ if slot.fingerprint != fingerprint => Found::Mismatch,
                None => Found::InProgress,
                Some((answer, _)) => Found::Kept(Arc::clone(answer)),
            };
        }
        held.claims = held.claims.wrapping_add(1);
        let claim = held.claims;
        held.slots.insert(key, Slot { fingerprint, claim, answer: None });
        Found::Ours(claim)
    }

    /// Keeps the answer of a claim. Returns how many younger answers than `ttl` had to go for it.
    pub(super) fn keep(&self, key: Digest, claim: u64, answer: Answer, ttl: Duration) -> usize {
        let now = Instant::now();
        let Some(until) = now.checked_add(ttl) else {
            return 0;
        };
        let mut held = self.lock();
        let size = answer.size();
        let Some(slot) = held.slots.get_mut(&key).filter(|slot| slot.claim == claim) else {
            return 0;
        };
        slot.answer = Some((Arc::new(answer), until));
        held.kept.push_back((key, claim));
        held.bytes = held.bytes.saturating_add(size);
        held.expire(now);
        let mut lost = 0;
        while held.kept.len() > ANSWERS || held.bytes > BYTES {
            held.forget_oldest();
            lost += 1;
        }
        lost
    }

    /// Gives a claim up.
    pub(super) fn free(&self, key: &Digest, claim: u64) {
        let mut held = self.lock();
        let ours = |slot: &Slot| slot.claim == claim && slot.answer.is_none();
        if held.slots.get(key).is_some_and(ours) {
            held.slots.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many claims and answers there are, and the bytes of the latter.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize, usize) {
        let held = self.lock();
        (held.slots.len() - held.kept.len(), held.kept.len(), held.bytes)
    }
}

impl Held {
    /// Forgets the answers whose time is over.
    fn expire(&mut self, now: Instant) {
        let over = |slot: &Slot| slot.answer.as_ref().is_none_or(|(_, until)| *until <= now);
        while let Some((key, _)) = self.kept.front()
            && self.slots.get(key).is_none_or(over)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((key, claim)) = self.kept.pop_front() else {
            return;
        };
        if self.slots.get(&key).is_some_and(|slot| slot.claim == claim)
            && let Some(Slot { answer: Some((answer, _)), .. }) = self.slots.remove(&key)
        {
            self.bytes = self.bytes.saturating_sub(answer.size());
        }
    }
}
