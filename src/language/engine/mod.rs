//! Runs plans (MWL, "Execution model").
//!
//! One execution is one future. It holds no lock and spawns nothing, and it boxes only what is rare: a frame
//! in a frame, a graph of more than one call, a gap, a cleanup. A stack is a loop over positions, not a
//! future per entry, so that a phase with nothing to do costs only a branch.
//!
//! The modules: `frame` creates and completes frames, `graph` runs Steps, `stack` crosses entries up and
//! `descent` down, `phase` runs one phase of one, `call` dispatches, `gather` fans out, `scope` interrupts,
//! `location` knows where a construct is, `view` and `part` show all this to expressions.

mod alarm;
mod call;
mod descent;
mod execution;
mod frame;
mod gather;
mod graph;
mod location;
mod opening;
mod part;
mod phase;
mod scope;
mod stack;
mod template;
#[doc(hidden)]
pub mod testing;
mod vars;
mod view;

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::execution::Execution;
use self::frame::Frame;
use self::location::Location;
use self::scope::Scope;
use super::clock::Clock;
use super::expr::Turn;
use super::observe::Observer;
use super::outcome::Outcome;
use super::plan::{FlowId, Plan};
use super::provider::RerunGate;
use super::value::Value;

pub use self::alarm::Alarm;
pub use self::execution::ExecutionId;
pub use self::gather::{FAN_OUT_LIMIT, MAX_DISPATCHES};

/// One run of a root Flow, as the host starts it.
pub struct Start<'a> {
    /// `execution.id`.
    pub id: ExecutionId<'a>,
    /// `execution.platform`.
    pub platform: Value,
    /// Where the execution's instants come from.
    pub clock: Clock,
    /// It is told what happens.
    pub observer: &'a dyn Observer,
    /// Passed to providers. The engine never looks into it.
    pub host: Option<&'a (dyn Any + Send + Sync)>,
    /// Whether work may be run again. Cleanups do not ask it.
    pub gate: Option<&'a dyn RerunGate>,
    /// Cancels the execution from outside. Without one, only dropping the future ends it early, and then no
    /// cleanup runs: so only for plans where [`Plan::needs_unwind`] is false.
    pub cancel: Option<CancellationToken>,
    /// The task's timer, kept from one execution to the next. Without it, the execution makes its own.
    pub alarm: Option<&'a mut Alarm>,
    /// How long one cleanup may take during a teardown.
    pub cleanup_limit: Duration,
    /// Whether a `Retry` gives up at once if a bound would interrupt the wait before its re-run. The specification lets
    /// it wait for the bound.
    pub gives_up_early: bool,
}

impl<'a> Start<'a> {
    /// A start without a host, an observer or a cancellation.
    pub fn new(id: &'a str) -> Self {
        Self {
            id: ExecutionId(id.as_bytes()),
            platform: Value::empty_object(),
            clock: Clock::starting_now(),
            observer: &(),
            host: None,
            gate: None,
            cancel: None,
            alarm: None,
            cleanup_limit: Duration::from_secs(10),
            gives_up_early: false,
        }
    }
}

impl fmt::Debug for Start<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Runs the root Flow of `plan` to its one Result ("The completion contract").
///
/// `with` holds the arguments for the Flow's parameters (an object), `input` the execution input. What it takes from
/// `start` serves one run. (It borrows `start` because a future is moved with everything that it was given.)
pub async fn run(plan: &Plan, start: &mut Start<'_>, with: Value, input: Value) -> Outcome {
    let Start {
        id,
        platform,
        clock,
        observer,
        host,
        gate,
        cancel,
        alarm,
        cleanup_limit,
        gives_up_early,
    } = start;
    // The clock is read only if an expression may read the instant.
    let entered = if plan.needs().instants { clock.now() } else { clock.begun() };
    let execution = Execution {
        plan,
        id: *id,
        platform: std::mem::take(platform),
        clock: *clock,
        observer: *observer,
        host: *host,
        gate: *gate,
        cleanup_limit: *cleanup_limit,
        gives_up_early: *gives_up_early,
        entered,
        steps: AtomicU64::new(1),
        attempts: AtomicU64::new(1),
    };
    let own = alarm.as_deref_mut().map(std::mem::take).unwrap_or_default();
    let mut scope = Scope::root(cancel.take(), own);
    let mut frame =
        Frame::new(&execution, FlowId::ROOT, (&mut scope, &Location::ROOT), input.clone());
    let risen = in_turns(frame.run(with, input)).await;
    if let Some(kept) = alarm {
        **kept = scope.into_alarm();
    }
    match risen {
        Ok(outcome) => outcome,
        // No entry owns this interruption: its chain is the frame's Result ("External cancellation").
        Err(interrupted) => Outcome::Failure(interrupted.chain),
    }
}

/// Runs `work`, each poll of which is a turn.
async fn in_turns<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let turn = poll_fn(|cx| {
        let _turn = Turn::begin();
        work.as_mut().poll(cx)
    });
    turn.await
}
