//! Providers (MWL, "Providers"): the contract (a document), the behaviour (one of two traits), and the
//! catalog that resolves a URI to both.
//!
//! Middlewares only answer; the engine acts. An action is a plain function that returns a directive: pass,
//! substitute, race, re-enter, dispatch. The engine controls the order of phases, `when`, `with`, shaping,
//! `assign`, variables, waiting and cancelling. So no middleware can break the phase model, and each can be
//! tested as a function.

mod action;
mod attempt;
mod behaviour;
pub mod call;
mod catalog;
mod contract;
mod dispatch;
mod document;
mod draws;
mod identity;
mod installation;
pub mod middleware;
mod reruns;
mod rising;
mod written;

pub use action::{
    Always, Ascent, Asked, Asker, Asking, DelaySource, Entry, EntryState, Feed, GatedOff, Moment,
    Pass, Passage, Reentry,
};
pub use attempt::{Attempt, AttemptId, Destination, ReachedEndpoint, Role, Slot, Wait};
pub use behaviour::{Middleware, Surroundings};
pub use catalog::{Catalog, CatalogError};
pub use contract::{Contract, ContractKind, Parameters, Phase, PhaseContract, Prepared};
pub use dispatch::{Answer, CallProvider, Dispatch};
pub use document::SCHEMA_URI;
pub use draws::Draws;
pub use identity::{Identity, OperationKey};
pub use installation::{Installation, InstalledFor, LoadId};
pub use reruns::RerunGate;
pub use rising::{Argument, Foreseen, Gone, Kind, Rising};
pub use written::{Arguments, WrittenCall, WrittenEntry, words};
