//! The Flow object (MWL, "The Flow object"): its fields, the names of its subflows and Steps, and how the
//! Flows of the document call each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fields::Fields;
use super::middleware::Level;
use super::site::Site;
use super::template::is_expression;
use super::{Compiler, Edge, SCHEMA_URI, literal, part, suggestion};
use crate::language::plan::{FlowId, FlowPlan, StepId, StepPlan, leads_back};
use crate::language::schema::{Invalid, Schema};
use crate::source::{Diagnostic, Diagnostics, Node, Span};

/// How deep Flows may call each other. Each is a frame on the engine's stack.
const MAX_FLOW_DEPTH: usize = 32;

const FIELDS: [&str; 6] = ["comment", "entrypoint", "flows", "middleware", "parameters", "steps"];
const ROOT_FIELDS: [&str; 7] =
    ["$schema", "comment", "entrypoint", "flows", "middleware", "parameters", "steps"];

/// The Steps of a graph by name.
pub(super) type StepNames<'n> = BTreeMap<&'n str, StepId>;

/// Where in the document a call or a stack is written.
#[derive(Clone, Copy)]
pub(super) struct Position<'a> {
    pub(super) flow: FlowId,
    pub(super) scope: &'a FlowScope<'a>,
    /// The name of the Step, or of the Flow for its own stack. An inline Flow gets this name.
    pub(super) name: &'a str,
}

/// The Flow names that a call can see ("Flow-name scoping").
pub(super) struct FlowScope<'a> {
    outer: Option<&'a Self>,
    names: BTreeMap<Arc<str>, (FlowId, Span)>,
}

pub(super) enum Resolved {
    Found(FlowId),
    /// Carries the names that are in scope.
    Unknown(Vec<Arc<str>>),
}

impl FlowScope<'_> {
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |scope| scope.outer)
    }

    /// The nearest declaration of `name`.
    pub(super) fn resolve(&self, name: &str) -> Resolved {
        match self.chain().find_map(|scope| scope.names.get(name)) {
            Some((id, _)) => Resolved::Found(*id),
            None => Resolved::Unknown(
                self.chain().flat_map(|scope| scope.names.keys().cloned()).collect(),
            ),
        }
    }
}

impl Compiler<'_> {
    /// The whole document.
    pub(super) fn root(&mut self, node: &Node) {
        let id = self.reserve();
        let Some(fields) = self.fields(node, "the root Flow", &ROOT_FIELDS) else {
            return;
        };
        match fields.get("$schema") {
            None => {
                let message = "the root Flow needs `$schema`, which says what it is written in";
                let help = format!(r#"add "$schema": "{SCHEMA_URI}""#);
                self.error_with_help("missing-field", node.span, message, help);
            }
            Some(schema) if schema.as_str().is_some_and(|uri| uri.as_ref() == SCHEMA_URI) => {}
            Some(schema) => {
                let message = format!("`$schema` is {schema}, which is not read here");
                let help = format!(r#"write "{SCHEMA_URI}""#);
                self.error_with_help("unknown-schema", schema.span, message, help);
            }
        }
        self.flow(id, &fields, &"".into(), None, false);
    }

    /// A Flow that is written where it is called. It is named after its Step.
    pub(super) fn inline_flow(&mut self, node: &Node, at: Position<'_>) -> FlowId {
        let id = self.reserve();
        if let Some(fields) = self.fields(node, "an inline Flow", &FIELDS) {
            self.flow(id, &fields, &at.name.into(), Some(at.scope), true);
        }
        id
    }

    fn reserve(&mut self) -> FlowId {
        self.flows.push(None);
        self.parameters.push(None);
        FlowId(self.flows.len() - 1)
    }

    fn flow(
        &mut self,
        id: FlowId,
        fields: &Fields<'_>,
        name: &Arc<str>,
        outer: Option<&FlowScope<'_>>,
        inline: bool,
    ) {
        let scope = self.subflows(fields, outer);
        let parameters = self.parameter_schema(id, fields.get("parameters"));
        let at = Position { flow: id, scope: &scope, name };
        let stack = self.stack(fields.get("middleware"), at, Level::Flow, Site::flow());
        let graph = self.graph(fields, at);
        let plan = (|| {
            let (steps, entrypoint) = graph?;
            let (parameters, stack) = (parameters?, stack?);
            Some(FlowPlan {
                name: Arc::clone(name),
                inline,
                parameters,
                stack,
                leads_back: leads_back(&steps, entrypoint),
                steps: steps.into(),
                entrypoint,
            })
        })();
        if let Some(place) = self.flows.get_mut(id.0) {
            *place = plan;
        }
    }

    /// Declares the named subflows, then compiles them. So each of them sees all of them.
    fn subflows<'s>(
        &mut self,
        fields: &Fields<'_>,
        outer: Option<&'s FlowScope<'s>>,
    ) -> FlowScope<'s> {
        let mut scope = FlowScope { outer, names: BTreeMap::new() };
        let Some(flows) = fields.get("flows").and_then(|flows| self.open(flows, "`flows`")) else {
            return scope;
        };
        for member in flows.node.as_object().unwrap_or_default() {
            self.key(member, "a Flow's name");
            let shadowed = outer
                .into_iter()
                .flat_map(FlowScope::chain)
                .find_map(|scope| scope.names.get(&member.key));
            if let Some((_, first)) = shadowed {
                let message = format!("the Flow `{}` hides an outer Flow of that name", member.key);
                self.found.push(
                    Diagnostic::warning("shadowed-flow", member.key_span, message)
                        .with_related(*first, "hidden here"),
                );
            }
            let id = self.reserve();
            scope.names.insert(Arc::clone(&member.key), (id, member.key_span));
        }
        for member in flows.node.as_object().unwrap_or_default() {
            let Some((id, _)) = scope.names.get(&member.key).copied() else {
                continue;
            };
            if let Some(fields) = self.fields(&member.value, "a subflow", &FIELDS) {
                self.flow(id, &fields, &member.key, Some(&scope), false);
            }
        }
        scope
    }

    fn parameter_schema(&mut self, id: FlowId, node: Option<&Node>) -> Option<Schema> {
        let Some(node) = node else {
            return Some(Schema::nothing());
        };
        if self.expressions_within(node) {
            return None;
        }
        if let Some(place) = self.parameters.get_mut(id.0) {
            *place = Some(Arc::new(node.to_json()));
        }
        match Schema::compile_in(&literal(node), self.cache.room()) {
            Ok(schema) => Some(schema),
            Err(Invalid { message, pointer }) => {
                self.error("invalid-parameters", part(node, &pointer).span, message);
                None
            }
        }
    }

    /// Whether `node`, a part of a schema, holds an expression, which is reported.
    fn expressions_within(&mut self, node: &Node) -> bool {
        if is_expression(node) {
            let message =
                "a parameter schema holds no expressions: it is read before anything runs";
            self.error("expression-in-structure", node.span, message);
            return true;
        }
        node.children().fold(false, |found, child| self.expressions_within(child) | found)
    }

    fn graph(&mut self, fields: &Fields<'_>, at: Position<'_>) -> Option<(Vec<StepPlan>, StepId)> {
        let steps = self.required(fields, "steps");
        let entrypoint = self.required(fields, "entrypoint");
        let steps = self.open(steps?, "`steps`")?;
        let members = steps.node.as_object().unwrap_or_default();
        let numbered = members.iter().enumerate();
        let names: StepNames<'_> =
            numbered.map(|(at, member)| (member.key.as_ref(), StepId(at))).collect();
        let plans: Vec<_> = members
            .iter()
            .map(|member| {
                self.key(member, "a Step's name");
                self.step(member, Position { name: &member.key, ..at }, &names)
            })
            .collect();
        let entrypoint = self.reference(entrypoint?, "`entrypoint`", &names)?;
        let plans = plans.into_iter().collect::<Option<Vec<_>>>()?;
        let reached = self.advise_unreached(&plans, entrypoint, members);
        self.advise_endless(&plans, &reached, members);
        self.advise_empty_raises(&plans, &reached);
        Some((plans, entrypoint))
    }

    /// A reference to a Step of the same graph ("Step-name scoping").
    pub(super) fn reference(
        &mut self,
        node: &Node,
        what: &str,
        names: &StepNames<'_>,
    ) -> Option<StepId> {
        let name = self.name(node, what)?;
        if let Some(step) = names.get(name.as_ref()) {
            return Some(*step);
        }
        let message = format!("{what} names no Step of this Flow: `{name}`");
        let help = if names.is_empty() {
            r#"the Flow has no Steps; write one, such as { "action": "Return" }"#.to_owned()
        } else {
            suggestion(name, names.keys().copied())
        };
        self.error_with_help("unknown-step", node.span, message, help);
        None
    }

    pub(super) fn edge(&mut self, from: FlowId, to: FlowId, span: Span) {
        self.edges.push(Edge { from, to, span });
    }

    /// Reports each call that closes a cycle: no Flow may reach itself through calls ("Flow-name scoping").
    pub(super) fn check_cycles(&mut self) {
        let mut calls: Vec<Vec<&Edge>> = vec![Vec::new(); self.flows.len()];
        for edge in &self.edges {
            if let Some(from) = calls.get_mut(edge.from.0) {
                from.push(edge);
            }
        }
        let heights = vec![None; calls.len()];
        let mut walk = CallWalk { calls: &calls, heights, found: Diagnostics::default() };
        for start in 0..calls.len() {
            walk.from(FlowId(start));
        }
        self.found.append(walk.found);
    }
}

/// Walks the calls between Flows, depth first and without recursion.
struct CallWalk<'a> {
    /// The calls, by the Flow that makes them.
    calls: &'a [Vec<&'a Edge>],
    /// For each Flow how many Flows deep its calls go, itself included; `None` before it was walked.
    heights: Vec<Option<usize>>,
    found: Diagnostics,
}

impl CallWalk<'_> {
    fn from(&mut self, start: FlowId) {
        // The Flows on the way, each with its remaining calls and the call that led to it.
        let mut way: Vec<(FlowId, std::slice::Iter<'_, &Edge>, Option<Span>)> = Vec::new();
        let mut next = Some((start, None));
        loop {
            if let Some((flow, by)) = next.take()
                && self.height(flow).is_none()
                && let Some(calls) = self.calls.get(flow.0)
            {
                way.push((flow, calls.iter(), by));
            }
            let Some((flow, left, _)) = way.last_mut() else {
                return;
            };
            let Some(edge) = left.next() else {
                self.leave(*flow);
                way.pop();
                continue;
            };
            // A call back to a Flow on the way down closes a cycle.
            match way.iter().position(|(flow, ..)| *flow == edge.to) {
                None => next = Some((edge.to, Some(edge.span))),
                Some(at) => {
                    let through = way.iter().skip(at + 1).filter_map(|(.., by)| *by);
                    self.found.push(cycle(edge, through));
                }
            }
        }
    }

    fn height(&self, flow: FlowId) -> Option<usize> {
        self.heights.get(flow.0).copied().flatten()
    }

    /// Finishes `flow`: everything that it calls has been walked.
    fn leave(&mut self, flow: FlowId) {
        let calls = self.calls.get(flow.0).map_or(&[][..], Vec::as_slice);
        let deepest = calls.iter().max_by_key(|edge| self.height(edge.to));
        let below = deepest.and_then(|edge| self.height(edge.to)).unwrap_or_default();
        // Reported once, at the call that is one level too deep.
        if let Some(edge) = deepest.filter(|_| below == MAX_FLOW_DEPTH) {
            let message =
                format!("Flows call Flows {} deep; at most {MAX_FLOW_DEPTH} are run", below + 1);
            self.found.push(Diagnostic::error("flows-too-deep", edge.span, message));
        }
        if let Some(height) = self.heights.get_mut(flow.0) {
            *height = Some(below + 1);
        }
    }
}

fn cycle(edge: &Edge, way: impl Iterator<Item = Span>) -> Diagnostic {
    let message = "this call closes a cycle: a Flow would run within itself";
    let help = "repeat by routing `next` back within one Flow, or with the Loop middleware";
    let diagnostic = Diagnostic::error("flow-cycle", edge.span, message).with_help(help);
    way.fold(diagnostic, |diagnostic, span| diagnostic.with_related(span, "by way of this call"))
}
