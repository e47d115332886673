//! What a provider declares: its contract, in the form in which the rest of the language uses it.
//!
//! `document` reads a contract and checks it: its codes have its prefix, its schemas compile, and its
//! metadata uses no name that every record has. So users of a contract need not check again.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use serde_json::Value as Json;

use crate::language::code::CodePattern;
use crate::language::schema::Schema;
use crate::language::uri::ProviderUri;

/// A `with` in the provider's own form. It is made once, at load, if the `with` holds no expression; else
/// each time the phase or the call runs. The engine never looks into it.
pub type Prepared = Arc<dyn Any + Send + Sync>;

/// The schema of arguments. A schema of an embedded document is compiled when a definition first uses it:
/// most configurations use few providers, and a validator needs as much memory as the rest of a contract.
pub type Parameters = LazyLock<Schema, Box<dyn FnOnce() -> Schema + Send>>;

/// What a provider declares ("The provider catalog").
#[derive(Debug)]
pub struct Contract {
    /// Its identity.
    pub uri: ProviderUri,
    /// The third segment of its failure codes, by which they are recognised.
    pub code_prefix: String,
    /// For people.
    pub description: String,
    /// The document, for `mwl-proxy catalog`.
    pub document: Json,
    /// The codes that it emits.
    pub closed: Vec<String>,
    /// The patterns of other codes that it may emit.
    pub open: Vec<String>,
    /// What only this kind of provider declares.
    pub kind: ContractKind,
}

/// What one kind of provider declares.
#[derive(Debug)]
pub enum ContractKind {
    /// A call provider.
    Call {
        /// The schema of a call's `with`.
        parameters: Parameters,
    },
    /// A middleware.
    Middleware {
        /// Whether it may attach to a Step.
        step: bool,
        /// Whether it may attach to a Flow.
        flow: bool,
        /// What it declares for each [`Phase`] at which it acts.
        phases: Box<[Option<PhaseContract>; 4]>,
        /// The names of the members that it contributes to `middleware.metadata`.
        metadata: Vec<String>,
        /// Whether a phase states acceptance semantics, as one does that bounds how long the inner scope runs.
        acceptance: bool,
    },
}

/// What a middleware declares for a phase at which it acts.
#[derive(Debug)]
pub struct PhaseContract {
    /// The schema of the phase's `with`, without structural parameters.
    pub parameters: Parameters,
    /// The parameters that are definitions ("Structural parameters"): `call`, `middleware` or both.
    pub structural: Vec<String>,
    /// Those of them that are required.
    pub structural_required: Vec<String>,
}

/// The four phases ("The phase model").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// On the way down.
    Entry,
    /// On the way up, past a success.
    Success,
    /// On the way up, past a failure.
    Failure,
    /// On the way up, after either of these, and in a teardown.
    Always,
}

impl Contract {
    /// What the middleware declares for `phase`. `None` if it does not act there, and so accepts no `with`;
    /// and for a call provider.
    pub fn phase(&self, phase: Phase) -> Option<&PhaseContract> {
        let ContractKind::Middleware { phases, .. } = &self.kind else {
            return None;
        };
        phase.of(phases).as_ref()
    }

    /// The members that a middleware contributes to `middleware.metadata`.
    pub fn contributed(&self) -> &[String] {
        match &self.kind {
            ContractKind::Call { .. } => &[],
            ContractKind::Middleware { metadata, .. } => metadata,
        }
    }

    /// The schema of a call's `with`. A middleware is never called, and takes nothing.
    pub fn parameters(&self) -> &Schema {
        static NOTHING: LazyLock<Schema> = LazyLock::new(Schema::nothing);
        match &self.kind {
            ContractKind::Call { parameters } => parameters,
            ContractKind::Middleware { .. } => &NOTHING,
        }
    }

    /// Whether the middleware bounds how long its inner scope runs: such a middleware states its acceptance
    /// semantics ("Author shaping and the middleware action").
    pub const fn bounds(&self) -> bool {
        matches!(self.kind, ContractKind::Middleware { acceptance: true, .. })
    }

    /// The schema of the `with` of `phase` as the document writes it, structural parameters and all.
    pub fn written_parameters(&self, phase: Phase) -> Option<&Json> {
        self.document.get("phases")?.get(phase.key())?.get("parameters")
    }

    /// Whether the provider may emit `code`.
    pub fn declares(&self, code: &str) -> bool {
        let open = |open: &String| CodePattern::parse(open).is_ok_and(|open| open.matches(code));
        self.closed.iter().any(|closed| closed == code) || self.open.iter().any(open)
    }
}

impl Phase {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Entry, Self::Success, Self::Failure, Self::Always];

    /// What belongs to it among what `all` four have, in order.
    pub const fn of<T>(self, all: &[T; 4]) -> &T {
        let [entry, success, failure, always] = all;
        match self {
            Self::Entry => entry,
            Self::Success => success,
            Self::Failure => failure,
            Self::Always => always,
        }
    }

    /// The name of its key.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Entry => "onEntry",
            Self::Success => "onSuccess",
            Self::Failure => "onFailure",
            Self::Always => "onAlways",
        }
    }
}
