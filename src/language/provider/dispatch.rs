//! A call provider's behaviour, and one dispatch to it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use super::attempt::{Attempt, Slot};
use super::contract::{Contract, Prepared};
use super::identity::Identity;
use super::rising::{Foreseen, Rising};
use super::written::WrittenCall;
use crate::language::code::system;
use crate::language::outcome::{Failure, Outcome};
use crate::language::value::Value;
use crate::source::Diagnostics;

/// A call target.
pub trait CallProvider: fmt::Debug + Send + Sync {
    /// What the provider declares.
    fn contract(&self) -> &Contract;

    /// Turns a `with` that has passed the contract's schema into the provider's own terms. An error
    /// becomes the call's Result.
    fn prepare(&self, with: &Value) -> Result<Prepared, Failure>;

    /// Reports what is wrong with a call, beside what the contract's schema finds.
    fn check(&self, call: WrittenCall<'_>, found: &mut Diagnostics) {
        let _ = (call, found);
    }

    /// The failures with which a call may end.
    fn rising(&self, call: Foreseen<'_>) -> Rising<'_> {
        let _ = call;
        Rising::of(self.contract())
    }

    /// The JSON types of members of its Results, by their path within a Result: `details.status` is a `number`.
    fn members(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Runs the call. It is a leaf: the future is dropped if the call is interrupted.
    fn call<'a>(
        &'a self,
        dispatch: Dispatch<'a>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;
}

/// A dispatch, as the provider sees it.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch<'a> {
    /// The attempt.
    pub attempt: &'a Attempt<'a>,
    /// What [`CallProvider::prepare`] made of the `with`.
    pub with: &'a Prepared,
    /// The call's evaluated `input`.
    pub input: &'a Value,
    /// Which operation of the execution this is, however often it is run again.
    pub identity: &'a dyn Identity,
    /// How many runs the innermost re-running entry around this call may make, if that is one number.
    pub attempts: Option<u32>,
    /// What the host gave the execution to carry.
    pub host: Option<&'a (dyn Any + Send + Sync)>,
    /// Whether anything may read the answer's `metadata`.
    pub windowed: bool,
    /// Where the provider says where the call goes, as soon as it knows.
    pub destination: &'a Slot<'a>,
}

/// The outcome of a provider's call.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The Result.
    pub outcome: Outcome,
    /// The members of `provider.metadata`, within the declared schema. `Null` for none.
    pub metadata: Value,
}

impl Answer {
    /// The answer of a provider that gets a `with` that it did not prepare, which is a mistake in the host.
    pub fn wrong_with(contract: &Contract) -> Self {
        let message =
            format!("{} was handed arguments that it did not prepare", contract.uri.as_str());
        let outcome = Failure::error(system::PARAMETER_VALIDATION_FAILED, message).into();
        Self { outcome, metadata: Value::Null }
    }
}
