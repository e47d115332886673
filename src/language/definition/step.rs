//! Steps: the seven actions and what they share (MWL, "Step actions").

use super::fields::Fields;
use super::flow::{Position, StepNames};
use super::middleware::Level;
use super::site::Site;
use super::template::is_expression;
use super::{Compiler, Strictness, suggestion};
use crate::language::plan::{
    Action, CallPlan, CallStep, CatchClause, GatherStep, MatchStep, Pause, SleepStep, StepId,
    StepPlan, Tail, Template, When,
};
use crate::language::temporal::{self, meant_duration};
use crate::source::{Diagnostic, Member, Node, Span, with_article};

/// How many dispatches of a `Gather` run at once on a route, if it states no `concurrency` and computes its list.
const DEFAULT_CONCURRENCY: usize = 64;

/// Each action, its name in a message, and its fields.
const ACTIONS: [(&str, &str, &[&str]); 7] = [
    (
        "Call",
        "a `Call` Step",
        &["action", "call", "input", "output", "assign", "middleware", "catch", "next", "comment"],
    ),
    (
        "Gather",
        "a `Gather` Step",
        &[
            "action",
            "over",
            "call",
            "calls",
            "completion",
            "concurrency",
            "output",
            "assign",
            "catch",
            "next",
            "comment",
        ],
    ),
    ("Match", "a `Match` Step", &["action", "input", "cases", "default", "comment"]),
    ("Pass", "a `Pass` Step", &["action", "output", "assign", "next", "comment"]),
    ("Sleep", "a `Sleep` Step", &["action", "for", "until", "next", "comment"]),
    ("Return", "a `Return` Step", &["action", "value", "comment"]),
    ("Raise", "a `Raise` Step", &["action", "result", "comment"]),
];

/// The graph of a Step: its position, and the names that references resolve against.
#[derive(Clone, Copy)]
struct Graph<'a> {
    at: Position<'a>,
    names: &'a StepNames<'a>,
}

impl Compiler<'_> {
    /// One entry of a `steps` map.
    pub(super) fn step(
        &mut self,
        member: &Member,
        at: Position<'_>,
        names: &StepNames<'_>,
    ) -> Option<StepPlan> {
        let opened = self.open(&member.value, "a Step")?;
        let action = self.required(&opened, "action")?;
        let name = self.name(action, "`action`")?;
        let Some((action, what, known)) = ACTIONS.iter().find(|(known, ..)| **known == **name)
        else {
            let message = format!("there is no action `{name}`");
            let help = suggestion(name, ACTIONS.iter().map(|(name, ..)| *name));
            self.error_with_help("unknown-action", action.span, message, help);
            return None;
        };
        let fields = self.fields(&member.value, what, known)?;
        if fields.get("catch").is_some() {
            self.written.insert(member.key_span, member.value.clone());
        }
        let graph = Graph { at, names };
        let action = match *action {
            "Call" => self.call_step(&fields, graph).map(|step| Action::Call(Box::new(step))),
            "Gather" => self.gather(&fields, graph).map(|step| Action::Gather(Box::new(step))),
            "Match" => self.match_step(&fields, graph).map(|step| Action::Match(Box::new(step))),
            "Pass" => self.tail(&fields, Site::tail(), graph).map(Action::Pass),
            "Sleep" => self.sleep(&fields, graph).map(Action::Sleep),
            "Return" => self.optional(fields.get("value"), Site::tail()).map(Action::Return),
            _ => self.raise(&fields),
        };
        Some(StepPlan {
            name: std::sync::Arc::clone(&member.key),
            span: member.key_span,
            action: action?,
        })
    }

    /// `output`, `assign` and `next` of a Step or of a clause.
    fn tail(&mut self, fields: &Fields<'_>, site: Site<'_>, graph: Graph<'_>) -> Option<Tail> {
        let output = self.optional(fields.get("output"), site);
        let assign = self.assign(fields.get("assign"), site);
        let next = self.next(fields, graph);
        Some(Tail { output: output?, assign: assign?, next: next? })
    }

    fn next(&mut self, fields: &Fields<'_>, graph: Graph<'_>) -> Option<StepId> {
        let Some(next) = fields.get("next") else {
            let message = format!("{} has no way out: `next` is missing", fields.what);
            let help = "name its successor, or end the Flow with a `Return` or `Raise` Step";
            self.error_with_help("no-exit-path", fields.node.span, message, help);
            return None;
        };
        self.reference(next, "`next`", graph.names)
    }

    fn call_step(&mut self, fields: &Fields<'_>, graph: Graph<'_>) -> Option<CallStep> {
        let input = self.optional(fields.get("input"), Site::step());
        let stack = self.stack(fields.get("middleware"), graph.at, Level::Step, Site::step());
        let call = self
            .required(fields, "call")
            .and_then(|call| self.call(call, graph.at, Site::step(), false));
        if let (Some(node), Some(call)) = (fields.get("call"), &call) {
            self.advise_call(call, node, fields.get("input"));
        }
        let tail = self.tail(fields, Site::after_call(), graph);
        let catch = self.catch(fields.get("catch"), Site::after_call(), graph);
        Some(CallStep { input: input?, stack: stack?, call: call?, tail: tail?, catch: catch? })
    }

    fn catch(
        &mut self,
        node: Option<&Node>,
        site: Site<'_>,
        graph: Graph<'_>,
    ) -> Option<Box<[CatchClause]>> {
        let Some(node) = node else {
            return Some(Box::default());
        };
        let items = self.items(node, "`catch`");
        let clauses: Vec<_> = items.iter().map(|item| self.clause(item, site, graph)).collect();
        self.advise_unreachable(items, &clauses);
        let clauses: Option<Box<[_]>> = clauses.into_iter().collect();
        clauses.filter(|_| node.as_array().is_some())
    }

    fn clause(&mut self, node: &Node, site: Site<'_>, graph: Graph<'_>) -> Option<CatchClause> {
        let known = ["match", "output", "assign", "next", "comment"];
        let fields = self.fields(node, "a `catch` clause", &known)?;
        let matcher = self.required(&fields, "match").and_then(|matcher| self.matcher(matcher));
        let tail = self.tail(&fields, site, graph);
        Some(CatchClause { matcher: matcher?, tail: tail? })
    }

    /// Warns of a clause that an earlier one always precedes ("`catch` clauses").
    fn advise_unreachable(&mut self, nodes: &[Node], clauses: &[Option<CatchClause>]) {
        let written: Vec<_> = nodes
            .iter()
            .zip(clauses)
            .filter_map(|(node, clause)| Some((node, clause.as_ref()?)))
            .collect();
        for (index, (node, clause)) in written.iter().enumerate() {
            let earlier = written.iter().take(index);
            let Some((first, _)) =
                earlier.into_iter().find(|(_, earlier)| earlier.matcher.covers(&clause.matcher))
            else {
                continue;
            };
            let message =
                "this clause is never reached: an earlier one matches all that it matches";
            let diagnostic = Diagnostic::warning("unreachable-catch", node.span, message);
            self.found.push(diagnostic.with_related(first.span, "matches first"));
        }
    }

    fn gather(&mut self, fields: &Fields<'_>, graph: Graph<'_>) -> Option<GatherStep> {
        let calls = self.dispatches(fields, graph.at);
        let over = self.optional(fields.get("over"), Site::step());
        if let Some(node) = fields.get("over") {
            self.typed(node, "over", "an array or an expression", |node| node.as_array().is_some());
        }
        let concurrency = match fields.get("concurrency") {
            None if matches!(over, Some(Some(Template::Expression(_)))) => {
                Some(self.unstated_concurrency(fields.get("over")?.span))
            }
            written => self.concurrency(written),
        };
        let (successes, wait) = self.completion(fields);
        let tail = self.tail(fields, Site::after_gather(), graph);
        let catch = self.catch(fields.get("catch"), Site::after_gather(), graph);
        Some(GatherStep {
            over: over?,
            calls: calls?.into(),
            concurrency: concurrency?,
            successes: successes?,
            wait: wait?,
            tail: tail?,
            catch: catch?,
        })
    }

    /// The calls, which are written in exactly one of two forms.
    fn dispatches(&mut self, fields: &Fields<'_>, at: Position<'_>) -> Option<Vec<CallPlan>> {
        let (over, call, calls) = (fields.get("over"), fields.get("call"), fields.get("calls"));
        let mut compiled = Vec::new();
        if let Some(call) = call {
            compiled.push(self.advised_call(call, at, Site::step(), true));
        }
        if let Some(calls) = calls {
            let items = self.items(calls, "`calls`");
            compiled
                .extend(items.iter().map(|item| self.advised_call(item, at, Site::step(), true)));
            if calls.as_array().is_some_and(<[_]>::is_empty) {
                let message = "`calls` is empty: the Gather would dispatch nothing";
                self.error("empty-calls", calls.span, message);
            }
        }
        if over.is_some() != call.is_some() || call.is_some() == calls.is_some() {
            let message = "a Gather has exactly one of its forms: `over` with `call`, or `calls`";
            let written =
                ["over", "call", "calls"].into_iter().filter(|name| fields.get(name).is_some());
            let help = format!("it has {}", super::list(written));
            self.error_with_help("gather-form", fields.node.span, message, help);
            return None;
        }
        compiled.into_iter().collect::<Option<Vec<_>>>().filter(|calls| !calls.is_empty())
    }

    /// The concurrency of a Gather over a computed list that states none. By the specification it is unlimited, and
    /// so it is where a definition is run alone. A route is open to clients, who might choose the list's length.
    fn unstated_concurrency(&mut self, over: Span) -> Option<usize> {
        let message = format!(
            "this Gather's length is computed, and it states no `concurrency`: a route runs {DEFAULT_CONCURRENCY} dispatches at once"
        );
        let help = "write a `concurrency`; `null` is for no limit";
        self.found.push(Diagnostic::warning("unbounded-gather", over, message).with_help(help));
        (self.strictness == Strictness::Load).then_some(DEFAULT_CONCURRENCY)
    }

    fn concurrency(&mut self, node: Option<&Node>) -> Option<Option<usize>> {
        let Some(node) = node.filter(|node| !node.is_null()) else {
            return Some(None);
        };
        let whole = node.as_number().filter(|number| *number >= 1.0 && number.fract() == 0.0);
        let Some(whole) = whole else {
            let message = format!(
                "`concurrency` must be a whole number from 1, or null for no limit; this is {node}"
            );
            self.error("invalid-concurrency", node.span, message);
            return None;
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and positive; a cast saturates"
        )]
        Some(Some(whole as usize))
    }

    fn completion(&mut self, fields: &Fields<'_>) -> (Option<Option<Template>>, Option<bool>) {
        let Some(node) = fields.get("completion") else {
            return (Some(None), Some(true));
        };
        let Some(completion) = self.fields(node, "`completion`", &["successes", "wait"]) else {
            return (None, None);
        };
        let successes = self.required(&completion, "successes").and_then(|successes| {
            self.typed(successes, "successes", "a whole number or an expression", |node| {
                node.as_number().is_some_and(|number| number.fract() == 0.0)
            });
            self.advise_successes(successes, fields.get("calls"));
            self.template(successes, Site::step()).map(Some)
        });
        let wait = completion.get("wait").map_or(Some(true), |wait| self.flag(wait, "`wait`"));
        (successes, wait)
    }

    fn match_step(&mut self, fields: &Fields<'_>, graph: Graph<'_>) -> Option<MatchStep> {
        let input = self.optional(fields.get("input"), Site::step());
        let cases =
            self.required(fields, "cases").map_or(&[][..], |cases| self.items(cases, "`cases`"));
        let cases: Vec<_> = cases.iter().map(|case| self.case(case, graph)).collect();
        let default = self.required(fields, "default").and_then(|default| {
            let clause = self.fields(
                default,
                "the `default` clause",
                &["output", "assign", "next", "comment"],
            )?;
            self.tail(&clause, Site::clause(), graph)
        });
        let cases = cases.into_iter().collect::<Option<Vec<_>>>();
        Some(MatchStep { input: input?, cases: cases?.into(), default: default? })
    }

    fn case(&mut self, node: &Node, graph: Graph<'_>) -> Option<(When, Tail)> {
        let known = ["when", "output", "assign", "next", "comment"];
        let clause = self.fields(node, "a clause of a `Match`", &known)?;
        let when = self.required(&clause, "when").and_then(|when| self.when(when, Site::clause()));
        let tail = self.tail(&clause, Site::clause(), graph);
        Some((when?, tail?))
    }

    fn sleep(&mut self, fields: &Fields<'_>, graph: Graph<'_>) -> Option<SleepStep> {
        let next = self.next(fields, graph);
        let pause = match (fields.get("for"), fields.get("until")) {
            (Some(node), None) => {
                self.temporal(node, "for", "an ISO 8601 duration such as \"PT30S\"", |text| {
                    temporal::Span::parse(text).is_some()
                });
                self.template(node, Site::step()).map(Pause::For)
            }
            (None, Some(node)) => {
                self.temporal(
                    node,
                    "until",
                    "an RFC 3339 timestamp such as \"2030-01-15T09:30:00Z\"",
                    |text| temporal::Timestamp::parse(text).is_some(),
                );
                self.template(node, Site::step()).map(Pause::Until)
            }
            (both, _) => {
                let seen = if both.is_some() { "both" } else { "neither" };
                let message =
                    format!("a Sleep has exactly one of `for` and `until`; this has {seen}");
                self.error("sleep-form", fields.node.span, message);
                None
            }
        };
        Some(SleepStep { pause: pause?, next: next? })
    }

    fn temporal(&mut self, node: &Node, name: &str, wanted: &str, fits: fn(&str) -> bool) {
        if is_expression(node) || node.as_str().is_some_and(|text| fits(text)) {
            self.advise_month(node);
            return;
        }
        let seen = match node.as_str() {
            Some(text) => format!("`{text}`"),
            None => with_article(node.type_name()),
        };
        let message = format!("`{name}` must be {wanted}; this is {seen}");
        let meant = node.as_str().filter(|_| name == "for").and_then(|text| meant_duration(text));
        let help = meant.map(|meant| format!("write `{meant}`"));
        let error = Diagnostic::error("invalid-time", node.span, message);
        self.load_error(Diagnostic { help, ..error });
    }

    fn raise(&mut self, fields: &Fields<'_>) -> Option<Action> {
        let Some(node) = fields.get("result") else {
            return Some(Action::Raise(None));
        };
        let known = ["type", "code", "message", "details", "retryable", "previous"];
        let result = self.fields(node, "a `Raise`'s `result`", &known)?;
        let code = self.required(&result, "code");
        self.advise_minted(code);
        let envelope = self.envelope(&result, Site::tail())?;
        code.map(|_| Action::Raise(Some(envelope)))
    }
}
