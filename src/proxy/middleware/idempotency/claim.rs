//! A claim to the work of a key, and the copy of its answer.
//!
//! Whoever has a claim either keeps an answer with it or, when it is dropped, gives it up. A claim in a store lapses if
//! its proxy dies, so it is renewed as long as the work goes on.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::answer::Answer;
use super::memory::Digest;
use super::work::{Installed, Lost};
use crate::language::value::Value;
use crate::proxy::answer::watched::Keeper;
use crate::proxy::store::Store;

/// After how long a claim lapses in a store.
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// A claim.
#[derive(Debug)]
pub(super) struct Claim {
    entry: Arc<Installed>,
    /// `None` once it was used.
    held: Option<Held>,
}

#[derive(Debug)]
enum Held {
    Local { key: Digest, claim: u64 },
    Stored(StoredClaim),
}

#[derive(Debug)]
struct StoredClaim {
    store: Arc<Store>,
    key: Arc<str>,
    claim: Arc<str>,
    renewal: Option<AbortOnDropHandle<()>>,
}

/// Makes the answer of a claim while its body passes.
#[derive(Debug)]
pub(super) struct Copy {
    claim: Claim,
    answer: Answer,
    body: BytesMut,
}

impl Claim {
    /// In this process.
    pub(super) const fn local(entry: Arc<Installed>, key: Digest, claim: u64) -> Self {
        Self { entry, held: Some(Held::Local { key, claim }) }
    }

    /// What `store` will give for `key`. Where it gives nothing, it must be [forgotten](Self::forget).
    pub(super) fn stored(entry: Arc<Installed>, store: Arc<Store>, key: Arc<str>) -> Self {
        let claim = format!("{:032x}", rand::random::<u128>()).into();
        let stored = StoredClaim { store, key, claim, renewal: None };
        Self { entry, held: Some(Held::Stored(stored)) }
    }

    /// By which the store knows it.
    pub(super) fn id(&self) -> &str {
        match &self.held {
            Some(Held::Stored(stored)) => &stored.claim,
            _ => "",
        }
    }

    /// The store has given it: it is renewed from now on.
    pub(super) fn renew(&mut self) {
        if let Some(Held::Stored(StoredClaim { store, key, claim, renewal })) = &mut self.held {
            let renewing = renew(Arc::clone(store), Arc::clone(key), Arc::clone(claim));
            *renewal = Some(AbortOnDropHandle::new(tokio::spawn(renewing)));
        }
    }

    /// The store has given nothing.
    pub(super) fn forget(mut self) {
        self.held = None;
    }

    /// Keeps a value that a Flow made.
    pub(super) fn keep_value(self, value: &Value) {
        let answer = Answer::of_value(value);
        if answer.size() <= self.entry.terms.limit {
            self.keep(answer);
        } else {
            self.entry.lost(Lost::TooLarge, 1);
        }
    }

    /// Keeps `answer`.
    pub(super) fn keep(mut self, answer: Answer) {
        let entry = Arc::clone(&self.entry);
        match self.held.take() {
            Some(Held::Local { key, claim }) => {
                let lost = entry.memory.keep(key, claim, answer, entry.terms.ttl);
                entry.lost(Lost::Evicted, lost);
            }
            Some(Held::Stored(StoredClaim { store, key, claim, renewal })) => {
                let (Some(answer), Ok(runtime)) = (answer.encode(), Handle::try_current()) else {
                    return;
                };
                runtime.spawn(async move {
                    // An error was counted and logged; the claim lapses.
                    let kept = store.keep(&key, &claim, &answer, entry.terms.ttl).await;
                    if kept == Ok(false) {
                        entry.lost(Lost::Lapsed, 1);
                    }
                    drop(renewal);
                });
            }
            None => {}
        }
    }

    /// Keeps the answer with this head, once its body has passed.
    pub(super) fn copy(self, answer: Answer) -> Copy {
        Copy { claim: self, answer, body: BytesMut::new() }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        match self.held.take() {
            Some(Held::Local { key, claim }) => self.entry.memory.free(&key, claim),
            Some(Held::Stored(StoredClaim { store, key, claim, renewal: _ })) => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(async move {
                        // An error was counted and logged; the claim lapses.
                        drop(store.free(&key, &claim).await);
                    });
                }
            }
            None => {}
        }
    }
}

impl Keeper for Copy {
    fn data(&mut self, data: &Bytes) -> bool {
        let fits = self.body.len().saturating_add(data.len()) <= self.claim.entry.terms.limit;
        if fits {
            self.body.extend_from_slice(data);
        } else {
            self.claim.entry.lost(Lost::TooLarge, 1);
        }
        fits
    }

    fn complete(self: Box<Self>, trailers: Option<&HeaderMap>) {
        let Self { claim, answer, body } = *self;
        claim.keep(answer.with_body(body.freeze(), trailers));
    }
}

/// Renews a claim until it is lost.
async fn renew(store: Arc<Store>, key: Arc<str>, claim: Arc<str>) {
    loop {
        sleep(LEASE / 3).await;
        if store.renew(&key, &claim, LEASE).await == Ok(false) {
            return;
        }
    }
}
