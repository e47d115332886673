//! Turns each form of a route into the one MWL document that the engine runs. Pieces of the file are
//! moved unchanged, with their places, so that diagnostics of the language point into the file.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::read::Object;
use super::report::Report;
use super::stacks::{Part, Stacks};
use crate::language::definition::SCHEMA_URI;
use crate::source::{Diagnostic, Kind, Member, Node, SourceId, Span};

/// The http call provider.
const HTTP: &str = "mwl:provider.call/mwl-proxy/http/v1";

/// The keys of a route that belong to its Call Step.
const STEP_KEYS: [&str; 5] = ["input", "output", "assign", "middleware", "catch"];

/// The keys of a route with `upstream` that are parameters of its call.
pub(super) const CALL_KEYS: [&str; 1] = ["idempotencyKey"];

/// The keys of a route that belong to its Flow.
const FLOW_KEYS: [&str; 2] = ["parameters", "flows"];

/// Shared by every route of a configuration.
pub(super) struct Documents<'a> {
    pub(super) report: &'a Report,
    pub(super) stacks: &'a Stacks<'a>,
    /// The Flow-level middleware around every route, expanded.
    pub(super) middleware: &'a [Node],
    /// The Flows' files that a route has named already.
    pub(super) flows: RefCell<BTreeSet<SourceId>>,
}

impl Documents<'_> {
    /// The Flow of a short form: one Call Step named after the route, with the call `call`, followed by
    /// the route's own `steps`.
    pub(super) fn short(&self, route: &Object<'_>, name: &Node, mut call: Node) -> Node {
        let step_name = name.as_str().cloned().unwrap_or_default();
        let at = name.span;
        let own = route.map("steps");
        if let Some(taken) = own.iter().find(|step| step.key == step_name) {
            let message = format!(
                "the Step `{step_name}` has the route's name, which is that of its own Call Step"
            );
            let diagnostic = Diagnostic::error("duplicate-name", taken.key_span, message);
            self.report.add(diagnostic.with_help("give the Step another name"));
        }
        let end = free_name("return", |name| {
            *step_name == *name || own.iter().any(|step| &*step.key == name)
        });
        self.stacks.expand(&mut call, Part::Call);
        let mut step = vec![member(at, "action", text(at, "Call")), member(at, "call", call)];
        step.extend(STEP_KEYS.iter().filter_map(|key| route.member(key).cloned()));
        step.push(member(at, "next", text(at, &end)));
        let ending = object(at, vec![member(at, "action", text(at, "Return"))]);
        let mut steps = vec![
            Member { key: step_name, key_span: at, value: object(at, step) },
            member(at, &end, ending),
        ];
        steps.extend(own.iter().cloned());
        self.root(route, name, steps)
    }

    /// The root Flow of these Steps. It begins with the Step that has the route's name.
    fn root(&self, route: &Object<'_>, name: &Node, steps: Vec<Member>) -> Node {
        let at = name.span;
        let mut flow = vec![
            member(at, "$schema", text(at, SCHEMA_URI)),
            member(at, "entrypoint", name.clone()),
        ];
        flow.extend(FLOW_KEYS.iter().filter_map(|key| route.member(key).cloned()));
        let steps_at = route.get("steps").map_or(at, |node| node.span);
        flow.push(member(at, "steps", object(steps_at, steps)));
        let mut flow = object(route.node.span, flow);
        self.stacks.expand(&mut flow, Part::Flow);
        self.wrap(&mut flow);
        flow
    }

    /// A Flow that calls `flow` with the arguments `with`, which ask for what a request says. It has one Step, named after
    /// the route.
    pub(super) fn computed(flow: &Node, name: &Node, with: &Node) -> Node {
        let at = name.span;
        let step_name = name.as_str().cloned().unwrap_or_default();
        let end = free_name("return", |name| *step_name == *name);
        let inner = flow.as_object().unwrap_or_default().iter();
        let inner = inner.filter(|member| &*member.key != "$schema").cloned().collect();
        let call =
            vec![member(at, "flow", object(flow.span, inner)), member(at, "with", with.clone())];
        let step = vec![
            member(at, "action", text(at, "Call")),
            member(at, "call", object(at, call)),
            member(at, "next", text(at, &end)),
        ];
        let ending = object(at, vec![member(at, "action", text(at, "Return"))]);
        let steps = vec![
            Member { key: step_name, key_span: at, value: object(at, step) },
            member(at, &end, ending),
        ];
        let root = vec![
            member(at, "$schema", text(at, SCHEMA_URI)),
            member(at, "entrypoint", name.clone()),
            member(at, "steps", object(at, steps)),
        ];
        object(flow.span, root)
    }

    /// The Flow of the long form, written in the route. It lacks the `$schema` of a root Flow, which is
    /// added here.
    pub(super) fn inline(&self, mut flow: Node) -> Node {
        self.stacks.expand(&mut flow, Part::Flow);
        let at = flow.span;
        if let Kind::Object(members) = &mut flow.kind
            && !members.iter().any(|member| &*member.key == "$schema")
        {
            let schema = member(at, "$schema", text(at, SCHEMA_URI));
            *members = std::iter::once(schema).chain(members.iter().cloned()).collect();
        }
        self.wrap(&mut flow);
        flow
    }

    /// The Flow of the long form, in a file of its own: plain MWL, in which nothing is replaced.
    pub(super) fn file(&self, mut flow: Node, named: Span) -> Option<Node> {
        let first = self.flows.borrow_mut().insert(flow.span.source);
        if !first && !self.stacks.has_room_for(std::slice::from_ref(&flow), named) {
            return None;
        }
        self.wrap(&mut flow);
        Some(flow)
    }

    /// Puts the configuration's stack around the Flow's own.
    fn wrap(&self, flow: &mut Node) {
        if self.middleware.is_empty() {
            return;
        }
        let at = flow.span;
        let Kind::Object(members) = &mut flow.kind else {
            return;
        };
        if !self.stacks.has_room_for(self.middleware, at) {
            return;
        }
        let outer = self.middleware.iter().cloned();
        let Some(own) = members.iter().position(|member| &*member.key == "middleware") else {
            let all = Node { span: at, kind: Kind::Array(outer.collect()) };
            let all = member(at, "middleware", all);
            *members = members.iter().cloned().chain([all]).collect();
            return;
        };
        let own = Arc::make_mut(members).get_mut(own).map(|own| &mut own.value.kind);
        // If it is not a list, the language reports the error.
        if let Some(Kind::Array(entries)) = own {
            *entries = outer.chain(entries.iter().cloned()).collect();
        }
    }
}

/// The call of a route that names an upstream, with the keys of the route that are the call's parameters.
pub(super) fn upstream_call(at: Span, upstream: &Node, route: &Object<'_>) -> Node {
    let mut with = vec![member(at, "upstream", upstream.clone())];
    with.extend(CALL_KEYS.iter().filter_map(|key| route.member(key).cloned()));
    let with = object(at, with);
    let call = vec![member(at, "provider", text(at, HTTP)), member(at, "with", with)];
    object(at, call)
}

/// `base`, followed by the first number that makes the name free if it is `taken`.
fn free_name(base: &str, taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2_u32..).map(|n| format!("{base}-{n}"));
    let mut names = std::iter::once(base.to_owned()).chain(numbered);
    names.find(|name| !taken(name)).unwrap_or_default()
}

fn member(at: Span, key: &str, value: Node) -> Member {
    Member { key: key.into(), key_span: at, value }
}

fn text(at: Span, text: &str) -> Node {
    Node { span: at, kind: Kind::String(Arc::from(text)) }
}

fn object(at: Span, members: Vec<Member>) -> Node {
    Node { span: at, kind: Kind::Object(members.into()) }
}
