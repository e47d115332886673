//! Answers that are kept in a store, and claims to the work that makes them.

use std::sync::Arc;
use std::time::Duration;

use super::script::Script;
use super::{Store, StoreError};

/// What came of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The work is ours.
    Ours,
    /// Somebody is at work.
    InProgress,
    /// The key belongs to another request.
    Mismatch,
    /// This answer was kept.
    Kept(Vec<u8>),
}

impl Store {
    /// Claims the work of `key` for `claim`, which lapses after `lease` unless it is renewed.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        key: &str,
        fingerprint: &str,
        claim: &str,
        lease: Duration,
    ) -> Result<Claimed, StoreError> {
        let lease = millis(lease);
        let arguments = [fingerprint.as_bytes(), claim.as_bytes(), lease.as_bytes()];
        let (what, answer): (u8, Vec<u8>) = self.ask(Script::Claim, key, &arguments).await?;
        match what {
            0 => Ok(Claimed::Ours),
            1 => Ok(Claimed::InProgress),
            2 => Ok(Claimed::Mismatch),
            _ => Ok(Claimed::Kept(answer)),
        }
    }

    /// Lets `claim` go on for `lease` from now. Returns whether it is still in force.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        key: &str,
        claim: &str,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let lease = millis(lease);
        let arguments = [claim.as_bytes(), lease.as_bytes()];
        self.ask(Script::Renew, key, &arguments).await
    }

    /// Keeps the `answer` of the work that `claim` has done. Returns whether that was still in force.
    pub(crate) async fn keep(
        self: &Arc<Self>,
        key: &str,
        claim: &str,
        answer: &[u8],
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let ttl = millis(ttl);
        let arguments = [claim.as_bytes(), answer, ttl.as_bytes()];
        self.ask(Script::Keep, key, &arguments).await
    }

    /// Gives `claim` up.
    pub(crate) async fn free(self: &Arc<Self>, key: &str, claim: &str) -> Result<bool, StoreError> {
        let arguments = [claim.as_bytes()];
        self.ask(Script::Free, key, &arguments).await
    }
}

/// In milliseconds, as text.
fn millis(duration: Duration) -> String {
    duration.as_millis().max(1).to_string()
}
