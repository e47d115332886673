//! What an expression sees: the binding roots. They are built from borrowed state, and only when an
//! expression asks for them (MWL, "Execution context").
//!
//! A [`View`] is a few references. Each construct adds to the view that is around it: a Step adds `step`, a
//! phase `middleware`, a call `call`, and in its arms the target's window. What a root holds is in `part`.

use std::sync::Arc;

use super::execution::Execution;
use super::part::Part;
use super::vars::Vars;
use crate::language::expr::{Bindings, Root};
use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::{EntryState, Middleware};
use crate::language::temporal::Timestamp;
use crate::language::value::{Missing, Value};

/// The part of a frame's state that expressions can read.
#[derive(Debug)]
pub(super) struct FrameState {
    /// `frame.input`.
    pub(super) input: Value,
    /// `frame.metadata.enteredAt`.
    pub(super) entered: Timestamp,
    /// The variables.
    pub(super) vars: Vars,
    /// The failure being handled.
    pub(super) failure: Option<Arc<Failure>>,
    /// The last failure of a phase whose author wrote its `previous`: the engine links nothing to the end of it.
    pub(super) severed: Option<Arc<Failure>>,
}

/// The Step that runs.
#[derive(Clone, Debug)]
pub(super) struct StepState<'p> {
    pub(super) name: &'p str,
    pub(super) id: StepNumber,
    pub(super) action: &'static str,
    /// What it received.
    pub(super) input: Value,
    pub(super) entered: Timestamp,
    /// Set when its work is done.
    pub(super) exited: Option<Timestamp>,
    /// A `Call`'s Result.
    pub(super) result: Option<Outcome>,
    /// A `Gather`'s collected Results.
    pub(super) results: Option<Value>,
    /// A `Gather`'s dispatch count.
    pub(super) dispatch_count: Option<usize>,
}

/// A Step execution's number within its execution: `step.id`.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepNumber {
    digits: [u8; 20],
    start: u8,
}

/// A phase of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhaseView<'a> {
    pub(super) input: &'a Value,
    pub(super) result: Option<&'a Outcome>,
    pub(super) entered: Timestamp,
    pub(super) middleware: &'a dyn Middleware,
    pub(super) state: &'a EntryState,
}

/// A call, and in its arms also its target's window.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallView<'a> {
    pub(super) input: &'a Value,
    /// Its position in a `Gather`'s fan-out.
    pub(super) index: Option<usize>,
    pub(super) record: &'a CallRecord,
    pub(super) window: Option<&'a Window>,
}

/// A call's instants.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallRecord {
    pub(super) entered: Timestamp,
    pub(super) dispatched: Option<Timestamp>,
    /// The acceptance, which is also the call's exit.
    pub(super) accepted: Option<Timestamp>,
}

/// What a target that has settled leaves for its call's arms ("The target windows").
#[derive(Clone, Debug)]
pub(super) enum Window {
    /// A provider's execution.
    Provider { input: Value, result: Outcome, metadata: Value },
    /// A completed frame.
    Flow(CompletedFrame),
}

/// A frame that has produced its Result.
#[derive(Clone, Debug)]
pub(super) struct CompletedFrame {
    pub(super) input: Value,
    pub(super) vars: Value,
    pub(super) result: Outcome,
    pub(super) entered: Timestamp,
    pub(super) exited: Timestamp,
}

/// The bindings at one site.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) execution: &'a Execution<'a>,
    pub(super) frame: &'a FrameState,
    /// What `now()` returns: the instant at which the evaluating construct was entered.
    pub(super) pin: Timestamp,
    pub(super) step: Option<&'a StepState<'a>>,
    pub(super) phase: Option<PhaseView<'a>>,
    pub(super) call: Option<CallView<'a>>,
    pub(super) match_input: Option<&'a Value>,
}

impl StepNumber {
    pub(super) fn new(mut number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut start = 20;
        for digit in digits.iter_mut().rev() {
            start -= 1;
            *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
            number /= 10;
            if number == 0 {
                break;
            }
        }
        Self { digits, start }
    }

    pub(super) fn as_str(&self) -> &str {
        let digits = self.digits.get(usize::from(self.start)..).unwrap_or_default();
        std::str::from_utf8(digits).unwrap_or_default()
    }
}

impl Window {
    /// The Result that the target produced.
    pub(super) fn result(&self) -> &Outcome {
        match self {
            Self::Provider { result, .. } => result,
            Self::Flow(frame) => &frame.result,
        }
    }
}

impl View<'_> {
    fn part(&self, root: Root) -> Option<Part<'_>> {
        match root {
            Root::Vars => Some(Part::Vars(&self.frame.vars)),
            Root::Execution => Some(Part::Execution(self.execution)),
            Root::Frame => Some(Part::Frame(self.frame)),
            Root::Failure => Some(self.frame.failure.as_deref().map_or(Part::Null, Part::Failure)),
            Root::Step => self.step.map(Part::Step),
            Root::Middleware => self.phase.map(Part::Phase),
            Root::Call => self.call.map(Part::Call),
            Root::Flow => match self.call?.window? {
                Window::Flow(frame) => Some(Part::Completed(frame)),
                Window::Provider { .. } => None,
            },
            Root::Provider => match self.call?.window? {
                Window::Provider { input, result, metadata } => {
                    Some(Part::Settled { input, result, metadata })
                }
                Window::Flow(_) => None,
            },
            Root::Match => Some(Part::Match { input: self.match_input?, step: self.step? }),
            Root::Response => None,
        }
    }
}

impl Bindings for View<'_> {
    fn root(&self, root: Root) -> Option<Value> {
        self.part(root).map(|part| part.to_value())
    }

    fn at(&self, root: Root, path: &[Arc<str>]) -> Result<Value, Missing> {
        self.part(root).ok_or(Missing::UNSET)?.at(path)
    }

    fn now(&self) -> i128 {
        self.pin.as_nanos()
    }

    fn wall_time(&self) -> i128 {
        self.execution.clock.now().as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_number_prints_as_a_decimal() {
        for (number, text) in [(0, "0"), (7, "7"), (10, "10"), (u64::MAX, "18446744073709551615")] {
            assert_eq!(StepNumber::new(number).as_str(), text);
        }
    }
}
