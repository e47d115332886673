//! `with`: what a target or a phase is given, held to what it takes before anything runs.
//!
//! A `with` without expressions is validated and prepared here, once; of one with expressions the names
//! are held to the schema, which is all that can be said before there are values.

use std::sync::Arc;

use serde_json::Value as Json;

use super::site::Site;
use super::{Arguments, Compiler, part, suggestion};
use crate::language::outcome::Failure;
use crate::language::plan::{FlowId, Template, With};
use crate::language::provider::{CallProvider, Prepared};
use crate::language::schema::{Schema, Violation};
use crate::language::value::Value;
use crate::source::{Diagnostic, Member, Node, Span};

/// Where a `with` stands, or, where there is none, what it would belong to.
#[derive(Clone, Copy)]
pub(super) struct Place<'n> {
    pub(super) node: Option<&'n Node>,
    pub(super) span: Span,
    /// Whether its names were complained of already.
    pub(super) told: bool,
}

/// A `with` as written.
pub(super) enum Written {
    Literal(Value),
    Dynamic(Template),
}

impl Compiler<'_> {
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
        self.typed(node, name, "an object or an expression", |node| node.as_object().is_some());
        self.template(node, site).map(Written::of)
    }

    /// The `with` of a call to a provider.
    pub(super) fn call_with(
        &mut self,
        with: Written,
        node: Option<&Node>,
        span: Span,
        provider: &Arc<dyn CallProvider>,
    ) -> With {
        let contract = provider.contract();
        let parameters = contract.document.get("parameters");
        let told = self.check_members(node, span, parameters);
        let value = match with {
            Written::Dynamic(template) => {
                if let Some(node) = node {
                    self.check_parts(node, parameters, &[]);
                }
                return With::Dynamic(template);
            }
            Written::Literal(value) => value,
        };
        let place = Place { node, span, told };
        let schema = contract.parameters();
        let prepared = self.prepared(&value, schema, || provider.prepare(&value), place);
        With::Literal { value, prepared }
    }

    /// Validates and prepares a literal `with`; at load, a failure is an error in its place.
    pub(super) fn prepared(
        &mut self,
        value: &Value,
        schema: &Schema,
        prepare: impl FnOnce() -> Result<Prepared, Failure>,
        place: Place<'_>,
    ) -> Result<Prepared, Arc<Failure>> {
        if let Err(violation) = schema.validate(value) {
            self.violation(&violation, place);
            return Err(Arc::new(violation.into()));
        }
        prepare().map_err(|failure| {
            if !place.told {
                let message = failure.message.as_deref().unwrap_or("the provider refuses it");
                self.load_error(Diagnostic::error("invalid-with", place.span, message));
            }
            Arc::new(failure)
        })
    }

    fn violation(&mut self, violation: &Violation, place: Place<'_>) {
        let Place { node, span, told } = place;
        let span = node.map_or(span, |node| part(node, &violation.instance_path).span);
        if !told {
            self.load_error(Diagnostic::error("invalid-with", span, &*violation.message));
        }
    }

    /// Holds the names of a `with` to the schema that declares them: what a schema can say of them before
    /// any expression has a value. Whether something was said.
    pub(super) fn check_members(
        &mut self,
        node: Option<&Node>,
        place: Span,
        schema: Option<&Json>,
    ) -> bool {
        match node.map_or(Some(&[][..]), Node::as_object) {
            Some(members) => self.check_names(members, place, &Declared::of(schema)),
            // An expression, or a literal of the wrong type, which was said where it was read.
            None => true,
        }
    }

    /// Holds the names of an object at `place` to those that are declared. Whether something was said.
    pub(super) fn check_names(
        &mut self,
        members: &[Member],
        place: Span,
        names: &Declared<'_>,
    ) -> bool {
        let before = self.found.0.len();
        for member in members.iter().filter(|member| !names.admits(&member.key)) {
            let message = format!("`{}` is not a parameter", member.key);
            let help = if names.properties.is_empty() {
                "it takes no arguments; remove it".to_owned()
            } else {
                suggestion(&member.key, names.properties.iter().copied())
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

    /// The `with` of a call to a Flow: checked when every Flow is known.
    pub(super) fn flow_with(
        &mut self,
        with: Written,
        node: Option<&Node>,
        span: Span,
        to: FlowId,
    ) -> With {
        let value = match &with {
            Written::Literal(value) => Some(value.clone()),
            Written::Dynamic(_) => None,
        };
        self.arguments.push(Arguments { to, value, node: node.cloned(), span });
        unchecked(with)
    }

    /// Holds what calls of Flows pass to what the Flows take.
    pub(super) fn check_arguments(&mut self) {
        for Arguments { to, value, node, span } in std::mem::take(&mut self.arguments) {
            let flow = self.flows.get(to.0).and_then(Option::as_ref);
            let Some(checked) =
                flow.map(|flow| value.map(|value| flow.parameters.validate(&value)))
            else {
                continue;
            };
            let schema = self.parameters.get(to.0).cloned().flatten();
            let told = self.check_members(node.as_ref(), span, schema.as_ref());
            if let (None, Some(node)) = (&checked, &node) {
                self.check_parts(node, schema.as_ref(), &[]);
            }
            if let Some(Err(violation)) = checked {
                self.violation(&violation, Place { node: node.as_ref(), span, told });
            }
        }
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
pub(super) fn unchecked(with: Written) -> With {
    match with {
        Written::Literal(value) => With::Literal { value, prepared: Ok(Arc::new(())) },
        Written::Dynamic(template) => With::Dynamic(template),
    }
}

/// The names that a schema declares.
pub(super) struct Declared<'s> {
    properties: Vec<&'s str>,
    required: Vec<&'s str>,
    open: bool,
}

impl<'s> Declared<'s> {
    /// Of a parameter schema, which is closed where it doesn't say otherwise.
    fn of(schema: Option<&'s Json>) -> Self {
        let open = schema.and_then(|schema| schema.get("additionalProperties"));
        Self::with(schema, open.is_some_and(|open| *open != Json::Bool(false)))
    }

    /// Of a schema within one, which is open where it doesn't say otherwise.
    pub(super) fn nested(schema: &'s Json) -> Self {
        Self::with(Some(schema), schema.get("additionalProperties") != Some(&Json::Bool(false)))
    }

    fn with(schema: Option<&'s Json>, open: bool) -> Self {
        let member = |name| schema.and_then(|schema| schema.get(name));
        let properties = member("properties").and_then(Json::as_object);
        let required = member("required").and_then(Json::as_array);
        Self {
            properties: properties
                .into_iter()
                .flat_map(|all| all.keys().map(String::as_str))
                .collect(),
            required: required.into_iter().flatten().filter_map(Json::as_str).collect(),
            open: open || member("patternProperties").is_some(),
        }
    }

    fn admits(&self, name: &str) -> bool {
        self.open || self.properties.contains(&name)
    }
}
