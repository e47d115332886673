//! A middleware entry as its author wrote it, and arguments in words.

use super::contract::{Phase, Prepared};
use crate::language::value::Value;
use crate::source::Node;

/// An entry as written, for [`check`](super::behaviour::Middleware::check). It may be malformed.
#[derive(Clone, Copy, Debug)]
pub struct WrittenEntry<'n>(pub &'n Node);

/// A call as written, for [`check`](super::dispatch::CallProvider::check). It may be malformed.
#[derive(Clone, Copy, Debug)]
pub struct WrittenCall<'n> {
    /// The call object.
    pub node: &'n Node,
    /// The `input` of its Step, which it gets if it writes none.
    pub step_input: Option<&'n Node>,
}

/// The arguments of a phase, for describing them.
#[derive(Clone, Copy, Debug)]
pub enum Arguments<'a> {
    /// In the middleware's own form.
    Prepared(&'a Prepared),
    /// As written. They hold an expression, so only a request knows their values.
    Written(&'a Value),
}

impl<'n> WrittenEntry<'n> {
    /// A key of a phase's block.
    pub fn key(self, phase: Phase, key: &str) -> Option<&'n Node> {
        self.0.get(phase.key())?.get(key)
    }

    /// An argument of a phase.
    pub fn argument(self, phase: Phase, name: &str) -> Option<&'n Node> {
        self.key(phase, "with")?.get(name)
    }
}

impl<'n> WrittenCall<'n> {
    /// An argument.
    pub fn argument(self, name: &str) -> Option<&'n Node> {
        self.node.get("with")?.get(name)
    }

    /// What the call's target gets, where something is written.
    pub fn input(self) -> Option<&'n Node> {
        self.node.get("input").or(self.step_input)
    }
}

/// `value` in words: `codes A.B or A.C, attempts 3`.
pub fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.as_ref().to_owned(),
        Value::Array(items) => {
            let between =
                if items.iter().any(|item| item.as_object().is_some()) { "; " } else { " or " };
            items.iter().map(|item| words(&item)).collect::<Vec<_>>().join(between)
        }
        value => match value.as_object() {
            None => value.to_string(),
            Some(members) => {
                let said = members.iter().map(|(name, value)| format!("{name} {}", words(value)));
                said.collect::<Vec<_>>().join(", ")
            }
        },
    }
}
