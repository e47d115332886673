//! The result of a call or a frame (MWL, "The Result"). The specification calls it a Result; here it is an
//! [`Outcome`], because Rust's own `Result` is used everywhere.

use std::fmt;
use std::sync::Arc;

use super::code::{Code, system};
use super::value::{Map, Missing, RerunGrant, Value};

/// How many failures a `previous` chain may hold, which is the platform's choice ("Chaining"). A longer one
/// is cut, and ends in `System.FailureChainTruncated`.
pub const MAX_CHAIN: usize = 64;

/// The spec's Result: exactly one for each call, attempt, Step and frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The target completed normally with this value.
    Success(Value),
    /// Any non-success: an error, a timeout, a cancellation, a skipped dispatch, an extension type.
    Failure(Arc<Failure>),
}

/// A failure ("The failure envelope"). It never changes: reshaping makes a new one.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The non-success type.
    pub ty: FailureType,
    /// What exactly failed. Matchers select by it.
    pub code: Code,
    /// For people.
    pub message: Option<Arc<str>>,
    /// Structured context. Absent is not the same as `null` to an expression.
    pub details: Option<Value>,
    /// Whether a retry may help; `None` if the failure does not say.
    pub retryable: Option<bool>,
    /// The failure that this one superseded.
    pub previous: Option<Arc<Self>>,
    /// If this failure interrupted the wait before a re-run: the failure that the re-run had consumed. It is
    /// not part of the envelope and not a link of the chain, but the host's answer may depend on it.
    pub awaited: Option<Arc<Self>>,
}

/// A failure's `type`: the four that the specification defines, or an extension type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureType {
    /// A recoverable failure of a provider, a middleware or the Flow's own logic.
    Error,
    /// The work was stopped by a directive.
    Cancellation,
    /// A duration bound was exceeded.
    Timeout,
    /// The target was never started.
    Skipped,
    /// A type that an author or a platform defines.
    Extension(Arc<str>),
}

impl FailureType {
    /// The type named `text`; `None` for `success`, which is not a failure.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "success" => return None,
            "error" => Self::Error,
            "cancellation" => Self::Cancellation,
            "timeout" => Self::Timeout,
            "skipped" => Self::Skipped,
            other => Self::Extension(other.into()),
        })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Error => "error",
            Self::Cancellation => "cancellation",
            Self::Timeout => "timeout",
            Self::Skipped => "skipped",
            Self::Extension(name) => name,
        }
    }
}

impl fmt::Display for FailureType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Outcome {
    /// Whether this is a success.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Success(_))
    }

    /// The failure, if this is one.
    pub fn failure(&self) -> Option<&Arc<Failure>> {
        match self {
            Self::Failure(failure) => Some(failure),
            Self::Success(_) => None,
        }
    }

    /// The value at `path` in the Result as expressions read it. Only that part of it is built.
    ///
    /// # Errors
    /// If a member of the path is missing.
    pub fn at(&self, path: &[Arc<str>]) -> Result<Value, Missing> {
        match (self, path.split_first()) {
            (_, None) => Ok(self.to_value()),
            (Self::Failure(failure), _) => failure.at(path),
            (Self::Success(value), Some((member, rest))) => match member.as_ref() {
                "value" => value.at(rest).map_err(Missing::below),
                "type" => Missing::follow(Some(Value::from("success")), rest),
                _ => Err(Missing::MEMBER),
            },
        }
    }

    /// The Result as expressions read it: `type` with `value`, or the envelope.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Success(value) => {
                Value::object([("type", Value::from("success")), ("value", value.clone())])
            }
            Self::Failure(failure) => failure.to_value(),
        }
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        Self::Failure(Arc::new(failure))
    }
}

impl Failure {
    /// A failure of type `error` with nothing but its code and message.
    pub fn error(code: impl Into<Code>, message: impl Into<Arc<str>>) -> Self {
        Self {
            ty: FailureType::Error,
            code: code.into(),
            message: Some(message.into()),
            details: None,
            retryable: None,
            previous: None,
            awaited: None,
        }
    }

    /// `System.ParameterValidationFailed`. Its `details` hold the constraint that was broken, and the value
    /// that broke it ("System.ParameterValidationFailed").
    pub fn validation(
        message: impl Into<Arc<str>>,
        schema_path: impl Into<Arc<str>>,
        observed: Value,
    ) -> Self {
        let details = [("schemaPath", Value::string(schema_path)), ("value", observed)];
        Self {
            details: Some(Value::object(details)),
            ..Self::error(system::PARAMETER_VALIDATION_FAILED, message)
        }
    }

    /// The same failure, with the Step `place` in its message, unless that names it already.
    #[must_use]
    pub(crate) fn in_step(mut self, place: &str) -> Self {
        self.message = self.message.map(|message| {
            let named = message.strip_prefix(place).is_some_and(|rest| rest.starts_with(": "));
            if named { message } else { format!("{place}: {message}").into() }
        });
        self
    }

    /// The same failure, with the Step `place` in its message, and in which of how many runs of the innermost re-running
    /// entry it happened, if there is such an entry.
    #[must_use]
    pub(crate) fn in_run(self, place: &str, (number, of): (u32, Option<u32>)) -> Self {
        match of {
            None if number <= 1 => self.in_step(place),
            of => self.in_step(&format!("{place}: attempt {}", RunNumber(number, of))),
        }
    }

    /// The same failure with these `details`.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The same failure with this value of `retryable`.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = Some(retryable);
        self
    }

    /// The envelope as expressions read it. Absent fields stay absent.
    pub fn to_value(&self) -> Value {
        // Built from the oldest link up: a long chain must not recurse.
        let mut previous = None;
        for failure in self.chain().collect::<Vec<_>>().into_iter().rev() {
            previous = Some(failure.envelope(previous));
        }
        previous.unwrap_or_default()
    }

    /// The value at `path` in the envelope. Only that part of it is built.
    ///
    /// # Errors
    /// If a member of the path is missing.
    pub fn at(&self, path: &[Arc<str>]) -> Result<Value, Missing> {
        let Some((member, rest)) = path.split_first() else {
            return Ok(self.to_value());
        };
        match (member.as_ref(), &self.previous, &self.details) {
            ("previous", Some(previous), _) => previous.at(rest).map_err(Missing::below),
            ("details", _, Some(details)) => details.at(rest).map_err(Missing::below),
            (member, ..) => Missing::follow(self.member(member), rest),
        }
    }

    /// A member of this link's own envelope.
    fn member(&self, name: &str) -> Option<Value> {
        match name {
            "type" => Some(Value::from(self.ty.as_str())),
            "code" => Some(match &self.code {
                Code::Static(text) => Value::from(*text),
                Code::Shared(text) => Value::String(Arc::clone(text)),
            }),
            "message" => self.message.clone().map(Value::String),
            "details" => self.details.clone(),
            "retryable" => self.retryable.map(Value::Bool),
            _ => None,
        }
    }

    fn envelope(&self, previous: Option<Value>) -> Value {
        let own = ["type", "code", "message", "details", "retryable"];
        let mut map = Map::with_capacity(own.len() + 1);
        for name in own {
            map.extend(self.member(name).map(|value| (name.into(), value)));
        }
        map.extend(previous.map(|previous| ("previous".into(), previous)));
        Value::Object(Arc::new(map))
    }

    /// This failure and all that it superseded, newest first.
    pub fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |failure| failure.previous.as_deref())
    }

    /// `next`, which supersedes `previous`. The latter is linked to the end of `next`'s own chain, so that
    /// nothing in that is lost; and the chain is cut at [`MAX_CHAIN`] ("Chaining").
    pub fn superseding(next: &Arc<Self>, previous: Option<&Arc<Self>>) -> Arc<Self> {
        let Some(previous) = previous else {
            return Arc::clone(next);
        };
        if next.chain().any(|link| std::ptr::eq(link, previous.as_ref())) {
            return Arc::clone(next);
        }
        let links: Vec<&Self> = next.chain().chain(previous.chain()).collect();
        if links.len() <= MAX_CHAIN {
            let own = next.chain().collect::<Vec<_>>();
            return relink(&own, Some(Arc::clone(previous)));
        }
        let kept = links.get(..MAX_CHAIN - 1).unwrap_or_default();
        let cut = format!("{} older failures were dropped", links.len() - kept.len());
        relink(kept, Some(Arc::new(Self::error(system::FAILURE_CHAIN_TRUNCATED, cut))))
    }

    /// Reads an envelope as an author writes one, whose `type` may be left out. A `previous` is a whole Result.
    ///
    /// `None` if `value` is not a failure: not an object, without a `code`, or of type `success`.
    pub fn from_envelope(value: &Value) -> Option<Self> {
        let Value::Object(map) = value else {
            return Self::from_value(value);
        };
        let mut typed = Map::clone(map);
        typed.entry("type".into()).or_insert_with(|| Value::from(FailureType::Error.as_str()));
        Self::from_value(&Value::Object(Arc::new(typed)))
    }

    /// Reads a non-success Result that an expression made (`previous` of a constructed failure).
    ///
    /// `None` if `value` is not one: not an object, without a `type` and a `code`, or of type `success`.
    pub fn from_value(value: &Value) -> Option<Self> {
        let mut links = Vec::new();
        let mut at = Some(value.clone());
        while let Some(value) = at.filter(|value| !value.is_null()) {
            if links.len() >= MAX_CHAIN {
                let cut =
                    Self::error(system::FAILURE_CHAIN_TRUNCATED, "older failures were dropped");
                links.push(cut);
                break;
            }
            let map = value.as_object()?;
            let ty = FailureType::parse(map.get("type")?.as_str()?)?;
            let Value::String(code) = map.get("code")?.clone() else {
                return None;
            };
            let message = match map.get("message") {
                None | Some(Value::Null) => None,
                Some(Value::String(text)) => Some(Arc::clone(text)),
                Some(_) => return None,
            };
            let retryable = match map.get("retryable") {
                None | Some(Value::Null) => None,
                Some(Value::Bool(retryable)) => Some(*retryable),
                Some(_) => return None,
            };
            let details = map.get("details").cloned();
            at = map.get("previous").cloned();
            links.push(Self { ty, message, details, retryable, ..Self::error(code, "") });
        }
        let mut previous: Option<Arc<Self>> = None;
        while let Some(mut link) = links.pop() {
            link.previous = previous.take();
            if links.is_empty() {
                return Some(link);
            }
            previous = Some(Arc::new(link));
        }
        None
    }

    /// Why running the work again cannot help with this failure ([`Native::rerun_refusal`]).
    ///
    /// [`Native::rerun_refusal`]: super::value::Native::rerun_refusal
    pub fn rerun_refusal(&self) -> Option<&'static str> {
        self.chain().find_map(|failure| match &failure.details {
            Some(Value::Native(native)) => native.rerun_refusal(),
            _ => None,
        })
    }

    /// Takes a re-run from the budget of the work that has failed, if it has one ([`Native::take_rerun`]).
    ///
    /// [`Native::take_rerun`]: super::value::Native::take_rerun
    pub fn take_rerun(&self) -> RerunGrant {
        let granted = self.chain().find_map(|failure| match &failure.details {
            Some(Value::Native(native)) => native.take_rerun(),
            _ => None,
        });
        granted.unwrap_or(RerunGrant::Granted)
    }

    /// Tells the host's objects in this chain that a re-run has consumed it.
    pub fn discard(&self) {
        for failure in self.chain() {
            if let Some(Value::Native(native)) = &failure.details {
                native.discard();
            }
        }
    }
}

/// Copies `links` so that the last one's `previous` is `tail`.
fn relink(links: &[&Failure], tail: Option<Arc<Failure>>) -> Arc<Failure> {
    let mut previous = tail;
    for link in links.iter().rev() {
        previous = Some(Arc::new(Failure { previous, ..(*link).clone() }));
    }
    previous.unwrap_or_else(|| Arc::new(Failure::error(system::FAILURE_CHAIN_TRUNCATED, "empty")))
}

/// Deep, without recursion over the chain.
impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        let one = |failure: &Self| {
            (
                failure.ty.clone(),
                failure.code.clone(),
                failure.message.clone(),
                failure.details.clone(),
                failure.retryable,
            )
        };
        self.chain().map(one).eq(other.chain().map(one))
    }
}

/// `3 of 5`, or `3` if nobody knows how many there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunNumber(pub(crate) u32, pub(crate) Option<u32>);

impl fmt::Display for RunNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(number, Some(all)) => write!(f, "{number} of {all}"),
            Self(number, None) => number.fmt(f),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "{}: {message}", self.code),
            None => write!(f, "{}", self.code),
        }
    }
}

#[cfg(test)]
mod tests;
