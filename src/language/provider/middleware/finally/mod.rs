//! `Finally`: dispatches a cleanup call on every exit (MWL, "The `Finally` middleware").
//!
//! The call and its stack are structural: they are compiled with the definition, and the engine dispatches
//! them.

use std::sync::{Arc, LazyLock};

use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::action::{Always, EntryState};
use crate::language::provider::behaviour::Middleware;
use crate::language::provider::contract::{Contract, Phase, Prepared};
use crate::language::value::Value;

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("finally.v1.json")));

/// The `Finally` middleware.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finally(());

impl Finally {
    /// The middleware.
    pub fn new() -> Self {
        Self(())
    }
}

impl Middleware for Finally {
    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn prepare(&self, _phase: Phase, _with: &Value) -> Result<Prepared, Failure> {
        Ok(Arc::new(()))
    }

    fn on_always(
        &self,
        _entry: &EntryState,
        _with: &Prepared,
        _in_flight: &Outcome,
    ) -> Result<Always, Failure> {
        Ok(Always::Dispatch)
    }
}
