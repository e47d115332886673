//! Parameter schemas: JSON Schema 2020-12 with `format` asserted, closed by default.
use super::value::{Map, Value};

/// A compiled parameter schema.
#[derive(Debug)]
pub struct Schema {}
/// What a value broke.
#[derive(Clone, Debug)]
pub struct Violation {
    pub message: String,
    pub schema_path: String,
    pub instance_path: String,
    pub value: Value,
}
impl Schema {
    /// Compiles a `parameters` schema: `"type": "object"` required at the top, closed where it does not set `additionalProperties`.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        unimplemented!()
    }
    /// The schema of something that takes no arguments.
    pub fn nothing() -> Self {
        unimplemented!()
    }
    pub fn validate(&self, value: &Value) -> Result<(), Violation> {
        unimplemented!()
    }
    /// Top-level `default`s of the declared properties.
    pub fn defaults(&self) -> &Map {
        unimplemented!()
    }
}
impl From<Violation> for super::outcome::Failure {
    fn from(violation: Violation) -> Self {
        let Violation {
            message,
            schema_path,
            instance_path,
            value,
        } = violation;
        let details = [
            ("schemaPath", Value::string(schema_path)),
            ("instancePath", Value::string(instance_path)),
            ("value", value),
        ];
        Self::error(super::code::system::PARAMETER_VALIDATION_FAILED, message)
            .with_details(Value::object(details))
    }
}
