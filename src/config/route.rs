//! `routes:`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::answers::answers;
use super::classify::{CLASSIFY, classify};
use super::covering::CoverIndex;
use super::document::{CALL_KEYS, Documents, upstream_call};
use super::matching::{MATCH, covers, matching};
use super::read::Object;
use super::report::Report;
use super::shape::{Piece, Section, Shape, optional, or, required};
use super::shaping::{FIELDS, REWRITE, fields, rewrite};
use crate::language::expr::Program;
use crate::language::schema::Schema;
use crate::language::value::Value;
use crate::proxy::settings::{Buffer, Paths, Route};
use crate::source::{Diagnostic, Kind, Member, Node};

/// The keys of which a route has exactly one.
const TARGETS: [&str; 3] = ["upstream", "call", "flow"];

/// The keys that a route with `flow` cannot have: they belong into its Flow.
const STEP_ONLY: [&str; 8] =
    ["input", "output", "assign", "middleware", "catch", "steps", "flows", "parameters"];

pub(super) const ROUTE: Section = Section {
    name: "a route",
    doc: "Which requests, and what is done with them. Exactly one of `upstream`, `call` and `flow` says what.",
    fields: &[
        required("name", Shape::Text, "Its name: the label of its metrics, and of its Call Step."),
        or("match", Shape::Section(&MATCH), "{}", "Which requests it matches. Without it, all."),
        optional(
            "upstream",
            Shape::Text,
            "Requests go to this upstream. Short for a `call` of the http provider.",
        ),
        optional("call", Shape::Mwl(Piece::Call), "Requests are handed to this MWL call."),
        optional(
            "flow",
            Shape::Either(&[Shape::Text, Shape::Mwl(Piece::Flow)]),
            "Requests are handed to this whole Flow: a file beside this one, or inline.",
        ),
        optional(
            "idempotencyKey",
            Shape::Either(&[Shape::Boolean, Shape::Text]),
            "With `upstream`: gives requests without an `Idempotency-Key` one. `true`: one that names the operation, the same however often it is retried. A string, by expression: that key.",
        ),
        optional(
            "with",
            Shape::Object,
            "Arguments for the Flow's `parameters`. An expression may ask for what the request says.",
        ),
        optional(
            "rewrite",
            Shape::Section(&REWRITE),
            "Changes to a request's path and host before its Flow sees them.",
        ),
        optional(
            "requestHeaders",
            Shape::Section(&FIELDS),
            "Changes to a request's fields before its Flow sees them.",
        ),
        optional(
            "responseHeaders",
            Shape::Section(&FIELDS),
            "Changes to the fields of every response of the route, including the proxy's own.",
        ),
        or(
            "classify",
            Shape::List(&Shape::Section(&CLASSIFY)),
            "[]",
            "Tried before the built-in classification of responses.",
        ),
        optional("input", Shape::Any, "The Call Step's `input`."),
        optional("output", Shape::Any, "The Call Step's `output`."),
        optional("assign", Shape::Mwl(Piece::Assign), "The Call Step's `assign`."),
        optional(
            "middleware",
            Shape::Mwl(Piece::Middleware),
            "The Call Step's stack, outermost first.",
        ),
        optional("catch", Shape::Mwl(Piece::Catch), "The Call Step's `catch` clauses."),
        optional(
            "steps",
            Shape::Mwl(Piece::Steps),
            "More Steps of the route's Flow, to which `catch` and `next` can lead.",
        ),
        optional("flows", Shape::Mwl(Piece::Flows), "Named Flows that calls can run."),
        optional(
            "parameters",
            Shape::Mwl(Piece::Parameters),
            "The schema of the Flow's parameters.",
        ),
        optional("buffer", Shape::Section(&BUFFER), "How much of a body may be kept in memory."),
        or(
            "exposeFailures",
            Shape::Boolean,
            "false",
            "Whether the problem documents sent to clients contain the failure's whole chain.",
        ),
    ],
};

pub(super) const BUFFER: Section = Section {
    name: "`buffer`",
    doc: "How much of a body may be kept in memory.",
    fields: &[
        or("request", Shape::Size, r#""1MiB""#, "Of a request's body that an expression reads."),
        or("response", Shape::Size, r#""1MiB""#, "Of a response's body that an expression reads."),
        or(
            "replay",
            Shape::Size,
            r#""64KiB""#,
            "Of a request's body that another attempt may need.",
        ),
    ],
};

/// Everything that is needed to read the routes.
pub(super) struct Routes<'a> {
    pub(super) shared: Documents<'a>,
    /// How routes read paths.
    pub(super) paths: Paths,
    /// The names of the upstreams.
    pub(super) upstreams: &'a BTreeSet<Arc<str>>,
    /// Whether any listener asks for clients' certificates.
    pub(super) certificates: bool,
    /// Reads the file of a Flow, relative to the configuration's folder, and reports mistakes.
    pub(super) flow_file: &'a dyn Fn(&Path, &Node) -> Option<Node>,
}

impl Routes<'_> {
    pub(super) fn read(&self, root: &Object<'_>) -> Vec<Route> {
        let report = self.shared.report;
        let items = root.nonempty_list("routes", "one");
        let names = items.iter().filter_map(|item| {
            let name = item.get("name")?;
            Some((&**name.as_str()?, name.span))
        });
        report.unique("routes", names);
        let routes: Vec<Route> = items.iter().filter_map(|item| self.route(item)).collect();
        self.unreachable(&routes);
        routes
    }

    fn route(&self, node: &Node) -> Option<Route> {
        let report = self.shared.report;
        let object = Object::open(report, "routes", node, &ROUTE)?;
        let matches = matching(report, &object, self.paths);
        let classify = classify(report, &object);
        let prefix = matches.path_prefix.as_ref();
        let (rewrite_prefix, rewrite_host) = rewrite(report, &object, prefix, self.paths);
        let request_fields = fields(report, &object, "requestHeaders");
        let response_fields = fields(report, &object, "responseHeaders");
        let buffer = buffer(&object);
        let expose_failures = object.boolean("exposeFailures");
        let with = object.get("with").filter(|_| !object.map("with").is_empty());
        let name = object.get("name").filter(|_| object.text("name").is_some());
        if let Some(name) = name {
            route_name(report, name);
        }
        let upstream = object.get("upstream").and_then(|node| self.upstream(node));
        let document = self.document(&object, name?)?;
        let (document, with) = match with {
            Some(with) if holds_expression(with) => {
                (Documents::computed(&document, name?, with), Value::empty_object())
            }
            with => {
                let with =
                    with.map_or_else(Value::empty_object, |with| Value::from(with.to_json()));
                check_arguments(report, &document, &with, &object);
                (document, with)
            }
        };
        answers(report, &document);
        Some(Route {
            name: name?.as_str()?.clone(),
            span: name?.span,
            matches,
            upstream,
            rewrite_prefix,
            rewrite_host,
            request_fields,
            response_fields,
            classify,
            document,
            with,
            buffer,
            expose_failures,
        })
    }

    /// The route's Flow, whichever form the route has.
    fn document(&self, route: &Object<'_>, name: &Node) -> Option<Node> {
        let report = self.shared.report;
        let targets: Vec<&Member> = TARGETS.iter().filter_map(|key| route.member(key)).collect();
        let [target] = targets.as_slice() else {
            let (message, help) = if targets.is_empty() {
                ("the route has no target", "give it exactly one of `upstream`, `call` and `flow`")
            } else {
                ("the route has more than one target", "keep one of `upstream`, `call` and `flow`")
            };
            let mut diagnostic =
                Diagnostic::error("route-target", name.span, message).with_help(help);
            for target in targets {
                diagnostic = diagnostic.with_related(target.key_span, "a target");
            }
            report.add(diagnostic);
            return None;
        };
        match &*target.key {
            "flow" => {
                self.misplaced(route, target, STEP_ONLY.iter().chain(&CALL_KEYS));
                self.flow(&target.value)
            }
            "call" => {
                self.misplaced(route, target, CALL_KEYS.iter());
                Some(self.shared.short(route, name, target.value.clone()))
            }
            _ => {
                let call = upstream_call(target.value.span, &target.value, route);
                Some(self.shared.short(route, name, call))
            }
        }
    }

    /// Reports the keys of `route` that belong into its `target`.
    fn misplaced<'k>(
        &self,
        route: &Object<'_>,
        target: &Member,
        keys: impl Iterator<Item = &'k &'static str>,
    ) {
        let (says, named) = match &*target.key {
            "flow" => ("the Flow itself says it: move it there", "the route's Flow"),
            _ => ("the call's `with` says it", "the route's call"),
        };
        for member in keys.filter_map(|key| route.member(key)) {
            let message = format!("`{}` beside `{}`: {says}", member.key, target.key);
            let diagnostic = Diagnostic::error("conflicting-keys", member.key_span, message);
            self.shared.report.add(diagnostic.with_related(target.key_span, named));
        }
    }

    fn flow(&self, node: &Node) -> Option<Node> {
        match &node.kind {
            Kind::String(file) => {
                let flow = (self.flow_file)(Path::new(&**file), node)?;
                self.shared.file(flow, node.span)
            }
            Kind::Object(_) => Some(self.shared.inline(node.clone())),
            _ => {
                let wanted = "a file beside this one, or a Flow object";
                self.shared.report.wrong_type("flow", node, wanted);
                None
            }
        }
    }

    fn upstream(&self, node: &Node) -> Option<Arc<str>> {
        let report = self.shared.report;
        let name = report.text("upstream", node)?;
        if self.upstreams.contains(name) {
            return Some(Arc::clone(name));
        }
        let known = self.upstreams.iter().map(AsRef::as_ref);
        report.unknown_name("unknown-upstream", "upstream", (name, node.span), known);
        None
    }

    /// Warns about routes that can never be reached because an earlier one matches all their requests.
    fn unreachable(&self, routes: &[Route]) {
        let mut earlier = CoverIndex::default();
        for (position, route) in routes.iter().enumerate() {
            if route.matches.certificate.is_some() && !self.certificates {
                let message = format!(
                    "the route `{}` is never reached: it matches on the client's certificate, and no listener asks for one",
                    route.name
                );
                let diagnostic = Diagnostic::warning("unreachable-route", route.span, message);
                let help = "give a listener a `tls: { clientCa: … }`";
                self.shared.report.add(diagnostic.with_help(help));
            }
            let covering = earlier.first(&route.matches, |position| {
                routes.get(position).is_some_and(|wider| covers(&wider.matches, &route.matches))
            });
            earlier.add(&route.matches, position);
            let Some(covering) = covering.and_then(|position| routes.get(position)) else {
                continue;
            };
            let message = format!(
                "the route `{}` is never reached: `{}` takes its requests before it",
                route.name, covering.name
            );
            let diagnostic = Diagnostic::warning("unreachable-route", route.span, message);
            let diagnostic = diagnostic.with_related(covering.span, "takes them all");
            self.shared.report.add(diagnostic.with_help("put the narrower route first"));
        }
    }
}

fn route_name(report: &Report, name: &Node) {
    let text = name.as_str().map_or("", |text| text);
    if text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let message = format!("`{text}` is not a name: it is empty or holds white space");
        report.error("bad-name", name.span, message);
    } else if text.starts_with("{{") {
        report.error("bad-name", name.span, "a route's name cannot be an expression");
    }
}

fn buffer(route: &Object<'_>) -> Buffer {
    route.section("buffer", &BUFFER, |object| Buffer {
        request: object.size("request", ("0B", "1GiB")),
        response: object.size("response", ("0B", "1GiB")),
        replay: object.size("replay", ("0B", "1GiB")),
    })
}

/// Whether there is an expression in `node`.
fn holds_expression(node: &Node) -> bool {
    node.as_str().is_some_and(|text| Program::body(text).is_some())
        || node.children().any(holds_expression)
}

/// Checks a route's arguments against its Flow's parameters, as each request will.
fn check_arguments(report: &Report, document: &Node, with: &Value, route: &Object<'_>) {
    let schema = match document.get("parameters") {
        Some(parameters) => Schema::compile_in(&Value::from(parameters.to_json()), &report.room),
        None => Ok(Schema::nothing()),
    };
    // An invalid schema is reported by the language.
    let Ok(schema) = schema else { return };
    let Err(violation) = schema.validate_in(with, &report.room) else {
        return;
    };
    let span = route.get("with").map_or(route.node.span, |node| node.span);
    let message = format!("the arguments do not fit the Flow's parameters: {}", violation.message);
    let diagnostic = Diagnostic::error("bad-arguments", span, message);
    report.add(match document.get("parameters") {
        Some(parameters) => diagnostic.with_related(parameters.span, "the parameters"),
        None => diagnostic.with_help("declare them under `parameters`"),
    });
}
