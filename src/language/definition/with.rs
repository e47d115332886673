//! `with`, the arguments of a target or a phase: checked against its parameters before anything runs.
//!
//! A `with` without expressions is validated and prepared here, once. Of one with expressions, the names and
//! the literal parts are checked against the schema: before there are values, no more is possible.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::site::Site;
use super::{Compiler, FlowArguments, part, suggestion};
use crate::language::outcome::Failure;
use crate::language::plan::{FlowId, Template, With};
use crate::language::provider::{CallProvider, Prepared};
use crate::language::schema::{Schema, Violation};
use crate::language::value::Value;
use crate::source::{Diagnostic, Member, Node, Span};

/// A `with` in the document. If it is not written, `span` is what it would belong to.
#[derive(Clone, Copy)]
pub(super) struct WithNode<'n> {
    pub(super) node: Option<&'n Node>,
    pub(super) span: Span,
    /// Whether an error about it was reported already.
    pub(super) reported: bool,
    /// The schema that declares it, as written.
    pub(super) declared: Option<&'n Json>,
    /// The members that are definitions, and no values to check.
    pub(super) structural: &'n [String],
}

/// A `with` that is not checked yet.
pub(super) enum RawWith {
    Literal(Value),
    Dynamic(Template),
}

impl Compiler<'_> {
    /// A `with`: an object with or without expressions, or one expression.
    pub(super) fn raw_with(&mut self, node: Option<&Node>, site: Site<'_>) -> Option<RawWith> {
        let Some(node) = node else {
            return Some(RawWith::Literal(Value::empty_object()));
        };
        self.typed(node, "with", "an object or an expression", |node| node.as_object().is_some());
        self.template(node, site).map(RawWith::of)
    }

    /// The `with` of a call to a provider.
    pub(super) fn call_with(
        &mut self,
        with: RawWith,
        node: Option<&Node>,
        span: Span,
        provider: &Arc<dyn CallProvider>,
    ) -> With {
        let contract = provider.contract();
        let parameters = contract.document.get("parameters");
        let reported = self.check_members(node, span, parameters);
        if let Some(node) = node {
            self.advise_months(node, parameters);
        }
        let value = match with {
            RawWith::Dynamic(template) => {
                if let Some(node) = node {
                    self.check_parts(node, parameters, &[]);
                }
                return With::Dynamic(template);
            }
            RawWith::Literal(value) => value,
        };
        let place = WithNode { node, span, reported, declared: parameters, structural: &[] };
        let schema = contract.parameters();
        let prepared = self.prepared(&value, schema, || provider.prepare(&value), place);
        With::Literal { value, prepared }
    }

    /// Validates and prepares a literal `with`. At load, a failure is reported as an error.
    pub(super) fn prepared(
        &mut self,
        value: &Value,
        schema: &Schema,
        prepare: impl FnOnce() -> Result<Prepared, Failure>,
        place: WithNode<'_>,
    ) -> Result<Prepared, Arc<Failure>> {
        if let Err(violation) = schema.validate(value) {
            self.violation(&violation, place);
            return Err(Arc::new(violation.into()));
        }
        prepare().map_err(|failure| {
            if !place.reported {
                let message = failure.message.as_deref().unwrap_or("the provider refuses it");
                self.load_error(Diagnostic::error("invalid-with", place.span, message));
            }
            Arc::new(failure)
        })
    }

    /// Reports what is wrong with a literal `with`: each mistake at its place, or else the first one that was found.
    fn violation(&mut self, violation: &Violation, place: WithNode<'_>) {
        let WithNode { node, span, reported, declared, structural } = place;
        let before = self.found.0.len();
        if let Some(node) = node {
            self.check_parts(node, declared, structural);
        }
        if !reported && self.found.0.len() == before {
            let span = node.map_or(span, |node| part(node, &violation.instance_path).span);
            self.load_error(Diagnostic::error("invalid-with", span, &*violation.message));
        }
    }

    /// Checks the names of a `with` against the schema that declares them, which is possible before any
    /// expression has a value. Whether an error was reported.
    pub(super) fn check_members(
        &mut self,
        node: Option<&Node>,
        place: Span,
        schema: Option<&Json>,
    ) -> bool {
        match node.map_or(Some(&[][..]), Node::as_object) {
            Some(members) => self.check_names(members, place, &Declared::of(schema)),
            // An expression, or a literal of the wrong type, which was reported when it was read.
            None => true,
        }
    }

    /// Checks the names of an object at `place` against those that are declared. Whether an error was
    /// reported.
    pub(super) fn check_names(
        &mut self,
        members: &[Member],
        place: Span,
        names: &Declared<'_>,
    ) -> bool {
        let before = self.found.0.len();
        let unknown: Vec<&Member> =
            members.iter().filter(|member| !names.admits(&member.key)).collect();
        let written = |name: &str| members.iter().any(|member| &*member.key == name);
        let required = names.required.iter().filter_map(Json::as_str);
        let mut missing: Vec<&str> = required.filter(|name| !written(name)).collect();
        // Of one name too many and one too few, the one is probably meant to be the other.
        let meant = match (unknown.as_slice(), missing.as_slice()) {
            ([_], [meant]) => Some(*meant),
            _ => None,
        };
        for member in unknown {
            let message = format!("`{}` is not a parameter", member.key);
            let help = if names.properties().next().is_none() {
                "it takes no arguments; remove it".to_owned()
            } else if let Some(meant) = meant {
                missing.clear();
                format!("did you mean `{meant}`?")
            } else {
                suggestion(&member.key, names.properties())
            };
            self.load_error(
                Diagnostic::error("invalid-with", member.key_span, message).with_help(help),
            );
        }
        for name in missing {
            let message = format!("the parameter `{name}` is missing");
            self.load_error(Diagnostic::error("invalid-with", place, message));
        }
        self.found.0.len() > before
    }

    /// The `with` of a call to a Flow. It is checked later, when every Flow is known.
    pub(super) fn flow_with(
        &mut self,
        with: RawWith,
        node: Option<&Node>,
        span: Span,
        to: FlowId,
    ) -> With {
        let value = match &with {
            RawWith::Literal(value) => Some(value.clone()),
            RawWith::Dynamic(_) => None,
        };
        self.arguments.push(FlowArguments { to, value, node: node.cloned(), span });
        unchecked(with)
    }

    /// Checks the arguments of calls to Flows against the parameters of the Flows.
    pub(super) fn check_arguments(&mut self) {
        for FlowArguments { to, value, node, span } in std::mem::take(&mut self.arguments) {
            let flow = self.flows.get(to.0).and_then(Option::as_ref);
            let room = self.cache.room();
            let Some(checked) =
                flow.map(|flow| value.map(|value| flow.parameters.validate_in(&value, room)))
            else {
                continue;
            };
            let schema = self.parameters.get(to.0).cloned().flatten();
            let schema = schema.as_deref();
            let reported = self.check_members(node.as_ref(), span, schema);
            if let (None, Some(node)) = (&checked, &node) {
                self.check_parts(node, schema, &[]);
            }
            if let Some(Err(violation)) = checked {
                let (node, declared) = (node.as_ref(), schema);
                self.violation(
                    &violation,
                    WithNode { node, span, reported, declared, structural: &[] },
                );
            }
        }
    }
}

impl RawWith {
    pub(super) fn of(template: Template) -> Self {
        match template {
            Template::Constant(value) => Self::Literal(value),
            template => Self::Dynamic(template),
        }
    }
}

/// The `with` of a call to a Flow, as it is planned: the Flow's frame validates it.
pub(super) fn unchecked(with: RawWith) -> With {
    match with {
        RawWith::Literal(value) => With::Literal { value, prepared: Ok(Arc::new(())) },
        RawWith::Dynamic(template) => With::Dynamic(template),
    }
}

/// The names that a schema declares.
#[derive(Clone, Copy)]
pub(super) struct Declared<'s> {
    properties: Option<&'s Map<String, Json>>,
    required: &'s [Json],
    open: bool,
}

impl<'s> Declared<'s> {
    /// Of a parameter schema. It allows no other names unless it says so.
    fn of(schema: Option<&'s Json>) -> Self {
        let open = schema.and_then(|schema| schema.get("additionalProperties"));
        Self::with(schema, open.is_some_and(|open| *open != Json::Bool(false)))
    }

    /// Of a schema within one. It allows other names unless it says otherwise.
    pub(super) fn nested(schema: &'s Json) -> Self {
        Self::with(Some(schema), schema.get("additionalProperties") != Some(&Json::Bool(false)))
    }

    fn with(schema: Option<&'s Json>, open: bool) -> Self {
        let member = |name| schema.and_then(|schema| schema.get(name));
        Self {
            properties: member("properties").and_then(Json::as_object),
            required: member("required").and_then(Json::as_array).map_or(&[], Vec::as_slice),
            open: open || member("patternProperties").is_some(),
        }
    }

    fn properties(self) -> impl Iterator<Item = &'s str> + Clone {
        self.properties.into_iter().flat_map(|all| all.keys().map(String::as_str))
    }

    fn admits(&self, name: &str) -> bool {
        self.open || self.properties.is_some_and(|all| all.contains_key(name))
    }
}
