//! Which operation a dispatch performs, so that its target can recognize one that it has performed already.
//!
//! An operation is what a definition asks for once: a call at its place in the definition, in one iteration of each
//! `Loop` around it, as one dispatch of each `Gather`, in one visit of each Step. However often a `Retry` runs it again,
//! at whatever level, it stays the same operation. A cleanup's call is another one than its Step's.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};

/// Knows what tells an operation from all others of its execution.
pub trait Identity: fmt::Debug + Send + Sync {
    /// Gives `hasher` what tells the operation from the others, and nothing that differs when it is run again.
    fn feed(&self, hasher: &mut dyn Hasher);

    /// The operation's key. `secret` is a random value of the execution.
    fn key(&self, secret: [u8; 16]) -> OperationKey {
        OperationKey([0, 1].map(|half| {
            let mut hasher = DefaultHasher::new();
            hasher.write(&secret);
            hasher.write_u8(half);
            self.feed(&mut hasher);
            hasher.finish()
        }))
    }
}

/// The same for each run of one operation, and never the same for two operations. Its text has 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationKey([u64; 2]);

impl fmt::Display for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([high, low]) = self;
        write!(f, "{high:016x}{low:016x}")
    }
}
