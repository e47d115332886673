//! The bindings of a phase, without a run. For the benches, which measure what an expression reads there.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::ExecutionId;
use super::execution::Execution;
use super::vars::Vars;
use super::view::{FrameState, PhaseView, StepNumber, StepState, View};
use crate::language::clock::Clock;
use crate::language::expr::Bindings;
use crate::language::outcome::Outcome;
use crate::language::plan::Plan;
use crate::language::provider::EntryState;
use crate::language::value::{Map, Value};

/// Calls `see` with the bindings of an ascent phase: of the first middleware entry of `plan`, past which
/// `result` rises, in the second run of its inner scope. `None` if the plan has no entry.
pub fn past<R>(
    plan: &Plan,
    (input, platform): (Value, Value),
    vars: Map,
    result: &Outcome,
    see: impl FnOnce(&dyn Bindings) -> R,
) -> Option<R> {
    let clock = Clock::starting_now();
    let now = clock.now();
    let execution = Execution {
        plan,
        id: ExecutionId(b"01998e3e-4f2a-7c51-8d33-2f1f6b7f0c11"),
        platform,
        clock,
        observer: &(),
        host: None,
        gate: None,
        cleanup_limit: std::time::Duration::from_secs(10),
        gives_up_early: false,
        entered: now,
        steps: AtomicU64::new(1),
        attempts: AtomicU64::new(1),
    };
    let step = StepState {
        name: "charge-payment",
        id: StepNumber::new(0),
        action: "Call",
        input: input.clone(),
        entered: now,
        exited: None,
        result: None,
        results: None,
        dispatch_count: None,
    };
    let frame =
        FrameState { input, entered: now, vars: Vars::new(vars), failure: None, severed: None };
    let state = EntryState { runs: 2, ..EntryState::default() };
    let phase = PhaseView {
        input: &step.input,
        result: Some(result),
        entered: now,
        middleware: Arc::as_ref(&plan.entries().next()?.middleware),
        state: &state,
    };
    Some(see(&View {
        execution: &execution,
        frame: &frame,
        pin: now,
        step: Some(&step),
        phase: Some(phase),
        call: None,
        match_input: None,
    }))
}
