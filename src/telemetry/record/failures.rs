//! The failures of a record: each with its chain, those that a `catch` took, and the bounds that fired.

use serde::Serialize;
use tokio::time::Instant;

use super::short;
use crate::language::observe::Caught;
use crate::language::outcome::{Failure, FailureType};
use crate::language::value::Value;

/// A failure that a `catch` took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaughtFailure {
    /// The Step whose `catch` it is.
    pub step: Box<str>,
    /// The Step that was entered.
    pub next: Box<str>,
    /// Whether this was in the Flow of a cleanup.
    pub cleanup: bool,
    /// The failure and its chain, newest first.
    pub chain: Vec<Cause>,
}

/// A bound of a Timeout that fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiredBound {
    /// Its entry, as the label `entry` of metrics has it.
    pub entry: Box<str>,
    /// How long it was, as the failure says it.
    pub duration: Option<Box<str>>,
    /// When what it bounded had ended.
    pub fired: Instant,
}

/// One failure of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Its type.
    #[serde(rename = "type")]
    pub ty: Box<str>,
    /// Its code.
    pub code: Box<str>,
    /// Its message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// Its advisory signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

impl CaughtFailure {
    /// The record of `caught`.
    pub fn of(caught: &Caught<'_>) -> Self {
        let Caught { step, failure, next, cleanup } = *caught;
        Self { step: step.into(), next: next.into(), cleanup, chain: Cause::chain(failure) }
    }
}

impl FiredBound {
    /// The bound of `entry`, which fired now and made `emitted` rise.
    pub fn of(entry: String, emitted: &Failure) -> Self {
        let duration = emitted.details.as_ref().and_then(|details| details.get("duration"));
        let duration = duration.as_ref().and_then(Value::as_str).map(Into::into);
        Self { entry: entry.into(), duration, fired: Instant::now() }
    }
}

impl Cause {
    pub(super) fn chain(failure: &Failure) -> Vec<Self> {
        let causes = failure.chain().map(|failure| Self {
            ty: failure.ty.as_str().into(),
            code: failure.code.as_str().into(),
            message: failure.message.as_deref().map(|message| short(message).into()),
            retryable: failure.retryable,
        });
        causes.collect()
    }

    pub(super) fn new(ty: &FailureType, code: &str, message: &str) -> Self {
        let message = Some(short(message).into());
        Self { ty: ty.as_str().into(), code: code.into(), message, retryable: None }
    }
}
