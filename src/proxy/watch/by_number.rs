//! Hashes for tables whose keys are numbers that this process gives, one after another.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds them.
pub(super) type ByNumber = BuildHasherDefault<NumberHasher>;

/// Spreads a number over all bits: nobody outside chooses the numbers, so nothing needs to be secret.
#[derive(Debug, Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The fractional part of the golden ratio.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
