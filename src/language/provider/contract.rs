//! A provider's contract, read from its definition document (MWL, "The provider definition document").
//!
//! The document is data: a contract that was read is consistent (its codes stand under its prefix, its
//! schemas compile, its metadata steals no universal name), so nobody behind this door checks again.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value as Json;

use super::Phase;
use crate::language::code::CodePattern;
use crate::language::schema::Schema;
use crate::language::uri::{ProviderKind, ProviderUri};
use crate::language::value::Value;

/// The `$schema` of a provider definition document.
pub const SCHEMA_URI: &str = "https://mwl.dev/v0.1/provider/schema.json";

/// What arguments are held to. That of a document of the program's own is compiled when a definition first
/// uses it: most configurations use few providers, and a validator weighs as much as all else of a contract.
pub type Parameters = LazyLock<Schema, Box<dyn FnOnce() -> Schema + Send>>;

/// How a schema of a document becomes [`Parameters`]; the text says which it is.
type Compile = fn(Json, &str) -> Result<Parameters, String>;

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
    kind: ActionKind,
    #[serde(rename = "description")]
    _description: String,
    #[serde(rename = "acceptance")]
    _acceptance: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
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
    /// What in the document breaks the provider-definition schema or the rules in "The provider catalog"
    /// and "The failure catalog".
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
    /// Where the document is no contract: a mistake in the program, which the test over its catalog finds.
    #[expect(clippy::panic, reason = "the document is a constant of the program, held by a test")]
    pub fn embedded(document: &str) -> Self {
        match Self::read(document, when_used) {
            Ok(contract) => contract,
            Err(error) => panic!("an embedded provider document is wrong: {error}"),
        }
    }

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

#[expect(clippy::unnecessary_wraps, reason = "the other way to compile may fail")]
#[expect(clippy::panic, reason = "the schema is a constant of the program, held by a test")]
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
) -> Result<Kind, String> {
    if middleware_fields {
        return Err("`attachment` and `phases` belong to a middleware's document".to_owned());
    }
    let parameters = parameters.ok_or("`parameters` is missing")?;
    let parameters = compile(parameters, "`parameters`")?;
    Ok(Kind::Call { parameters })
}

fn middleware(
    attachment: Option<Vec<Attachment>>,
    phases: Option<PhasesDocument>,
    metadata: Vec<String>,
    compile: Compile,
) -> Result<Kind, String> {
    let attachment = attachment.unwrap_or_default();
    if attachment.is_empty() {
        return Err("`attachment` is missing or empty; write `step`, `flow` or both".to_owned());
    }
    let read = |phase: Option<PhaseDocument>, key| {
        phase.map(|phase| phase_contract(phase, key, compile)).transpose()
    };
    let phases = phases.ok_or("`phases` is missing")?;
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
    Ok(Kind::Middleware {
        step: attachment.contains(&Attachment::Step),
        flow: attachment.contains(&Attachment::Flow),
        phases: Box::new(phases),
        metadata,
    })
}

fn phase_contract(
    phase: PhaseDocument,
    name: &str,
    compile: Compile,
) -> Result<PhaseContract, String> {
    let PhaseDocument { action, parameters, structural } = phase;
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
    let kind = match action.kind {
        ActionKind::SideEffect => "side-effect",
        ActionKind::Control => "control",
        ActionKind::Transform => "transform",
    };
    Ok(PhaseContract { kind: kind.to_owned(), parameters, structural, structural_required })
}

/// Takes the property `member` out of an object schema: a structural parameter is no value to validate.
/// Whether it was required; `None` where there is no such property.
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
mod tests {
    use super::*;

    /// A call provider's document with `member` of its own.
    fn call(member: &str, value: Json) -> String {
        let mut document = serde_json::json!({
            "$schema": SCHEMA_URI,
            "uri": "mwl:provider.call/acme/queue/v1",
            "codePrefix": "Queue",
            "description": "Sends a message.",
            "parameters": { "type": "object", "properties": { "topic": { "type": "string" } } },
            "failureCatalog": { "closed": ["Provider.Call.Queue.Full"], "open": ["Provider.Call.Queue.Broker.*"] }
        });
        if let Some(members) = document.as_object_mut() {
            members.insert(member.to_owned(), value);
        }
        document.to_string()
    }

    fn middleware(member: &str, value: Json) -> String {
        let mut document = serde_json::json!({
            "$schema": SCHEMA_URI,
            "uri": "mwl:provider.middleware/acme/guard/v1",
            "codePrefix": "Guard",
            "description": "Guards.",
            "attachment": ["flow"],
            "phases": {
                "onAlways": {
                    "action": { "kind": "side-effect", "description": "Calls." },
                    "parameters": {
                        "type": "object",
                        "required": ["call", "level"],
                        "properties": { "call": { "type": "object" }, "level": { "type": "integer" } }
                    },
                    "structural": ["call"]
                }
            },
            "metadata": { "type": "object", "properties": { "count": { "type": "number" } } },
            "failureCatalog": { "closed": [], "open": [] }
        });
        if let Some(members) = document.as_object_mut() {
            members.insert(member.to_owned(), value);
        }
        document.to_string()
    }

    #[test]
    fn a_call_providers_document_is_read() {
        let contract = Contract::parse(&call("comment", Json::Null)).unwrap_err();
        assert!(contract.starts_with("unknown field `comment`"), "{contract}");
        let contract = Contract::parse(&call("codePrefix", "Queue".into())).unwrap();
        assert_eq!(contract.uri.as_str(), "mwl:provider.call/acme/queue/v1");
        assert!(contract.declares("Provider.Call.Queue.Full"));
        assert!(contract.declares("Provider.Call.Queue.Broker.Gone"));
        assert!(!contract.declares("Provider.Call.Queue.Empty"));
        let good = Value::object([("topic", Value::from("t"))]);
        assert!(contract.parameters().validate(&good).is_ok());
        let closed = Value::object([("topics", Value::from("t"))]);
        assert!(contract.parameters().validate(&closed).is_err());
        assert!(contract.phase(Phase::Entry).is_none());
    }

    #[test]
    fn a_structural_parameter_is_no_value_to_validate() {
        let contract = Contract::parse(&middleware("codePrefix", "Guard".into())).unwrap();
        assert_eq!(contract.contributed(), ["count"]);
        assert!(!contract.bounds());
        assert!(contract.phase(Phase::Entry).is_none());
        let phase = contract.phase(Phase::Always).unwrap();
        assert_eq!(phase.structural, ["call"]);
        assert_eq!(phase.structural_required, ["call"]);
        let rest = Value::object([("level", Value::from(1))]);
        assert!(phase.parameters.validate(&rest).is_ok());
        assert!(phase.parameters.validate(&Value::empty_object()).is_err());
    }

    #[test]
    fn what_is_inconsistent_is_refused() {
        let catalog =
            |closed: &str, open: &str| serde_json::json!({ "closed": [closed], "open": [open] });
        let own = "Provider.Call.Queue.X";
        let phases = |structural: &str| {
            serde_json::json!({ "onEntry": {
                "action": { "kind": "control", "description": "" },
                "parameters": { "type": "object", "properties": { "policy": {} } },
                "structural": [structural]
            } })
        };
        let stolen =
            |name: &str| serde_json::json!({ "type": "object", "properties": { name: {} } });
        let cases = [
            (
                call("$schema", "x".into()),
                "`$schema` is `x`; write `https://mwl.dev/v0.1/provider/schema.json`",
            ),
            (
                call("codePrefix", "queue".into()),
                "`codePrefix` is `queue`; write letters and digits, the first an upper-case letter",
            ),
            (
                call("failureCatalog", catalog("Provider.Call.Other.X", "*")),
                "the closed code `Provider.Call.Other.X` is not one under `Provider.Call.Queue.`",
            ),
            (
                call("failureCatalog", catalog("Provider.Call.Queue.*", "*")),
                "the closed code `Provider.Call.Queue.*` is not one under `Provider.Call.Queue.`",
            ),
            (
                call("failureCatalog", catalog(own, "Provider.Call.*")),
                "the open sub-prefix `Provider.Call.*` is neither `*` nor under `Provider.Call.Queue.` and ending in `.*`",
            ),
            (call("parameters", Json::Null), "`parameters` is missing"),
            (
                call("attachment", serde_json::json!(["step"])),
                "`attachment` and `phases` belong to a middleware's document",
            ),
            (
                call("metadata", stolen("enteredAt")),
                "`metadata` contributes `enteredAt`, which every record has already",
            ),
            (
                middleware("metadata", stolen("exitedAt")),
                "`metadata` contributes `exitedAt`, which every record has already",
            ),
            (
                middleware("parameters", serde_json::json!({ "type": "object" })),
                "a middleware declares its `parameters` per phase",
            ),
            (
                middleware("attachment", serde_json::json!([])),
                "`attachment` is missing or empty; write `step`, `flow` or both",
            ),
            (
                middleware("phases", serde_json::json!({})),
                "`phases` is empty: a middleware acts somewhere",
            ),
            (
                middleware("phases", phases("call")),
                "onEntry: the structural parameter `call` is not among the parameters",
            ),
            (
                middleware("phases", phases("policy")),
                "onEntry: `policy` cannot be structural; `call` and `middleware` can",
            ),
        ];
        for (document, expected) in cases {
            assert_eq!(Contract::parse(&document).unwrap_err(), expected);
        }
    }
}
