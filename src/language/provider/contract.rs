//! What a provider declares: its contract, as the rest of the language asks for it.
//!
//! A contract that was read is consistent (`document`): its codes stand under its prefix, its schemas compile, its
//! metadata steals no universal name. Nobody behind that door checks again.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use serde_json::Value as Json;

use crate::language::code::CodePattern;
use crate::language::schema::Schema;
use crate::language::uri::ProviderUri;

/// A `with` in the provider's own terms: made once at load where the `with` holds no expression, else
/// each time the phase or the call runs. The engine carries it unopened.
pub type Prepared = Arc<dyn Any + Send + Sync>;

/// What arguments are held to. That of a document of the program's own is compiled when a definition first
/// uses it: most configurations use few providers, and a validator weighs as much as all else of a contract.
pub type Parameters = LazyLock<Schema, Box<dyn FnOnce() -> Schema + Send>>;

/// What a provider declares ("The provider catalog").
#[derive(Debug)]
pub struct Contract {
    /// Its identity.
    pub uri: ProviderUri,
    /// Its identity in failure codes: the third segment.
    pub code_prefix: String,
    /// For people.
    pub description: String,
    /// The document, for `mwl-proxy catalog`.
    pub document: Json,
    /// The codes that it emits.
    pub closed: Vec<String>,
    /// Patterns of codes that it may emit beside those.
    pub open: Vec<String>,
    /// What only one kind of provider declares.
    pub kind: Kind,
}

/// What is declared for one kind of provider.
#[derive(Debug)]
pub enum Kind {
    /// A call provider.
    Call {
        /// What a call's `with` is held to.
        parameters: Parameters,
    },
    /// A middleware.
    Middleware {
        /// Whether it may attach to a Step.
        step: bool,
        /// Whether it may attach to a Flow.
        flow: bool,
        /// Where it acts, by [`Phase`].
        phases: Box<[Option<PhaseContract>; 4]>,
        /// The names of the members that it contributes to `middleware.metadata`.
        metadata: Vec<String>,
    },
}

/// What a middleware declares for a phase at which it acts.
#[derive(Debug)]
pub struct PhaseContract {
    /// `side-effect`, `control` or `transform`.
    pub kind: String,
    /// What the phase's `with` is held to, structural parameters aside.
    pub parameters: Parameters,
    /// The parameters that are definitions ("Structural parameters"): of `call` and `middleware`, those
    /// that the phase takes.
    pub structural: Vec<String>,
    /// Those of them that must be written.
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
    /// On the way up, after either, and in a teardown.
    Always,
}

impl Contract {
    /// What the middleware declares for `phase`; `None` where it does not act there, and accepts no
    /// `with`, and for a call provider.
    pub fn phase(&self, phase: Phase) -> Option<&PhaseContract> {
        let Kind::Middleware { phases, .. } = &self.kind else {
            return None;
        };
        let [entry, success, failure, always] = phases.as_ref();
        match phase {
            Phase::Entry => entry,
            Phase::Success => success,
            Phase::Failure => failure,
            Phase::Always => always,
        }
        .as_ref()
    }

    /// The members that a middleware contributes to `middleware.metadata`.
    pub fn contributed(&self) -> &[String] {
        match &self.kind {
            Kind::Call { .. } => &[],
            Kind::Middleware { metadata, .. } => metadata,
        }
    }

    /// What a call's `with` is held to. A middleware, which nobody calls, takes nothing.
    pub fn parameters(&self) -> &Schema {
        static NOTHING: LazyLock<Schema> = LazyLock::new(Schema::nothing);
        match &self.kind {
            Kind::Call { parameters } => parameters,
            Kind::Middleware { .. } => &NOTHING,
        }
    }

    /// Whether the middleware bounds how long its inner scope runs: it states its acceptance semantics
    /// ("Author shaping and the middleware action").
    pub fn bounds(&self) -> bool {
        let acceptance = |phase: &Json| phase.pointer("/action/acceptance").is_some();
        let phases = self.document.get("phases").and_then(Json::as_object);
        phases.is_some_and(|phases| phases.values().any(acceptance))
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
