//! `mock`: a provider that makes a Result from its arguments alone (MWL, "The `mock` provider").

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::contract::{Contract, Prepared};
use crate::language::provider::dispatch::{Answer, CallProvider, Dispatch};
use crate::language::temporal::Span;
use crate::language::value::Value;

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("mock.v1.json")));

/// The `mock` call provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mock;

/// A prepared `with`.
#[derive(Debug)]
struct MockResult {
    /// `None`: the dispatch's input.
    value: Option<Value>,
    /// Takes precedence over the value.
    failure: Option<Failure>,
    delay: Option<Span>,
    metadata: Value,
}

impl CallProvider for Mock {
    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn prepare(&self, with: &Value) -> Result<Prepared, Failure> {
        let failure = match with.get("failure").filter(|failure| !failure.is_null()) {
            None => None,
            Some(failure) => Some(Failure::from_envelope(&failure).ok_or_else(|| {
                let message = "`failure` must be a failure envelope: a non-success `type` and a \
                               `code`, and a `previous` that is one too";
                Failure::validation(message, "/properties/failure", failure)
            })?),
        };
        let delay = with.get("delay").and_then(|delay| Span::parse(delay.as_str()?));
        let metadata = with.get("metadata").unwrap_or_else(Value::empty_object);
        Ok(Arc::new(MockResult { value: with.get("value"), failure, delay, metadata }))
    }

    fn call<'a>(
        &'a self,
        dispatch: Dispatch<'a>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(async move {
            let Some(result) = dispatch.with.downcast_ref::<MockResult>() else {
                return Answer::wrong_with(self.contract());
            };
            if let Some(delay) =
                result.delay.map(Span::to_duration).filter(|delay| !delay.is_zero())
            {
                tokio::time::sleep(delay).await;
            }
            let outcome = match &result.failure {
                // Each time a new one: the next is linked to it, as any other failure is.
                Some(failure) => failure.clone().into(),
                None => {
                    Outcome::Success(result.value.clone().unwrap_or_else(|| dispatch.input.clone()))
                }
            };
            Answer { outcome, metadata: result.metadata.clone() }
        })
    }
}
