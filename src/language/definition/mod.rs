//! Text → plan: every static check, all at once.
use super::plan::Plan;
use super::provider::Catalog;
use crate::source::{Diagnostics, Node};
use std::sync::Arc;

/// How strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /** A literal `with` or duration that fails its schema is left to run time. */
    Runtime,
    /** It is an error here. */
    Load,
}

/// Compiles a definition. `Ok` carries the warnings; `Err` everything found, at least one error.
pub fn compile(
    document: &Node,
    catalog: &Catalog,
    strictness: Strictness,
) -> Result<(Arc<Plan>, Diagnostics), Diagnostics> {
    unimplemented!()
}
