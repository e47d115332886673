//! The key by which `hash` chooses an endpoint.

use std::sync::Arc;

use crate::language::expr::{Bindings, Root};
use crate::language::outcome::Failure;
use crate::language::provider::Dispatch;
use crate::language::value::{Missing, Value};
use crate::proxy::request::exchange::Exchange;
use crate::proxy::settings::HashKey;

/// What a key may read: the call's input and the execution.
struct KeyBindings<'a> {
    input: &'a Value,
    exchange: &'a Exchange,
}

/// The key of the request that `dispatch` sends. `None` if what it reads is not there, or it is null: then the request
/// goes where `leastRequest` says.
pub(super) fn evaluate(
    HashKey(program): &HashKey,
    dispatch: &Dispatch<'_>,
    exchange: &Exchange,
) -> Option<String> {
    let bindings = KeyBindings { input: dispatch.input, exchange };
    match program.evaluate(&bindings) {
        Ok(Value::Null) => None,
        Ok(Value::String(key)) => Some(key.as_ref().to_owned()),
        Ok(other) => Some(other.to_string()),
        Err(error) => {
            // A request without the field is no fault of the definition.
            let absent =
                program.reads().iter().any(|path| bindings.at(path.root, &path.members).is_err());
            if !absent {
                let step = dispatch.attempt.step;
                let message = format!("{step}: `balance.hash` gives no key: {error}");
                dispatch.destination.blame(Failure::error(error.code(), message));
            }
            None
        }
    }
}

impl Bindings for KeyBindings<'_> {
    fn root(&self, root: Root) -> Option<Value> {
        match root {
            Root::Step => Some(Value::object([("input", self.input.clone())])),
            Root::Execution => Some(Value::object([("id", self.id())])),
            _ => None,
        }
    }

    fn at(&self, root: Root, path: &[Arc<str>]) -> Result<Value, Missing> {
        let Some((member, rest)) = path.split_first() else {
            return self.root(root).ok_or(Missing::UNSET);
        };
        match (root, &**member, rest.split_first()) {
            (Root::Step, "input", _) => self.input.at(rest).map_err(Missing::below),
            (Root::Execution, "id", _) => Missing::follow(Some(self.id()), rest),
            (Root::Execution, "platform", Some((member, rest))) => {
                Missing::follow(self.exchange.platform(member), rest).map_err(Missing::below)
            }
            _ => Err(Missing::MEMBER),
        }
    }

    fn now(&self) -> i128 {
        self.exchange.site.core.clock.begun().as_nanos()
    }

    fn wall_time(&self) -> i128 {
        self.exchange.site.core.clock.now().as_nanos()
    }
}

impl KeyBindings<'_> {
    fn id(&self) -> Value {
        Value::from(self.exchange.id())
    }
}
