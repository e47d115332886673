//! Interruption: what may stop the work, and what stopping it is (MWL, "Cancellation").
//!
//! An interruption is the `Err` of every function of the engine, an outcome, good or bad, its `Ok`. So
//! `onSuccess`, `onFailure`, arms and `catch` cannot see one: they are handed an [`Outcome`], and `?` is
//! the unwind. Few places take a [`Flowed`] apart: the ascent past an entry (its `onAlways` runs on
//! both, and the owner of a bound converts there), `Gather`, a cleanup's edge, and the root.
//!
//! Work waits only at leaves: a provider's call, a pause, a gap. A leaf is polled before the bounds, so a
//! Result that is there in the poll in which a bound falls due is accepted. Only leaves are dropped;
//! frames and stacks unwind, because `onAlways` must run.
//!
//! [`Outcome`]: crate::language::outcome::Outcome

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::alarm::Alarm;
use crate::language::code::system;
use crate::language::outcome::{Failure, FailureType, Outcome};
use crate::language::provider::Role;

/// What rises: an outcome, or the unwind.
pub(super) type Flowed = Result<Outcome, Interrupted>;

/// An unwind in progress.
#[derive(Clone, Debug)]
pub(super) struct Interrupted {
    /// Whose interruption it is.
    pub(super) owner: Owner,
    /// The Result in flight: the cancellation, with what explains it beneath, or the cleanup failure
    /// that superseded it.
    pub(super) chain: Arc<Failure>,
    /// Whether a cleanup failure stands at the head of the chain: then nobody may convert it.
    pub(super) superseded: bool,
    /// Whether a cleanup ran since: time has passed, and outer bounds must be looked at again.
    pub(super) cleaned: bool,
}

/// Who imposed an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Somebody outside the execution: there is no seam.
    External,
    /// The bound at this position of the scope's stack of bounds.
    Bound(usize),
}

/// What can interrupt the work that runs now, and what that work is told about its surroundings.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    cancel: Cancel,
    bounds: SmallVec<[Bound; 4]>,
    /// Rings when the first of them is due.
    alarm: Alarm,
    /// Whose calls are made here.
    pub(super) role: Role,
    /// The run of the innermost re-running entry, from 1.
    pub(super) attempt: u32,
    /// How many it may make, where one number says so.
    pub(super) attempts: Option<u32>,
}

/// Cancellation from outside the scope.
#[derive(Clone, Debug)]
enum Cancel {
    /// Nobody can.
    Never,
    /// It interrupts at once.
    Token(Canceller),
    /// It lets a cleanup run on, for this long.
    Lenient(Canceller, Duration),
}

/// A cancellation and what it puts in flight. Whoever is outside the execution only pulls the token;
/// a `Gather` says what its dispatches are to see.
#[derive(Clone, Debug)]
pub(super) struct Canceller {
    token: CancellationToken,
    chain: Arc<OnceLock<Arc<Failure>>>,
}

/// A duration bound of an established entry.
#[derive(Clone, Debug)]
struct Bound {
    /// When it fires; never, where the clock cannot count so far.
    deadline: Option<Instant>,
    explanation: Arc<Failure>,
}

/// A leaf that runs: a future of its own rather than an `async` block, because every request carries one.
#[must_use = "a future does nothing unless it is polled"]
pub(super) enum Leaf<'s, F: Future> {
    /// Nothing can interrupt it.
    Free(F),
    /// A bound can, and nobody outside: the usual case of an execution that is dropped, not cancelled.
    Bounded {
        leaf: F,
        scope: &'s mut Scope,
        /// The bound that fires first, and when.
        first: (usize, Instant),
    },
    /// Anything can.
    Cancellable(Pin<Box<dyn Future<Output = Result<F::Output, Interrupted>> + Send + 's>>),
}

impl Scope {
    /// The scope of a root frame.
    pub(super) fn root(cancel: Option<CancellationToken>, alarm: Alarm) -> Self {
        let cancel = cancel.map_or(Cancel::Never, |token| {
            Cancel::Token(Canceller { token, chain: Arc::default() })
        });
        let bounds = SmallVec::new();
        Self { cancel, bounds, alarm, role: Role::Step, attempt: 1, attempts: None }
    }

    /// The alarm, for the next execution.
    pub(super) fn into_alarm(self) -> Alarm {
        self.alarm
    }

    /// The scope of a cleanup. An ordinary one is shielded: what interrupts the scope around it lets it
    /// finish within `limit`. One in a teardown has `limit` from the start.
    pub(super) fn for_cleanup(&self, limit: Duration, teardown: bool) -> Self {
        let (deadline, cancel) = if teardown {
            (Instant::now().checked_add(limit), Cancel::Never)
        } else {
            let first = self.earliest().map(|(_, first)| first.max(Instant::now()));
            let cancel = match &self.cancel {
                Cancel::Never => Cancel::Never,
                Cancel::Token(canceller) | Cancel::Lenient(canceller, _) => {
                    Cancel::Lenient(canceller.clone(), limit)
                }
            };
            (first.and_then(|first| first.checked_add(limit)), cancel)
        };
        // The first bound is the cleanup's own edge, whether or not it can fire yet.
        let edge = Bound { deadline, explanation: cleanup_timeout(limit) };
        let bounds = smallvec::smallvec![edge];
        let alarm = Alarm::default();
        Self { cancel, bounds, alarm, role: Role::Cleanup, attempt: 1, attempts: None }
    }

    /// The scope of one of a `Gather`'s dispatches: interrupted by what interrupts the `Gather`, which
    /// sees to it, and by its own bounds.
    pub(super) fn for_dispatch(&self, canceller: Canceller) -> Self {
        Self { cancel: Cancel::Token(canceller), bounds: SmallVec::new(), ..self.clone() }
    }

    /// Imposes a bound until [`lift`](Self::lift).
    pub(super) fn impose(&mut self, deadline: Option<Instant>, explanation: Arc<Failure>) -> usize {
        self.bounds.push(Bound { deadline, explanation });
        self.bounds.len() - 1
    }

    /// How many bounds are imposed.
    pub(super) fn bounds(&self) -> usize {
        self.bounds.len()
    }

    /// Lifts the bound at `position` and all inside it.
    pub(super) fn lift(&mut self, position: usize) {
        self.bounds.truncate(position);
    }

    /// The interruption that is due now, if one is. For the moments after shielded work; a leaf checks
    /// by itself.
    pub(super) fn due(&self) -> Option<Interrupted> {
        if let Cancel::Token(canceller) = &self.cancel
            && canceller.token.is_cancelled()
        {
            return Some(canceller.interruption());
        }
        let (position, deadline) = self.earliest()?;
        (deadline <= Instant::now()).then(|| self.fired(position))
    }

    /// Runs a leaf. It is dropped where the scope is interrupted first.
    pub(super) fn leaf<'s, F>(&'s mut self, leaf: F) -> Leaf<'s, F>
    where
        F: Future<Output: Send> + Unpin + Send + 's,
    {
        match (&self.cancel, self.earliest()) {
            (Cancel::Never, None) => Leaf::Free(leaf),
            (Cancel::Never, Some(first)) => Leaf::Bounded { leaf, scope: self, first },
            (Cancel::Token(_) | Cancel::Lenient(..), _) => {
                Leaf::Cancellable(Box::pin(self.cancellable(leaf)))
            }
        }
    }

    /// [`leaf`](Self::leaf) where somebody outside may cancel.
    async fn cancellable<F: Future + Unpin>(
        &mut self,
        mut leaf: F,
    ) -> Result<F::Output, Interrupted> {
        loop {
            let earliest = self.earliest();
            let token = match &self.cancel {
                Cancel::Never => None,
                Cancel::Token(canceller) | Cancel::Lenient(canceller, _) => {
                    Some(canceller.token.clone())
                }
            };
            let token_pulled = async {
                match token {
                    Some(token) => token.cancelled_owned().await,
                    None => std::future::pending().await,
                }
            };
            let bound_fires = async {
                match earliest {
                    Some((position, deadline)) => {
                        tokio::time::sleep_until(deadline).await;
                        position
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                output = &mut leaf => return Ok(output),
                () = token_pulled => {}
                position = bound_fires => return Err(self.fired(position)),
            }
            let limit = match &self.cancel {
                Cancel::Lenient(_, limit) => *limit,
                Cancel::Token(canceller) => return Err(canceller.interruption()),
                Cancel::Never => continue,
            };
            self.cancel = Cancel::Never;
            if let (Some(edge), Some(at)) =
                (self.bounds.first_mut(), Instant::now().checked_add(limit))
            {
                edge.deadline = Some(edge.deadline.map_or(at, |deadline| deadline.min(at)));
            }
        }
    }

    /// The bound that fires first; of those that fire together, the outermost.
    fn earliest(&self) -> Option<(usize, Instant)> {
        let due = |(position, bound): (usize, &Bound)| Some((position, bound.deadline?));
        self.bounds.iter().enumerate().filter_map(due).min_by_key(|(_, deadline)| *deadline)
    }

    fn fired(&self, position: usize) -> Interrupted {
        let explanation = self.bounds.get(position).map(|bound| Arc::clone(&bound.explanation));
        Interrupted {
            owner: Owner::Bound(position),
            chain: cancellation(system::CANCELLED, explanation),
            superseded: false,
            cleaned: false,
        }
    }
}

impl<F: Future + Unpin> Future for Leaf<'_, F> {
    type Output = Result<F::Output, Interrupted>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Free(leaf) => Pin::new(leaf).poll(cx).map(Ok),
            Self::Bounded { leaf, scope, first: (position, due) } => {
                match Pin::new(leaf).poll(cx) {
                    Poll::Ready(output) => Poll::Ready(Ok(output)),
                    Poll::Pending => {
                        scope.alarm.poll(*due, cx).map(|()| Err(scope.fired(*position)))
                    }
                }
            }
            Self::Cancellable(running) => running.as_mut().poll(cx),
        }
    }
}

impl Canceller {
    pub(super) fn new() -> Self {
        Self { token: CancellationToken::new(), chain: Arc::default() }
    }

    /// Cancels, with `chain` as what the unwind carries. A second cancellation changes nothing.
    pub(super) fn cancel(&self, chain: Arc<Failure>) {
        self.chain.get_or_init(|| chain);
        self.token.cancel();
    }

    fn interruption(&self) -> Interrupted {
        let chain = self.chain.get().map(Arc::clone);
        Interrupted {
            owner: Owner::External,
            chain: chain.unwrap_or_else(|| cancellation(system::CANCELLED, None)),
            superseded: false,
            cleaned: false,
        }
    }
}

impl Interrupted {
    /// A cleanup failed during the unwind: it supersedes the chain.
    pub(super) fn supersede(&mut self, failure: &Arc<Failure>) {
        self.chain = Failure::superseding(failure, Some(&self.chain));
        self.superseded = true;
    }

    /// The failure beneath the cancellation; none for one from outside.
    pub(super) fn explanation(&self) -> Option<&Failure> {
        self.chain.previous.as_deref()
    }

    /// Whether nothing but a cancellation from outside the execution is in flight.
    pub(super) fn is_from_outside(&self) -> bool {
        self.chain.previous.is_none() && self.chain.code == system::CANCELLED
    }

    /// What the owner's seam emits: its explanation where the cancellation is still bare, else the
    /// chain as it is ("The conversion seam"). A failure of its own each time, though a bound that was
    /// prepared once explains each firing with the same: one that fires again is a new failure, which
    /// links to the one that is being handled.
    pub(super) fn convert(self) -> Arc<Failure> {
        match &self.chain.previous {
            Some(explanation) if !self.superseded => Arc::new(explanation.as_ref().clone()),
            _ => self.chain,
        }
    }
}

/// A bare cancellation, or one that chains what explains it.
pub(super) fn cancellation(code: &'static str, explanation: Option<Arc<Failure>>) -> Arc<Failure> {
    Arc::new(Failure {
        ty: FailureType::Cancellation,
        previous: explanation,
        ..Failure::error(code, "the work was cancelled")
    })
}

fn cleanup_timeout(limit: Duration) -> Arc<Failure> {
    use crate::language::provider::middleware::timeout;
    Arc::new(timeout::exceeded(limit, "the cleanup did not finish in its time"))
}
