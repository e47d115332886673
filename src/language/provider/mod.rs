//! What a provider is to the engine: the contract (a document), the behaviour (one of two traits), and
//! the catalog that resolves a URI to both (MWL, "Providers").
//!
//! Middlewares answer, the engine acts. An action is a plain function that returns a directive: pass,
//! substitute, race, re-enter, dispatch. The engine owns the order of phases, `when`, `with`, shaping,
//! `assign`, variables, waiting and cancelling, so no middleware can break the phase model, and each is
//! tested as a function.

mod action;
mod behaviour;
pub mod call;
mod catalog;
mod contract;
mod dispatch;
mod document;
pub mod middleware;
mod written;

pub use action::{Always, Ascent, DelaySource, Entry, EntryState, Feed, GatedOff, Reentry};
pub use behaviour::Middleware;
pub use catalog::{Catalog, CatalogError};
pub use contract::{Contract, Kind, Parameters, Phase, PhaseContract, Prepared};
pub use dispatch::{Answer, CallProvider, Dispatch, Role};
pub use document::SCHEMA_URI;
pub use written::{Arguments, WrittenEntry, words};
