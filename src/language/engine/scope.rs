//! Interruption: what may stop the work, and how it stops (MWL, "Cancellation").
//!
//! In every function of the engine, an interruption is the `Err`, and an outcome (good or bad) is the `Ok`.
//! So `onSuccess`, `onFailure`, arms and `catch` cannot see an interruption: they get an [`Outcome`], and `?`
//! is the unwind. Only a few places look at both: the ascent past an entry (its `onAlways` runs for both, and
//! the owner of a bound converts there), `Gather`, a cleanup's edge, and the root.
//!
//! Work waits only at leaves: a provider's call, a pause, a gap. A leaf is polled before the bounds, so a
//! Result that is ready in the poll in which a bound is due is accepted. Only leaves are dropped; frames and
//! stacks unwind, because `onAlways` must run.
//!
//! No leaf is polled in a turn whose expressions have done enough work ([`Turn`]). So an execution shares its thread, however
//! many of its dispatches go on at once.
//!
//! [`Outcome`]: crate::language::outcome::Outcome

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::task::yield_now;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::alarm::Alarm;
use crate::language::code::system;
use crate::language::expr::Turn;
use crate::language::outcome::{Failure, FailureType, Outcome};
use crate::language::provider::{Moment, Role, Slot, Wait};

/// What rises: an outcome, or an unwind.
pub(super) type Rise = Result<Outcome, Interrupted>;

/// An unwind in progress.
#[derive(Clone, Debug)]
pub(super) struct Interrupted {
    /// Who imposed it.
    pub(super) owner: Owner,
    /// The Result in flight: the cancellation, linked to what explains it; or the failure of a cleanup that
    /// superseded it.
    pub(super) chain: Arc<Failure>,
    /// Whether the chain begins with a cleanup's failure. Then it must not be converted.
    pub(super) superseded: bool,
    /// Whether a cleanup has run since. Then time has passed, and outer bounds must be checked again.
    pub(super) cleaned: bool,
}

/// Who imposed an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Somebody outside the execution. Nothing inside converts it.
    External,
    /// The bound at this position of the scope's stack of bounds.
    Bound(usize),
}

/// What can interrupt the current work, and what that work knows of its surroundings.
#[derive(Debug)]
pub(super) struct Scope {
    cancel: Cancel,
    /// Waits for the cancellation. The first leaf that needs it makes it.
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    bounds: SmallVec<[Bound; 4]>,
    /// Fires when the first of them is due.
    alarm: Alarm,
    /// Who makes the calls here.
    pub(super) role: Role,
    /// The run of the innermost re-running entry, from 1.
    pub(super) attempt: u32,
    /// How many runs that entry may make, if that is one number.
    pub(super) attempts: Option<u32>,
    /// The index of the dispatch in the innermost `Gather`, if there is one around this scope.
    pub(super) dispatch: Option<usize>,
    /// When the first bound around the `Gather` fires, if this is the scope of a dispatch.
    outside: Option<Instant>,
    /// The wait before the current re-run, until its first attempt takes it.
    pub(super) wait: Option<Wait>,
    /// When the stack was entered whose operation begins, if that is an attempt, which takes this: it begins at that instant.
    pub(super) now: Moment,
    /// Whether a `catch` has taken a failure here. It is read for a cleanup.
    pub(super) caught: bool,
}

/// Cancellation from outside the scope.
#[derive(Clone, Debug)]
enum Cancel {
    /// There is none.
    Never,
    /// It interrupts at once.
    Token(Canceller),
    /// It lets a cleanup continue for this long.
    Lenient(Canceller, Duration),
}

/// A cancellation, and the chain that it puts in flight. From outside the execution only the token is
/// cancelled; a `Gather` also sets the chain for its dispatches.
#[derive(Clone, Debug)]
pub(super) struct Canceller {
    token: CancellationToken,
    chain: Arc<OnceLock<Arc<Failure>>>,
}

/// A duration bound of an established entry.
#[derive(Clone, Debug)]
struct Bound {
    /// When it fires; `None` if that is too far for the clock.
    deadline: Option<Instant>,
    explanation: Explanation,
}

/// The failure that explains why a bound fired.
#[derive(Clone, Debug)]
enum Explanation {
    /// That of an entry, which made it once.
    Entry(Arc<Failure>),
    /// That of a cleanup's edge, with its limit. It is made when it fires, which is rare.
    Cleanup(Duration),
}

/// A leaf that runs. Not an `async` block, which would be larger: every request carries one.
#[must_use = "a future does nothing unless it is polled"]
pub(super) struct Leaf<'s, F> {
    work: F,
    scope: &'s mut Scope,
    /// Where a call may ask to be polled at an instant.
    slot: Option<&'s Slot<'s>>,
}

impl Scope {
    /// The scope of a root frame.
    pub(super) fn root(cancel: Option<CancellationToken>, alarm: Alarm) -> Self {
        let cancel = cancel.map_or(Cancel::Never, |token| {
            Cancel::Token(Canceller { token, chain: Arc::default() })
        });
        Self {
            cancel,
            cancelled: None,
            bounds: SmallVec::new(),
            alarm,
            role: Role::Step,
            attempt: 1,
            attempts: None,
            dispatch: None,
            outside: None,
            wait: None,
            now: Moment::default(),
            caught: false,
        }
    }

    /// Gives back the alarm, for the next execution.
    pub(super) fn into_alarm(self) -> Alarm {
        self.alarm
    }

    /// The scope of a cleanup. An ordinary cleanup is shielded: an interruption of the scope around it lets
    /// it finish within `limit`. In a teardown, `limit` counts from the start.
    ///
    /// It borrows this scope's alarm and waiter until [`after_cleanup`](Self::after_cleanup).
    pub(super) fn for_cleanup(&mut self, limit: Duration, teardown: bool) -> Self {
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
        // The first bound is the cleanup's own edge, even if it cannot fire yet.
        let edge = Bound { deadline, explanation: Explanation::Cleanup(limit) };
        let bounds = smallvec::smallvec![edge];
        let alarm = std::mem::take(&mut self.alarm);
        let (cancelled, role, dispatch) = (self.cancelled.take(), Role::Cleanup, self.dispatch);
        Self { cancel, cancelled, bounds, role, dispatch, ..Self::root(None, alarm) }
    }

    /// Takes back what `cleanup` borrowed.
    pub(super) fn after_cleanup(&mut self, cleanup: Self) {
        self.alarm = cleanup.alarm;
        self.cancelled = cleanup.cancelled;
    }

    /// The scope of a `Gather`'s dispatch at this place. Its own bounds can interrupt it, and the `Gather`
    /// can: it passes on what interrupts itself.
    pub(super) fn for_dispatch(&mut self, canceller: Canceller, place: usize) -> Self {
        let (cancel, wait) = (Cancel::Token(canceller), self.wait.take());
        let Self { role, attempt, attempts, .. } = *self;
        let (dispatch, outside) = (Some(place), self.first_bound());
        let root = Self::root(None, Alarm::default());
        Self { cancel, role, attempt, attempts, dispatch, outside, wait, ..root }
    }

    /// The time until the first bound fires, of this scope or around its `Gather`. `None`: nothing bounds it.
    pub(super) fn room(&self) -> Option<Duration> {
        Some(self.first_bound()?.saturating_duration_since(Instant::now()))
    }

    /// When that is.
    fn first_bound(&self) -> Option<Instant> {
        let own = self.earliest().map(|(_, deadline)| deadline);
        own.into_iter().chain(self.outside).min()
    }

    /// Imposes a bound until [`lift`](Self::lift).
    pub(super) fn impose(&mut self, deadline: Option<Instant>, explanation: Arc<Failure>) -> usize {
        let explanation = Explanation::Entry(explanation);
        self.bounds.push(Bound { deadline, explanation });
        self.bounds.len() - 1
    }

    /// How many bounds are imposed.
    pub(super) fn bounds(&self) -> usize {
        self.bounds.len()
    }

    /// Lifts the bound at `position`, and all inside it.
    pub(super) fn lift(&mut self, position: usize) {
        self.bounds.truncate(position);
    }

    /// The interruption that is due now, if there is one. For use after shielded work; leaves check by
    /// themselves.
    pub(super) fn due(&self) -> Option<Interrupted> {
        if let Cancel::Token(canceller) = &self.cancel
            && canceller.token.is_cancelled()
        {
            return Some(canceller.interruption());
        }
        let (position, deadline) = self.earliest()?;
        (deadline <= Instant::now()).then(|| self.fired(position))
    }

    /// Runs a leaf. It is dropped if the scope is interrupted first.
    pub(super) const fn leaf<F: Future + Unpin>(&mut self, leaf: F) -> Leaf<'_, F> {
        Leaf { work: leaf, scope: self, slot: None }
    }

    /// Runs a provider's call, to which `slot` is lent.
    pub(super) const fn call<'s, F: Future + Unpin>(
        &'s mut self,
        call: F,
        slot: &'s Slot<'s>,
    ) -> Leaf<'s, F> {
        Leaf { work: call, scope: self, slot: Some(slot) }
    }

    /// A place between two pieces of work that do not wait. If the turn has done enough, the second is in the next one.
    pub(super) async fn rest(&mut self) -> Result<(), Interrupted> {
        if Turn::is_over() {
            self.leaf(std::future::ready(())).await?;
        }
        Turn::may_end();
        Ok(())
    }

    /// Ready with an interruption that is due. Ready with none if one came that lets the work continue for a
    /// while: then its time is bounded from now on. And with none at `wake`, if nothing is due before.
    fn poll_interruption(
        &mut self,
        wake: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Interrupted>> {
        if self.poll_cancelled(cx).is_ready() {
            match &self.cancel {
                Cancel::Token(canceller) => return Poll::Ready(Some(canceller.interruption())),
                Cancel::Lenient(_, limit) => {
                    let limit = *limit;
                    self.close(limit);
                    return Poll::Ready(None);
                }
                Cancel::Never => {}
            }
        }
        match (self.earliest(), wake) {
            (Some((position, due)), wake) if wake.is_none_or(|wake| due <= wake) => {
                self.alarm.poll(due, cx).map(|()| Some(self.fired(position)))
            }
            (_, Some(wake)) => self.alarm.poll(wake, cx).map(|()| None),
            (_, None) => Poll::Pending,
        }
    }

    /// Ready once the scope is cancelled from outside.
    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Cancel::Token(canceller) | Cancel::Lenient(canceller, _)) = &self.cancel else {
            return Poll::Pending;
        };
        let wait = || Box::pin(canceller.token.clone().cancelled_owned());
        self.cancelled.get_or_insert_with(wait).as_mut().poll(cx)
    }

    /// Closes the scope of a cleanup that was cancelled: its edge is due after `limit` at the latest, and
    /// nothing else can cancel it any more.
    fn close(&mut self, limit: Duration) {
        self.cancel = Cancel::Never;
        let at = Instant::now().checked_add(limit);
        if let (Some(edge), Some(at)) = (self.bounds.first_mut(), at) {
            edge.deadline = Some(edge.deadline.map_or(at, |deadline| deadline.min(at)));
        }
    }

    /// The bound that fires first. If several fire together, it is the outermost.
    fn earliest(&self) -> Option<(usize, Instant)> {
        let due = |(position, bound): (usize, &Bound)| Some((position, bound.deadline?));
        self.bounds.iter().enumerate().filter_map(due).min_by_key(|(_, deadline)| *deadline)
    }

    fn fired(&self, position: usize) -> Interrupted {
        let explanation = self.bounds.get(position).map(|bound| bound.explanation.failure());
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
        let Self { work, scope, slot } = self.get_mut();
        if Turn::is_over() {
            // Others have their turn first.
            ready!(pin!(yield_now()).poll(cx));
        }
        Turn::may_end();
        loop {
            if let Poll::Ready(output) = Pin::new(&mut *work).poll(cx) {
                Turn::may_end();
                return Poll::Ready(Ok(output));
            }
            let wake = slot.and_then(Slot::deadline);
            if let Some(interrupted) = ready!(scope.poll_interruption(wake, cx)) {
                return Poll::Ready(Err(interrupted));
            }
            if let Some(slot) = slot
                && wake.is_some_and(|wake| wake <= Instant::now())
            {
                slot.pass();
            }
        }
    }
}

impl Canceller {
    pub(super) fn new() -> Self {
        Self { token: CancellationToken::new(), chain: Arc::default() }
    }

    /// Cancels. The unwind carries `chain`. A second cancellation changes nothing.
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

    /// The same, if it interrupted the wait before a re-run that had consumed `failure`.
    pub(super) fn awaiting(self, failure: Option<Arc<Failure>>) -> Self {
        let chain = Arc::new(Failure { awaited: failure, ..self.chain.as_ref().clone() });
        Self { chain, ..self }
    }

    /// The failure that explains the cancellation; `None` if it came from outside.
    pub(super) fn explanation(&self) -> Option<&Failure> {
        self.chain.previous.as_deref()
    }

    /// Whether only a cancellation from outside the execution is in flight.
    pub(super) fn is_from_outside(&self) -> bool {
        self.chain.previous.is_none() && self.chain.code == system::CANCELLED
    }

    /// What the owner emits ("The conversion seam"): its explanation if the cancellation is still bare, else
    /// the whole chain. It is a new failure each time. A bound has only one explanation, but if it fires
    /// again, that is a new failure, which links to the one that is being handled.
    ///
    /// `placed` adds to the explanation where the bound is.
    pub(super) fn convert(self, placed: impl FnOnce(Failure) -> Failure) -> Arc<Failure> {
        match &self.chain.previous {
            Some(explanation) if !self.superseded => {
                let awaited = self.chain.awaited.clone();
                Arc::new(placed(Failure { awaited, ..explanation.as_ref().clone() }))
            }
            _ => self.chain,
        }
    }
}

/// A cancellation, bare or linked to what explains it.
pub(super) fn cancellation(code: &'static str, explanation: Option<Arc<Failure>>) -> Arc<Failure> {
    Arc::new(Failure {
        ty: FailureType::Cancellation,
        previous: explanation,
        ..Failure::error(code, "the work was cancelled")
    })
}

impl Explanation {
    fn failure(&self) -> Arc<Failure> {
        use crate::language::provider::middleware::timeout;
        match self {
            Self::Entry(failure) => Arc::clone(failure),
            Self::Cleanup(limit) => {
                Arc::new(timeout::exceeded(*limit, "the cleanup did not finish in its time"))
            }
        }
    }
}
