//! The parts of the bindings. A part knows its members by name, but is not yet a value.
//!
//! An expression reads a path, and nothing but the path is made: [`Part::at`] follows the names and makes a
//! value only at the end. A whole root is made from the same members, so the two cannot differ.

use std::sync::Arc;

use super::execution::Execution;
use super::vars::Vars;
use super::view::{CallView, CompletedFrame, FrameState, PhaseView, StepState};
use crate::language::outcome::{Failure, Outcome};
use crate::language::temporal::Timestamp;
use crate::language::value::{Map, Missing, Value};

/// What is at one place in the bindings.
pub(super) enum Part<'a> {
    Null,
    Text(&'a str),
    Instant(Timestamp),
    Count(usize),
    Value(&'a Value),
    Owned(Value),
    Vars(&'a Vars),
    Outcome(&'a Outcome),
    Failure(&'a Failure),
    Record(Record),
    Execution(&'a Execution<'a>),
    Frame(&'a FrameState),
    Step(&'a StepState<'a>),
    Phase(PhaseView<'a>),
    /// `middleware.metadata`, to which the middleware contributes.
    PhaseRecord(PhaseView<'a>),
    Call(CallView<'a>),
    /// `provider`.
    Settled {
        input: &'a Value,
        result: &'a Outcome,
        metadata: &'a Value,
    },
    /// `flow`.
    Completed(&'a CompletedFrame),
    /// `match`.
    Match {
        input: &'a Value,
        step: &'a StepState<'a>,
    },
}

/// A metadata record ("Metadata records"): the two members of all records, and what a Step or a call adds.
#[derive(Clone, Copy, Default)]
pub(super) struct Record {
    pub(super) entered: Option<Timestamp>,
    pub(super) exited: Option<Timestamp>,
    pub(super) dispatched: Option<Timestamp>,
    pub(super) accepted: Option<Timestamp>,
    pub(super) count: Option<usize>,
}

impl Record {
    fn of(entered: Timestamp, exited: Option<Timestamp>) -> Self {
        Self { entered: Some(entered), exited, ..Self::default() }
    }
}

impl<'a> Part<'a> {
    /// The value at `path`, from here.
    pub(super) fn at(self, path: &[Arc<str>]) -> Result<Value, Missing> {
        match (&self, path.split_first()) {
            (_, None) => Ok(self.to_value()),
            (Self::Value(value), _) => value.at(path),
            (Self::Vars(vars), _) => vars.at(path),
            (Self::Outcome(outcome), _) => outcome.at(path),
            (Self::Failure(failure), _) => failure.at(path),
            (
                Self::Null | Self::Text(_) | Self::Instant(_) | Self::Count(_) | Self::Owned(_),
                _,
            ) => self.to_value().at(path),
            (_, Some((member, rest))) => match self.member(member) {
                Some(part) => part.at(rest).map_err(Missing::below),
                None => Err(Missing::MEMBER),
            },
        }
    }

    /// The whole part as a value.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Text(text) => Value::from(*text),
            Self::Instant(instant) => Value::string(instant.to_string()),
            Self::Count(count) => count_value(*count),
            Self::Value(value) => Value::clone(value),
            Self::Owned(value) => value.clone(),
            Self::Vars(vars) => vars.to_value(),
            Self::Outcome(outcome) => outcome.to_value(),
            Self::Failure(failure) => failure.to_value(),
            _ => {
                let mut members = Map::new();
                for name in self.names() {
                    let value = self.member(name).map(|part| part.to_value());
                    members.extend(value.map(|value| (Arc::from(name), value)));
                }
                Value::Object(Arc::new(members))
            }
        }
    }

    /// The names that its members may have, in their order in the value.
    fn names(&self) -> Vec<&'a str> {
        match self {
            Self::Execution(_) => vec!["id", "metadata", "platform"],
            Self::Frame(_) | Self::Match { .. } => vec!["input", "metadata"],
            Self::Step(_) => vec!["name", "id", "action", "input", "metadata", "result", "results"],
            Self::Phase(_) | Self::Settled { .. } => vec!["input", "metadata", "result"],
            Self::Call(_) => vec!["input", "metadata", "index", "result"],
            Self::Completed(_) => vec!["input", "metadata", "vars", "result"],
            Self::Record(_) => {
                vec!["enteredAt", "exitedAt", "dispatchCount", "dispatchedAt", "acceptedAt"]
            }
            Self::PhaseRecord(phase) => {
                let contributed = phase.middleware.contract().contributed();
                let contributed = contributed.iter().map(String::as_str);
                std::iter::once("enteredAt").chain(contributed).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The member `name`, if it exists now.
    fn member(&self, name: &str) -> Option<Self> {
        match self {
            Self::Record(record) => record.member(name),
            Self::Execution(execution) => match name {
                "id" => Some(Self::Text(execution.id.text())),
                "metadata" => Some(Self::Record(Record::of(execution.entered, None))),
                "platform" => Some(Self::Value(&execution.platform)),
                _ => None,
            },
            Self::Frame(frame) => match name {
                "input" => Some(Self::Value(&frame.input)),
                "metadata" => Some(Self::Record(Record::of(frame.entered, None))),
                _ => None,
            },
            Self::Step(step) => step_member(step, name),
            Self::Phase(phase) => match name {
                "input" => Some(Self::Value(phase.input)),
                "metadata" => Some(Self::PhaseRecord(*phase)),
                "result" => phase.result.map(Self::Outcome),
                _ => None,
            },
            Self::PhaseRecord(phase) => match name {
                "enteredAt" => Some(Self::Instant(phase.entered)),
                _ => phase.middleware.metadata(phase.state, name).map(Self::Owned),
            },
            Self::Call(call) => call_member(*call, name),
            Self::Settled { input, result, metadata } => match name {
                "input" => Some(Self::Value(input)),
                "metadata" => Some(Self::Value(metadata)),
                "result" => Some(Self::Outcome(result)),
                _ => None,
            },
            Self::Completed(frame) => match name {
                "input" => Some(Self::Value(&frame.input)),
                "metadata" => Some(Self::Record(Record::of(frame.entered, Some(frame.exited)))),
                "vars" => Some(Self::Value(&frame.vars)),
                "result" => Some(Self::Outcome(&frame.result)),
                _ => None,
            },
            Self::Match { input, step } => match name {
                "input" => Some(Self::Value(input)),
                "metadata" => Some(Self::Record(Record::of(step.entered, step.exited))),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Record {
    fn member<'a>(self, name: &str) -> Option<Part<'a>> {
        let instant = match name {
            "enteredAt" => self.entered,
            "exitedAt" => self.exited,
            "dispatchedAt" => self.dispatched,
            "acceptedAt" => self.accepted,
            "dispatchCount" => return self.count.map(Part::Count),
            _ => None,
        };
        instant.map(Part::Instant)
    }
}

fn step_member<'a>(step: &'a StepState<'a>, name: &str) -> Option<Part<'a>> {
    match name {
        "name" => Some(Part::Text(step.name)),
        "id" => Some(Part::Text(step.id.as_str())),
        "action" => Some(Part::Text(step.action)),
        "input" => Some(Part::Value(&step.input)),
        "metadata" => Some(Part::Record(Record {
            count: step.dispatch_count,
            ..Record::of(step.entered, step.exited)
        })),
        "result" => step.result.as_ref().map(Part::Outcome),
        "results" => step.results.as_ref().map(Part::Value),
        _ => None,
    }
}

fn call_member<'a>(call: CallView<'a>, name: &str) -> Option<Part<'a>> {
    match name {
        "input" => Some(Part::Value(call.input)),
        "metadata" => Some(Part::Record(Record {
            dispatched: call.record.dispatched,
            accepted: call.record.accepted,
            ..Record::of(call.record.entered, call.record.accepted)
        })),
        "index" => call.index.map(Part::Count),
        "result" => call.window.map(|window| Part::Outcome(window.result())),
        _ => None,
    }
}

/// A count as the data model's number.
pub(super) fn count_value(count: usize) -> Value {
    Value::from(u32::try_from(count).unwrap_or(u32::MAX))
}
