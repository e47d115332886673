//! Reads a provider definition document (MWL, "The provider definition document") into a [`Contract`].

use serde::Deserialize;
use serde_json::Value as Json;

use super::contract::{Contract, ContractKind, Parameters, Phase, PhaseContract};
use crate::language::code::CodePattern;
use crate::language::schema::Schema;
use crate::language::uri::{ProviderKind, ProviderUri};
use crate::language::value::Value;

/// The `$schema` of a provider definition document.
pub const SCHEMA_URI: &str = "https://mwl.dev/v0.1/provider/schema.json";

/// Turns a schema of a document into [`Parameters`]. The text names the schema.
type Compile = fn(Json, &str) -> Result<Parameters, String>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(rename = "$schema")]
    schema: String,
    uri: String,
    code_prefix: String,
    description: String,
    attachment: Option<Vec<Attachment>>,
    phases: Option<PhasesDocument>,
    parameters: Option<Json>,
    metadata: Option<Json>,
    failure_catalog: FailureCatalog,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Attachment {
    Step,
    Flow,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the names of the keys")]
struct PhasesDocument {
    on_entry: Option<PhaseDocument>,
    on_success: Option<PhaseDocument>,
    on_failure: Option<PhaseDocument>,
    on_always: Option<PhaseDocument>,
}

impl PhasesDocument {
    fn state_acceptance(&self) -> bool {
        let Self { on_entry, on_success, on_failure, on_always } = self;
        let phases = [on_entry, on_success, on_failure, on_always];
        phases.into_iter().flatten().any(|phase| phase.action.acceptance.is_some())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseDocument {
    action: ActionDocument,
    parameters: Option<Json>,
    #[serde(default)]
    structural: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionDocument {
    #[serde(rename = "kind")]
    _kind: ActionKind,
    #[serde(rename = "description")]
    _description: String,
    acceptance: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ActionKind {
    SideEffect,
    Control,
    Transform,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureCatalog {
    closed: Vec<String>,
    open: Vec<String>,
}

impl Contract {
    /// Reads a provider definition document.
    ///
    /// # Errors
    /// What violates the provider-definition schema, or the rules in "The provider catalog" and "The failure
    /// catalog".
    pub fn parse(document: &str) -> Result<Self, String> {
        Self::read(document, at_once)
    }

    fn read(document: &str, compile: Compile) -> Result<Self, String> {
        let read: Document = serde_json::from_str(document).map_err(|error| error.to_string())?;
        let document: Json = serde_json::from_str(document).map_err(|error| error.to_string())?;
        if read.schema != SCHEMA_URI {
            return Err(format!("`$schema` is `{}`; write `{SCHEMA_URI}`", read.schema));
        }
        let uri = ProviderUri::parse(&read.uri)?;
        check_prefix(&read.code_prefix)?;
        let own = format!("Provider.{}.{}.", uri.kind().code_segment(), read.code_prefix);
        check_codes(&read.failure_catalog, &own)?;
        let contributed = read.metadata.map(|schema| contributed(schema, compile));
        let metadata = contributed.transpose()?.unwrap_or_default();
        let kind = match uri.kind() {
            ProviderKind::Call => {
                let middleware_fields = read.attachment.is_some() || read.phases.is_some();
                call(read.parameters, middleware_fields, compile)?
            }
            ProviderKind::Middleware => {
                if read.parameters.is_some() {
                    return Err("a middleware declares its `parameters` per phase".to_owned());
                }
                middleware(read.attachment, read.phases, metadata, compile)?
            }
        };
        Ok(Self {
            uri,
            code_prefix: read.code_prefix,
            description: read.description,
            document,
            closed: read.failure_catalog.closed,
            open: read.failure_catalog.open,
            kind,
        })
    }

    /// A document that is part of this program.
    ///
    /// # Panics
    /// If the document is wrong: a mistake in the program, which a test of the catalog finds.
    #[expect(clippy::panic, reason = "the document is a constant, and a test checks it")]
    pub fn embedded(document: &str) -> Self {
        match Self::read(document, when_used) {
            Ok(contract) => contract,
            Err(error) => panic!("an embedded provider document is wrong: {error}"),
        }
    }
}

fn check_prefix(prefix: &str) -> Result<(), String> {
    let upper = prefix.starts_with(|c: char| c.is_ascii_uppercase());
    if upper && prefix.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err(format!(
        "`codePrefix` is `{prefix}`; write letters and digits, the first an upper-case letter"
    ))
}

fn check_codes(catalog: &FailureCatalog, own: &str) -> Result<(), String> {
    let FailureCatalog { closed, open } = catalog;
    for code in closed {
        let under = code.strip_prefix(own).is_some_and(|rest| !rest.is_empty());
        if !under || !matches!(CodePattern::parse(code), Ok(CodePattern::Exact(_))) {
            return Err(format!("the closed code `{code}` is not one under `{own}`"));
        }
    }
    for pattern in open {
        let under = pattern == "*" || pattern.starts_with(own);
        let exact = matches!(CodePattern::parse(pattern), Ok(CodePattern::Exact(_)) | Err(_));
        if !under || exact {
            return Err(format!(
                "the open sub-prefix `{pattern}` is neither `*` nor under `{own}` and ending in `.*`"
            ));
        }
    }
    Ok(())
}

fn at_once(schema: Json, what: &str) -> Result<Parameters, String> {
    let compiled = Schema::compile(&Value::from(schema));
    let compiled = compiled.map_err(|error| format!("{what}: {error}"))?;
    Ok(Parameters::new(Box::new(|| compiled)))
}

#[expect(clippy::unnecessary_wraps, reason = "it has the same type as `at_once`")]
#[expect(clippy::panic, reason = "the schema is a constant, and a test checks it")]
fn when_used(schema: Json, what: &str) -> Result<Parameters, String> {
    let what = what.to_owned();
    Ok(Parameters::new(Box::new(move || match Schema::compile(&Value::from(schema)) {
        Ok(compiled) => compiled,
        Err(error) => panic!("{what}: an embedded provider document is wrong: {error}"),
    })))
}

/// The members that a `metadata` schema names.
fn contributed(schema: Json, compile: Compile) -> Result<Vec<String>, String> {
    let properties = schema.get("properties").and_then(Json::as_object);
    let names: Vec<String> = properties.into_iter().flat_map(|all| all.keys().cloned()).collect();
    compile(schema, "`metadata`")?;
    match names.iter().find(|name| matches!(name.as_str(), "enteredAt" | "exitedAt")) {
        Some(name) => {
            Err(format!("`metadata` contributes `{name}`, which every record has already"))
        }
        None => Ok(names),
    }
}

fn call(
    parameters: Option<Json>,
    middleware_fields: bool,
    compile: Compile,
) -> Result<ContractKind, String> {
    if middleware_fields {
        return Err("`attachment` and `phases` belong to a middleware's document".to_owned());
    }
    let parameters = parameters.ok_or("`parameters` is missing")?;
    let parameters = compile(parameters, "`parameters`")?;
    Ok(ContractKind::Call { parameters })
}

fn middleware(
    attachment: Option<Vec<Attachment>>,
    phases: Option<PhasesDocument>,
    metadata: Vec<String>,
    compile: Compile,
) -> Result<ContractKind, String> {
    let attachment = attachment.unwrap_or_default();
    if attachment.is_empty() {
        return Err("`attachment` is missing or empty; write `step`, `flow` or both".to_owned());
    }
    let read = |phase: Option<PhaseDocument>, key| {
        phase.map(|phase| phase_contract(phase, key, compile)).transpose()
    };
    let phases = phases.ok_or("`phases` is missing")?;
    let acceptance = phases.state_acceptance();
    let PhasesDocument { on_entry, on_success, on_failure, on_always } = phases;
    let phases = [
        read(on_entry, Phase::Entry.key())?,
        read(on_success, Phase::Success.key())?,
        read(on_failure, Phase::Failure.key())?,
        read(on_always, Phase::Always.key())?,
    ];
    if phases.iter().all(Option::is_none) {
        return Err("`phases` is empty: a middleware acts somewhere".to_owned());
    }
    Ok(ContractKind::Middleware {
        step: attachment.contains(&Attachment::Step),
        flow: attachment.contains(&Attachment::Flow),
        phases: Box::new(phases),
        metadata,
        acceptance,
    })
}

fn phase_contract(
    phase: PhaseDocument,
    name: &str,
    compile: Compile,
) -> Result<PhaseContract, String> {
    let PhaseDocument { action: _, parameters, structural } = phase;
    let mut structural_required = Vec::new();
    let parameters = match parameters {
        None => Parameters::new(Box::new(Schema::nothing)),
        Some(mut schema) => {
            for member in &structural {
                let required = without(&mut schema, member).ok_or_else(|| {
                    format!(
                        "{name}: the structural parameter `{member}` is not among the parameters"
                    )
                })?;
                if required {
                    structural_required.push(member.clone());
                }
            }
            compile(schema, &format!("{name}: `parameters`"))?
        }
    };
    if let Some(other) =
        structural.iter().find(|member| !matches!(member.as_str(), "call" | "middleware"))
    {
        return Err(format!("{name}: `{other}` cannot be structural; `call` and `middleware` can"));
    }
    Ok(PhaseContract { parameters, structural, structural_required })
}

/// Removes the property `member` from an object schema, because a structural parameter is not a value to
/// validate. Whether it was required; `None` if there is no such property.
fn without(schema: &mut Json, member: &str) -> Option<bool> {
    schema.get_mut("properties")?.as_object_mut()?.remove(member)?;
    let Some(required) = schema.get_mut("required").and_then(Json::as_array_mut) else {
        return Some(false);
    };
    let before = required.len();
    required.retain(|name| name.as_str() != Some(member));
    Some(required.len() < before)
}

#[cfg(test)]
mod tests;
