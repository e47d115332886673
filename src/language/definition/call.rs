//! The call object (MWL, "The call object"): its target and its arms.

use std::sync::Arc;

use super::fields::Fields;
use super::flow::{Position, Resolved};
use super::site::Site;
use super::template::is_expression;
use super::with::unchecked;
use super::{Compiler, suggestion};
use crate::language::expr::Root;
use crate::language::plan::{Assign, CallPlan, FlowId, Target, Template, With};
use crate::language::provider::CallProvider;
use crate::language::uri::{ProviderKind, ProviderUri};
use crate::source::{Diagnostic, Node};

const FIELDS: [&str; 7] =
    ["provider", "flow", "input", "with", "onSuccess", "onFailure", "comment"];

impl Compiler<'_> {
    /// A call at the site `base`.
    pub(super) fn call(
        &mut self,
        node: &Node,
        at: Position<'_>,
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

    /// A call that gets no input from its Step, with its provider's advice.
    pub(super) fn advised_call(
        &mut self,
        node: &Node,
        at: Position<'_>,
        base: Site<'_>,
        gathered: bool,
    ) -> Option<CallPlan> {
        let call = self.call(node, at, base, gathered)?;
        self.advise_call(&call, node, None);
        Some(call)
    }

    /// The target, its arguments checked against its parameters, and the root by which its arms see it.
    fn target(
        &mut self,
        fields: &Fields<'_>,
        at: Position<'_>,
        site: Site<'_>,
    ) -> (Option<Target>, Option<With>, Root) {
        let raw = self.raw_with(fields.get("with"), site);
        match (fields.get("provider"), fields.get("flow")) {
            (Some(provider), None) => {
                let place = fields.get("with").unwrap_or(provider);
                let provider = self.call_provider(provider);
                let with = provider.as_ref().and_then(|provider| {
                    raw.map(|with| self.call_with(with, fields.get("with"), place.span, provider))
                });
                (provider.map(Target::Provider), with, Root::Provider)
            }
            (None, Some(flow)) => {
                let target = self.flow_target(flow, at);
                let place = fields.get("with").unwrap_or(flow).span;
                let with = raw.map(|with| match target {
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
        (self.optional(arm.get("value"), site), self.assign(arm.get("assign"), site))
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
                let meant =
                    self.catalog.contracts().map(|contract| &contract.uri).find(|uri| {
                        uri.kind() == wanted && uri.bare_name().eq_ignore_ascii_case(text)
                    });
                let diagnostic = Diagnostic::error("invalid-uri", node.span, error);
                self.found.push(match meant {
                    Some(meant) => diagnostic.with_help(format!("write `{}`", meant.as_str())),
                    None => diagnostic,
                });
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

    /// Reports a URI that the catalog does not have.
    pub(super) fn unknown_provider(&mut self, node: &Node, uri: &ProviderUri) {
        let alike: Vec<&str> = self.catalog.namesakes(uri).map(ProviderUri::as_str).collect();
        let known = self.catalog.contracts().filter(|known| known.uri.kind() == uri.kind());
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
            _ => ("unknown-provider", format!("the catalog has no `{}`", uri.as_str())),
        };
        self.error_with_help(code, node.span, message, help);
    }

    fn flow_target(&mut self, node: &Node, at: Position<'_>) -> Option<FlowId> {
        let to = if node.as_object().is_some() {
            self.inline_flow(node, at)
        } else {
            let Some(name) = node.as_str() else {
                self.wrong_type(node, "`flow` must be a Flow's name or a Flow object");
                return None;
            };
            let name = if is_expression(node) { self.name(node, "`flow`")? } else { name };
            match at.scope.resolve(name) {
                Resolved::Found(to) => to,
                Resolved::Unknown(known) => {
                    let message = format!("no Flow in scope is named `{name}`");
                    let known = known.iter().map(AsRef::as_ref);
                    let help = match known.len() {
                        0 => "declare it under `flows`".to_owned(),
                        _ => suggestion(name, known),
                    };
                    self.error_with_help("unknown-flow", node.span, message, help);
                    return None;
                }
            }
        };
        self.edge(at.flow, to, node.span);
        Some(to)
    }
}
