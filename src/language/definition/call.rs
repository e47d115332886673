//! The call object (MWL, "The call object"), its target, and `with`s.

use std::sync::Arc;

use serde_json::Value as Json;

use super::fields::Fields;
use super::flow::{At, Resolved};
use super::site::Site;
use super::template::is_expression;
use super::{Arguments, Compiler, article, part, suggestion};
use crate::language::expr::Root;
use crate::language::outcome::Failure;
use crate::language::plan::{Assign, CallPlan, FlowId, Target, Template, With};
use crate::language::provider::{CallProvider, Prepared};
use crate::language::schema::{Schema, Violation};
use crate::language::uri::{ProviderKind, ProviderUri};
use crate::language::value::Value;
use crate::source::{Diagnostic, Node, Span};

const FIELDS: [&str; 7] = [
    "provider",
    "flow",
    "input",
    "with",
    "onSuccess",
    "onFailure",
    "comment",
];

/// A `with` as written.
pub(super) enum Written {
    Literal(Value),
    Dynamic(Template),
}

impl Compiler<'_> {
    /// A call at the site `base`.
    pub(super) fn call(
        &mut self,
        node: &Node,
        at: At<'_>,
        base: Site<'_>,
        gathered: bool,
    ) -> Option<CallPlan> {
        let fields = self.fields(node, "a call", &FIELDS)?;
        let site = base.call(gathered);
        let input = self.optional(fields.get("input"), site);
        let (target, with, window) = self.target(&fields, at, site);
        let arm = site.arm(window);
        let (value, on_success) = self.on_success(fields.get("onSuccess"), arm);
        let on_failure = self.on_failure(fields.get("onFailure"), arm);
        Some(CallPlan {
            target: target?,
            input: input?,
            with: with?,
            value: value?,
            on_success: on_success?,
            on_failure: on_failure?,
        })
    }

    /// The target, the arguments held to what it takes, and the window that its arms see.
    fn target(
        &mut self,
        fields: &Fields<'_>,
        at: At<'_>,
        site: Site<'_>,
    ) -> (Option<Target>, Option<With>, Root) {
        let written = self.written(fields.get("with"), site, "with");
        match (fields.get("provider"), fields.get("flow")) {
            (Some(provider), None) => {
                let place = fields.get("with").unwrap_or(provider);
                let provider = self.call_provider(provider);
                let with = provider.as_ref().and_then(|provider| {
                    written
                        .map(|with| self.call_with(with, fields.get("with"), place.span, provider))
                });
                (provider.map(Target::Provider), with, Root::Provider)
            }
            (None, Some(flow)) => {
                let target = self.flow_target(flow, at);
                let place = fields.get("with").unwrap_or(flow).span;
                let with = written.map(|with| match target {
                    Some(to) => self.flow_with(with, fields.get("with"), place, to),
                    None => unchecked(with),
                });
                (target.map(Target::Flow), with, Root::Flow)
            }
            (provider, _) => {
                let message = match provider {
                    Some(_) => "a call names both `provider` and `flow`; it has exactly one target",
                    None => "a call names no target: write `provider` or `flow`",
                };
                self.error("call-target", fields.node.span, message);
                (None, None, Root::Provider)
            }
        }
    }

    fn on_success(
        &mut self,
        node: Option<&Node>,
        site: Site<'_>,
    ) -> (Option<Option<Template>>, Option<Assign>) {
        let Some(node) = node else {
            return (Some(None), Some(Assign::default()));
        };
        let Some(arm) = self.fields(node, "an `onSuccess` arm", &["value", "assign"]) else {
            return (None, None);
        };
        (
            self.optional(arm.get("value"), site),
            self.assign(arm.get("assign"), site),
        )
    }

    fn on_failure(&mut self, node: Option<&Node>, site: Site<'_>) -> Option<Assign> {
        let Some(node) = node else {
            return Some(Assign::default());
        };
        let arm = self.fields(node, "an `onFailure` arm", &["assign"])?;
        self.assign(arm.get("assign"), site)
    }

    fn call_provider(&mut self, node: &Node) -> Option<Arc<dyn CallProvider>> {
        let uri = self.provider_uri(node, ProviderKind::Call)?;
        let found = self.catalog.call(uri.as_str()).map(Arc::clone);
        if found.is_none() {
            self.unknown_provider(node, &uri);
        }
        found
    }

    /// A provider URI of the kind that its position requires.
    pub(super) fn provider_uri(
        &mut self,
        node: &Node,
        wanted: ProviderKind,
    ) -> Option<ProviderUri> {
        let text = self.name(node, "`provider`")?;
        let uri = match ProviderUri::parse(text) {
            Ok(uri) => uri,
            Err(error) => {
                self.error("invalid-uri", node.span, error);
                return None;
            }
        };
        if uri.kind() == wanted {
            return Some(uri);
        }
        let (place, is) = match wanted {
            ProviderKind::Call => ("a call", "a middleware"),
            ProviderKind::Middleware => ("a middleware entry", "a call provider"),
        };
        let message = format!("`{text}` is {is}; {place} names a `{}`", wanted.as_str());
        self.error("wrong-provider-kind", node.span, message);
        None
    }

    /// A URI that the catalog does not have.
    pub(super) fn unknown_provider(&mut self, node: &Node, uri: &ProviderUri) {
        let alike: Vec<&str> = self
            .catalog
            .namesakes(uri)
            .map(ProviderUri::as_str)
            .collect();
        let known = self
            .catalog
            .contracts()
            .filter(|known| known.uri.kind() == uri.kind());
        let known: Vec<&str> = known.map(|known| known.uri.as_str()).collect();
        let help = match alike.first() {
            Some(alike) => format!("use `{alike}`"),
            None => suggestion(uri.as_str(), known),
        };
        let (code, message) = match uri.namespace() {
            "example" => (
                "reserved-namespace",
                format!(
                    "`{}` names nothing real: `example` is reserved for documentation",
                    uri.as_str()
                ),
            ),
            _ => (
                "unknown-provider",
                format!("the catalog has no `{}`", uri.as_str()),
            ),
        };
        self.found
            .push(Diagnostic::error(code, node.span, message).with_help(help));
    }

    /// A `with`: an object with or without expressions, or one expression.
    pub(super) fn written(
        &mut self,
        node: Option<&Node>,
        site: Site<'_>,
        name: &str,
    ) -> Option<Written> {
        let Some(node) = node else {
            return Some(Written::Literal(Value::empty_object()));
        };
        self.typed(node, name, "an object or an expression", |node| {
            node.as_object().is_some()
        });
        self.template(node, site).map(Written::of)
    }

    fn call_with(
        &mut self,
        with: Written,
        node: Option<&Node>,
        place: Span,
        provider: &Arc<dyn CallProvider>,
    ) -> With {
        let contract = provider.contract();
        let declared = contract.document.get("parameters");
        let schema = contract.parameters();
        match with {
            Written::Dynamic(template) => {
                self.check_members(node, place, declared);
                With::Dynamic(template)
            }
            Written::Literal(value) => {
                let told = self.check_members(node, place, declared);
                let prepare = || provider.prepare(&value);
                let prepared = self.prepared(&value, schema, prepare, node, place, told);
                With::Literal { value, prepared }
            }
        }
    }

    /// Validates and prepares a literal `with`; at load, a failure is an error in its place, unless the
    /// reader was told already.
    pub(super) fn prepared(
        &mut self,
        value: &Value,
        schema: &Schema,
        prepare: impl FnOnce() -> Result<Prepared, Failure>,
        node: Option<&Node>,
        place: Span,
        told: bool,
    ) -> Result<Prepared, Arc<Failure>> {
        if let Err(violation) = schema.validate(value) {
            if !told {
                self.violation(&violation, node, place);
            }
            return Err(Arc::new(violation.into()));
        }
        prepare().map_err(|failure| {
            if !told {
                let message = failure
                    .message
                    .as_deref()
                    .unwrap_or("the provider refuses it");
                self.load_error(Diagnostic::error("invalid-with", place, message));
            }
            Arc::new(failure)
        })
    }

    fn violation(&mut self, violation: &Violation, node: Option<&Node>, place: Span) {
        let span = node.map_or(place, |node| part(node, &violation.instance_path).span);
        self.load_error(Diagnostic::error("invalid-with", span, &*violation.message));
    }

    /// Holds the names of a `with` to the schema that declares them: what a schema can say of them before
    /// any expression has a value. Whether something was said.
    pub(super) fn check_members(
        &mut self,
        node: Option<&Node>,
        place: Span,
        schema: Option<&Json>,
    ) -> bool {
        let Some(members) = node.map_or(Some(&[][..]), Node::as_object) else {
            return false;
        };
        let before = self.found.0.len();
        let names = Declared::of(schema);
        for member in members.iter().filter(|member| !names.admits(&member.key)) {
            let message = format!("`{}` is not a parameter", member.key);
            let help = match names.properties.is_empty() {
                true => "it takes no arguments; remove it".to_owned(),
                false => suggestion(&member.key, names.properties.iter().copied()),
            };
            self.load_error(
                Diagnostic::error("invalid-with", member.key_span, message).with_help(help),
            );
        }
        for name in &names.required {
            if !members.iter().any(|member| member.key.as_ref() == *name) {
                let message = format!("the parameter `{name}` is missing");
                self.load_error(Diagnostic::error("invalid-with", place, message));
            }
        }
        self.found.0.len() > before
    }

    fn flow_with(&mut self, with: Written, node: Option<&Node>, span: Span, to: FlowId) -> With {
        let value = match &with {
            Written::Literal(value) => Some(value.clone()),
            Written::Dynamic(_) => None,
        };
        self.arguments.push(Arguments {
            to,
            value,
            node: node.cloned(),
            span,
        });
        unchecked(with)
    }

    /// Holds what calls of Flows pass to what the Flows take.
    pub(super) fn check_arguments(&mut self) {
        for Arguments {
            to,
            value,
            node,
            span,
        } in std::mem::take(&mut self.arguments)
        {
            let flow = self.flows.get(to.0).and_then(Option::as_ref);
            let Some(checked) =
                flow.map(|flow| value.map(|value| flow.parameters.validate(&value)))
            else {
                continue;
            };
            let schema = self.parameters.get(to.0).cloned().flatten();
            let told = self.check_members(node.as_ref(), span, schema.as_ref());
            if let Some(Err(violation)) = checked.filter(|_| !told) {
                self.violation(&violation, node.as_ref(), span);
            }
        }
    }

    fn flow_target(&mut self, node: &Node, at: At<'_>) -> Option<FlowId> {
        let to = if node.as_object().is_some() {
            self.inline_flow(node, at)
        } else {
            let Some(name) = node.as_str() else {
                let seen = article(node.type_name());
                let message =
                    format!("`flow` must be a Flow's name or a Flow object; this is {seen}");
                self.error("wrong-type", node.span, message);
                return None;
            };
            let name = if is_expression(node) {
                self.name(node, "`flow`")?
            } else {
                name
            };
            match at.scope.resolve(name) {
                Resolved::Found(to) => to,
                Resolved::Unknown(known) => {
                    let message = format!("no Flow in scope is named `{name}`");
                    let known = known.iter().map(AsRef::as_ref);
                    let help = suggestion(name, known);
                    self.found.push(
                        Diagnostic::error("unknown-flow", node.span, message).with_help(help),
                    );
                    return None;
                }
            }
        };
        self.edge(at.flow, to, node.span);
        Some(to)
    }
}

impl Written {
    pub(super) fn of(template: Template) -> Self {
        match template {
            Template::Constant(value) => Self::Literal(value),
            template => Self::Dynamic(template),
        }
    }
}

/// The frame validates what a Flow is given.
fn unchecked(with: Written) -> With {
    match with {
        Written::Literal(value) => With::Literal {
            value,
            prepared: Ok(Arc::new(())),
        },
        Written::Dynamic(template) => With::Dynamic(template),
    }
}

/// The names that a parameter schema declares.
struct Declared<'s> {
    properties: Vec<&'s str>,
    required: Vec<&'s str>,
    open: bool,
}

impl<'s> Declared<'s> {
    fn of(schema: Option<&'s Json>) -> Self {
        let member = |name| schema.and_then(|schema| schema.get(name));
        let properties = member("properties").and_then(Json::as_object);
        let required = member("required").and_then(Json::as_array);
        let closed = member("additionalProperties").is_none_or(|open| *open == Json::Bool(false));
        Self {
            properties: properties
                .into_iter()
                .flat_map(|all| all.keys().map(String::as_str))
                .collect(),
            required: required
                .into_iter()
                .flatten()
                .filter_map(Json::as_str)
                .collect(),
            open: !closed || member("patternProperties").is_some(),
        }
    }

    fn admits(&self, name: &str) -> bool {
        self.open || self.properties.contains(&name)
    }
}
