//! What becomes of a request with a key: a claim, a kept answer, or a refusal.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::answer::Answer;
use super::claim::{Claim, LEASE};
use super::memory::{Digest, Found, Memory};
use super::request;
use super::terms::Terms;
use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::{Asked, Entry, Installation, Role};
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::body::valued::valued;
use crate::proxy::meaning::idempotency::{IN_PROGRESS, MISMATCH, MISSING, STORE_UNAVAILABLE};
use crate::proxy::memory::Budget;
use crate::proxy::settings::store::OnError;
use crate::proxy::store::{Claimed, Store};
use crate::telemetry::limiter::LogLimiter;
use crate::telemetry::metrics::AnswerMetrics;

/// When it makes sense to ask again while the first request is at work.
const AGAIN: Duration = Duration::from_millis(200);

/// An entry, with what it keeps.
#[derive(Debug)]
pub(super) struct Installed {
    pub(super) terms: Terms,
    pub(super) memory: Memory,
    pub(super) store: Option<Arc<Store>>,
    /// The beginning of its keys in the store.
    scope: Arc<str>,
    metrics: Option<AnswerMetrics>,
    /// By [`Lost`].
    told: [LogLimiter; 3],
}

/// Why an answer that was to be kept is not.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lost {
    /// Others needed its place before its time was over.
    Evicted,
    /// It is over `responseLimit`.
    TooLarge,
    /// Its claim had lapsed.
    Lapsed,
}

/// What was decided for a request.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) decided: Decided,
    /// Until there is an answer.
    pub(super) claim: Option<Claim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decided {
    /// There is no key.
    Keyless,
    First,
    Replayed,
    InProgress,
    Mismatch,
    Missing,
    /// The store gave no answer.
    Unknown {
        passes: bool,
    },
}

/// What a kept answer is given again with.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) role: Role,
    /// Where the body is read, if an expression of the route reads it.
    pub(super) memory: Option<Arc<Budget>>,
}

/// What an entry decided, or the answer that it gives again.
pub(super) enum Claiming {
    Decided(Work),
    Kept(Arc<Answer>),
}

impl Lost {
    const LINES: [&'static str; 3] = [
        "A kept answer was forgotten before its time, because others needed its place.",
        "An answer was not kept, because it is larger than `responseLimit`.",
        "An answer was not kept, because the claim to its work had lapsed in the store.",
    ];
}

impl From<Decided> for Work {
    fn from(decided: Decided) -> Self {
        Self { decided, claim: None }
    }
}

impl Installed {
    pub(super) fn new(
        terms: Terms,
        store: Option<Arc<Store>>,
        metrics: Option<AnswerMetrics>,
        at: &Installation<'_>,
    ) -> Self {
        let scope: Arc<str> = format!("answer:{}:{}", at.route(), at.entry).into();
        let told = Lost::LINES.map(|line| LogLimiter::new(line, Some(Arc::clone(&scope))));
        Self { terms, memory: Memory::default(), store, scope, metrics, told }
    }

    /// Counts and logs answers that are not kept.
    pub(super) fn lost(&self, why: Lost, count: usize) {
        if count == 0 {
            return;
        }
        let place = why as usize;
        if let Some(metrics) = &self.metrics {
            metrics.lost(place, count);
        }
        let told = self.told.get(place).and_then(|told| told.admits(Instant::now()));
        if let (Some(untold), Some(line)) = (told, Lost::LINES.get(place)) {
            tracing::warn!(entry = &*self.scope, untold, "{line}");
        }
    }

    /// Claims the work of `key` in this process.
    pub(super) fn claim(self: &Arc<Self>, key: Digest, fingerprint: Digest) -> Claiming {
        match self.memory.claim(key, fingerprint) {
            Found::Ours(claim) => {
                let claim = Claim::local(Arc::clone(self), key, claim);
                Claiming::Decided(Work { decided: Decided::First, claim: Some(claim) })
            }
            Found::InProgress => Claiming::Decided(Decided::InProgress.into()),
            Found::Mismatch => Claiming::Decided(Decided::Mismatch.into()),
            Found::Kept(answer) => Claiming::Kept(answer),
        }
    }

    /// Claims it in `store`.
    pub(super) async fn claim_stored(
        self: Arc<Self>,
        store: Arc<Store>,
        key: Digest,
        fingerprint: Digest,
    ) -> Claiming {
        let key: Arc<str> = format!("{}:{}", self.scope, request::hex(&key)).into();
        let mut claim = Claim::stored(self, Arc::clone(&store), Arc::clone(&key));
        let fingerprint = request::hex(&fingerprint);
        // If this is dropped before the answer comes, the claim gives up what the store may have given.
        let claimed = store.claim(&key, &fingerprint, claim.id(), LEASE).await;
        let decided = match claimed {
            Ok(Claimed::Ours) => {
                claim.renew();
                let claim = Some(claim);
                return Claiming::Decided(Work { decided: Decided::First, claim });
            }
            Err(error) => {
                if !error.is_uncertain() {
                    claim.forget();
                }
                Decided::Unknown { passes: store.on_error() == OnError::Allow }
            }
            Ok(Claimed::Kept(answer)) => {
                claim.forget();
                // An answer of another release may have another form.
                match Answer::decode(answer) {
                    Some(answer) => return Claiming::Kept(Arc::new(answer)),
                    None => return Claiming::Decided(Decided::InProgress.into()),
                }
            }
            Ok(Claimed::InProgress) => {
                claim.forget();
                Decided::InProgress
            }
            Ok(Claimed::Mismatch) => {
                claim.forget();
                Decided::Mismatch
            }
        };
        Claiming::Decided(decided.into())
    }
}

impl Claiming {
    /// What the entry does, and its state.
    pub(super) async fn asked(self, replay: Replay) -> Asked {
        match self {
            Self::Decided(work) => work.asked(),
            Self::Kept(answer) => {
                let wants = Entry::Substitute(replay.outcome(&answer).await);
                Asked { wants, own: Some(Box::new(Work::from(Decided::Replayed))) }
            }
        }
    }
}

impl Replay {
    /// The outcome that `answer` was.
    async fn outcome(self, answer: &Answer) -> Outcome {
        let Some(memory) = self.memory else {
            return answer.outcome(self.role, None);
        };
        let content_type = answer.content_type();
        let mut room = memory.reservation();
        let read = if room.grow(answer.body.len()) {
            valued(answer.body.clone(), content_type.as_ref(), room).await.ok()
        } else {
            None
        };
        answer.outcome(self.role, read.map(|(_, value)| value))
    }
}

impl Work {
    /// What the entry does, and its state.
    pub(super) fn asked(self) -> Asked {
        Asked { wants: self.wants(), own: Some(Box::new(self)) }
    }

    fn wants(&self) -> Entry {
        let after = || Value::string(Span::from_duration(AGAIN).to_string());
        let failure = match self.decided {
            Decided::Keyless
            | Decided::First
            | Decided::Replayed
            | Decided::Unknown { passes: true } => return Entry::Proceed,
            Decided::InProgress => {
                let message = "the first request with this idempotency key is still at work";
                let failure = Failure::error(IN_PROGRESS, message).with_retryable(true);
                failure.with_details(Value::object([("retryAfter", after())]))
            }
            Decided::Mismatch => {
                let message = "this idempotency key was used for another request";
                Failure::error(MISMATCH, message).with_retryable(false)
            }
            Decided::Missing => {
                let message = "the request has no idempotency key";
                Failure::error(MISSING, message).with_retryable(false)
            }
            Decided::Unknown { passes: false } => {
                let message = "the store of the idempotency keys gave no answer";
                let failure = Failure::error(STORE_UNAVAILABLE, message).with_retryable(true);
                failure.with_details(Value::object([("retryAfter", Value::from("PT1S"))]))
            }
        };
        Entry::Substitute(failure.into())
    }
}
