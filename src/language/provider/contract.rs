//! A provider's contract, read from its definition document.
use super::Phase;
use crate::language::schema::Schema;
use crate::language::uri::ProviderUri;

/// What a provider declares ("The provider catalog").
#[derive(Debug)]
pub struct Contract {
    pub uri: ProviderUri,
    pub code_prefix: String,
    pub description: String,
    /// The document, for `mwl-proxy catalog`.
    pub document: serde_json::Value,
    pub closed: Vec<String>,
    pub open: Vec<String>,
    pub kind: Kind,
}
#[derive(Debug)]
pub enum Kind {
    Call {
        parameters: Schema,
    },
    Middleware {
        step: bool,
        flow: bool,
        phases: [Option<PhaseContract>; 4],
        /** contributed member names */
        metadata: Vec<String>,
    },
}
#[derive(Debug)]
pub struct PhaseContract {
    pub kind: String,
    pub parameters: Schema,
    pub structural: Vec<String>,
}
impl Contract {
    /// A document that is part of this program.
    pub fn embedded(document: &str) -> Self {
        unimplemented!()
    }
    pub fn parse(document: &str) -> Result<Self, String> {
        unimplemented!()
    }
    /// The members that a middleware contributes to `middleware.metadata`.
    pub fn contributed(&self) -> &[String] {
        match &self.kind {
            Kind::Call { .. } => &[],
            Kind::Middleware { metadata, .. } => metadata,
        }
    }
    /// A call provider's parameter schema.
    pub fn parameters(&self) -> &Schema {
        unimplemented!()
    }
    /// The schema that a phase's `with` is held to; the one of no arguments where the phase declares none.
    pub fn phase(&self, phase: Phase) -> Option<&PhaseContract> {
        unimplemented!()
    }
}
