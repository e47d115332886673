//! The encoder's dynamic table: what it has sent, and where it finds that again.

use super::ENTRY_OVERHEAD;
use std::collections::VecDeque;

/// How many chains there are. A name belongs to one.
const CHAINS: usize = 64;

/// How many entries of a chain are looked at. What is beyond them is sent again.
const DEPTH: usize = 16;

/// How many new values of a name are sent without an entry while its newest entry has never been used.
const PATIENCE: u8 = 32;

/// The number that no entry has.
const NONE: u32 = u32::MAX;

/// A name, as the table knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    /// Its first index in the static table, or 0.
    pub(super) index: u8,
    /// Its text.
    pub(super) name: &'a [u8],
}

impl Key<'_> {
    /// The chain of this name.
    #[inline]
    fn chain(self) -> usize {
        if self.index != 0 {
            return usize::from(self.index) % CHAINS;
        }
        // Names of the same length with the same ends share a chain: that costs a few looks, no more than `DEPTH`.
        let ends = match (self.name.first_chunk::<8>(), self.name.last_chunk::<8>()) {
            (Some(first), Some(last)) => u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last),
            _ => self.name.iter().fold(0, |ends, octet| ends << 8 | u64::from(*octet)),
        };
        // The golden ratio, as Knuth multiplies (The Art of Computer Programming, 6.4).
        let hash = (ends ^ self.name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from(hash >> (u64::BITS - CHAINS.ilog2())).unwrap_or(0)
    }
}

/// One entry.
#[derive(Debug)]
struct Entry {
    /// The name, unless it is in the static table, and the value.
    text: Box<[u8]>,
    /// How long the name is in `text`.
    name_length: u16,
    /// What the entry counts, in octets (RFC 7541 §4.1).
    size: u16,
    /// The number of the next older entry of the same chain. It may be gone.
    older: u32,
    /// The name's index in the static table, or 0.
    index: u8,
    /// Whether a field has been sent as this entry.
    used: bool,
    /// How many fields of this name have been sent without an entry since.
    passed: u8,
}

impl Entry {
    /// Whether this is the field.
    #[inline]
    fn is(&self, key: Key<'_>, value: &[u8]) -> bool {
        if self.index != key.index {
            return false;
        }
        if key.index != 0 {
            return *self.text == *value;
        }
        self.text.split_at_checked(self.name_length.into()) == Some((key.name, value))
    }

    /// Whether this has the field's name.
    #[inline]
    fn has_name(&self, key: Key<'_>) -> bool {
        self.index == key.index
            && (key.index != 0 || self.text.get(..self.name_length.into()) == Some(key.name))
    }
}

/// What the table has of a field. Places count from the newest entry, which is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The field itself.
    Field(usize),
    /// Its name only.
    Name {
        /// The place of the newest such entry.
        place: usize,
        /// Whether an entry for the new value is worth it. Where one value after the other comes only once, it is not.
        worth: bool,
    },
    /// Nothing.
    Nothing,
}

/// The dynamic table. It has no memory before its first entry.
#[derive(Debug)]
pub(super) struct Sent {
    /// The oldest first. Their numbers follow each other from `first`.
    entries: VecDeque<Entry>,
    first: u32,
    /// The newest entry's number, for each chain. It may be gone.
    chains: Vec<u32>,
    size: usize,
    max_size: usize,
}

impl Sent {
    pub(super) fn new(max_size: usize) -> Self {
        Self { entries: VecDeque::new(), first: 0, chains: Vec::new(), size: 0, max_size }
    }

    /// What the entries may count, in octets.
    pub(super) fn max_size(&self) -> usize {
        self.max_size
    }

    /// Changes what the entries may count. The oldest leave until they do.
    pub(super) fn resize(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict_to(max_size);
        if max_size == 0 {
            self.entries = VecDeque::new();
            self.chains = Vec::new();
        }
    }

    /// The place of a field whose name's newest entry it is, which is where most are found.
    #[inline]
    pub(super) fn find_newest(&mut self, key: Key<'_>, value: &[u8]) -> Option<usize> {
        let number = self.chains.get(key.chain()).copied()?;
        let at = number.wrapping_sub(self.first) as usize;
        let entry = self.entries.get_mut(at)?;
        if !entry.is(key, value) {
            return None;
        }
        entry.used = true;
        Some(self.entries.len() - 1 - at)
    }

    /// Looks for a field.
    pub(super) fn find(&mut self, key: Key<'_>, value: &[u8]) -> Found {
        let mut newest = None;
        let mut number = self.chains.get(key.chain()).copied().unwrap_or(NONE);
        for _ in 0..DEPTH {
            let at = number.wrapping_sub(self.first) as usize;
            let Some(entry) = self.entries.get_mut(at) else { break };
            if entry.is(key, value) {
                entry.used = true;
                return Found::Field(self.entries.len() - 1 - at);
            }
            if newest.is_none() && entry.has_name(key) {
                newest = Some(at);
            }
            number = entry.older;
        }
        let Some((at, entry)) = newest.and_then(|at| Some((at, self.entries.get_mut(at)?))) else {
            return Found::Nothing;
        };
        let worth = entry.used || entry.passed >= PATIENCE;
        entry.passed = entry.passed.saturating_add(1);
        Found::Name { place: self.entries.len() - 1 - at, worth }
    }

    /// The place of the newest entry with this name.
    pub(super) fn find_name(&self, key: Key<'_>) -> Option<usize> {
        let mut number = self.chains.get(key.chain()).copied()?;
        for _ in 0..DEPTH {
            let at = number.wrapping_sub(self.first) as usize;
            let entry = self.entries.get(at)?;
            if entry.has_name(key) {
                return Some(self.entries.len() - 1 - at);
            }
            number = entry.older;
        }
        None
    }

    /// Whether a field may become an entry: one that takes more than half the table would cost too many others.
    #[inline]
    pub(super) fn admits(&self, key: Key<'_>, value: &[u8]) -> bool {
        key.name.len() + value.len() + ENTRY_OVERHEAD <= self.max_size / 2
    }

    /// Adds an entry, which is admitted. The oldest leave for it.
    pub(super) fn insert(&mut self, key: Key<'_>, value: &[u8]) {
        let name = if key.index == 0 { key.name } else { &[] };
        let size = key.name.len() + value.len() + ENTRY_OVERHEAD;
        let (Ok(name_length), Ok(counted)) = (u16::try_from(name.len()), u16::try_from(size))
        else {
            return;
        };
        self.evict_to(self.max_size.saturating_sub(size));
        if self.chains.is_empty() {
            self.chains = vec![NONE; CHAINS];
        }
        let number = self.first.wrapping_add(u32::try_from(self.entries.len()).unwrap_or(NONE));
        let older = match self.chains.get_mut(key.chain()) {
            Some(newest) => std::mem::replace(newest, number),
            None => NONE,
        };
        self.size += size;
        self.entries.push_back(Entry {
            text: [name, value].concat().into(),
            name_length,
            size: counted,
            older,
            index: key.index,
            used: false,
            passed: 0,
        });
    }

    /// Removes the oldest entries until all count at most `size`.
    fn evict_to(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.first = self.first.wrapping_add(1);
            self.size -= usize::from(oldest.size);
        }
    }
}
