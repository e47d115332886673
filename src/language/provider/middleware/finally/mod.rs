//! `Finally`: dispatches a cleanup call on every exit (MWL, "The `Finally` middleware").
//!
//! The call and its stack are structural: they are compiled with the definition, and the engine dispatches
//! them.

use std::sync::LazyLock;

use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::action::{Always, EntryState};
use crate::language::provider::behaviour::Middleware;
use crate::language::provider::contract::{Contract, Prepared};

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("finally.v1.json")));

/// The `Finally` middleware.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finally;

impl Middleware for Finally {
    fn contract(&self) -> &Contract {
        &CONTRACT
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
