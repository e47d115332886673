//! MWL, the language: values, definitions, plans and the engine. It knows nothing of HTTP, configuration,
//! administration or telemetry.

pub mod clock;
pub mod code;
pub mod conformance;
pub mod definition;
pub mod engine;
pub mod expr;
pub mod matcher;
pub mod observe;
pub mod outcome;
pub mod plan;
pub mod provider;
pub mod schema;
pub mod temporal;
pub mod uri;
pub mod value;
