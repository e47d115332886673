//! What `NoETL`'s rules do: `retry`, `fail`, `continue`, `jump`, `break`.

use std::collections::BTreeSet;

use super::codes;
use super::form::{
    At, Backoff, Catch, Layer, Notes, Policy, Retry, Retryable, Route, Rule, Status, Step,
};
use super::noetl::Target;
use super::noetl_when::{Holds, Test, parse};
use super::read::{Fields, Reading, short};
use super::yaml::{Entry, Tree};
use crate::language::temporal::Span as Time;
use crate::source::Node;

const SECOND: Time = Time::from_nanos(1_000_000_000);

/// The rules of a task, in their order.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Ruled>,
    /// Whether the policy is there: then a failure for which no rule holds is gone past.
    written: bool,
}

#[derive(Debug)]
struct Ruled {
    at: At,
    holds: Holds,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Retry { attempts: u64, backoff: Backoff, linear: bool },
    Fail,
    Continue,
    Break,
    Jump(String),
}

impl Rules {
    /// Reads `policy: { rules: […] }`.
    pub(super) fn read(reading: &Reading<'_>, policy: &Node, notes: &mut Notes) -> Self {
        let mut read = Self { written: true, rules: Vec::new() };
        let Some(fields) = reading.fields("policy", policy) else { return read };
        for rule in fields.get("rules").map_or(&[][..], |node| reading.items("rules", node)) {
            read.rules.extend(ruled(reading, rule, notes));
        }
        fields.rest(reading, "`policy`", notes);
        read
    }

    /// Writes codes, policies and clauses. `bounded` says whether a Timeout is around each attempt.
    pub(super) fn apply(self, bounded: bool, targets: &[(String, Target)], route: &mut Route) {
        let Self { rules, written } = self;
        let mut left: BTreeSet<u16> = (400..=599).collect();
        let mut transport = true;
        let mut retry = Retry::default();
        let mut delays: Vec<(Option<String>, Option<Time>)> = Vec::new();
        // Rules that fail need a code only if a rule behind them takes the rest.
        let mut failing = Vec::new();
        let rest = everything(bounded);
        let prefix = camel(&route.name);
        for (number, Ruled { at, holds, action }) in rules.into_iter().enumerate() {
            let Holds { statuses, transport: also, success, when } = holds;
            if success && !matches!(action, Action::Continue) && statuses.is_empty() {
                route.notes.lost(at, "what is done after a success: see Loop, and Steps.");
                continue;
            }
            let taken: Vec<u16> =
                statuses.into_iter().filter(|status| left.contains(status)).collect();
            let whole = also && transport && when.is_none() && taken.len() == left.len();
            if when.is_none() {
                left.retain(|status| !taken.contains(status));
            }
            let code = format!("{prefix}.Rule{}", number + 1);
            let mut selected = Vec::new();
            if whole {
                selected.clone_from(&rest);
            } else {
                if !taken.is_empty() {
                    let retryable = match action {
                        Action::Retry { .. } => Retryable::Yes,
                        _ => Retryable::No,
                    };
                    failing.push(Rule {
                        statuses: classes(&taken),
                        when: when.clone(),
                        code: code.clone(),
                        retryable: Some(retryable),
                        ..Rule::default()
                    });
                    selected.push(code.clone());
                }
                if also && transport {
                    selected.extend(
                        [codes::REFUSED, codes::LOST, codes::SLOW, codes::INVALID]
                            .map(str::to_owned),
                    );
                    selected.extend(bounded.then(|| codes::BOUND.to_owned()));
                }
            }
            transport &= !(also && when.is_none());
            if selected.is_empty() || matches!(action, Action::Fail) {
                continue;
            }
            route.classify.append(&mut failing);
            let predicate = (!whole).then(|| {
                let listed: Vec<String> = selected.iter().map(|code| format!("'{code}'")).collect();
                format!("middleware.result.code in [{}]", listed.join(", "))
            });
            match action {
                Action::Retry { attempts, backoff, linear } => {
                    delays.push((predicate, linear.then_some(backoff.initial)));
                    let mut policy = Policy { codes: selected, attempts, ..Policy::default() };
                    policy.backoff = (!linear).then_some(backoff);
                    policy.tell_of_methods("NoETL", &route.matches.methods);
                    retry.policies.push(policy);
                }
                action => clause(&action, at, selected, targets, route),
            }
        }
        if written && (!left.is_empty() || transport) {
            let mut notes = Notes::default();
            notes.told("NoETL goes on where no rule holds.");
            route.classify.append(&mut failing);
            let next = go_on(route);
            route.catch.push(Catch { notes, codes: rest, next, ..Catch::default() });
        }
        if !retry.policies.is_empty() {
            retry.delay = linear(&delays);
            route.layers.push(Layer::Retry(retry));
        }
    }
}

/// The codes of all failures of an attempt that no rule of `classify` has named.
fn everything(bounded: bool) -> Vec<String> {
    let bound = bounded.then_some(codes::BOUND);
    std::iter::once(codes::ANY_HTTP).chain(bound).map(str::to_owned).collect()
}

/// The expression of linear waits, if there are any.
fn linear(delays: &[(Option<String>, Option<Time>)]) -> Option<String> {
    delays.iter().find(|(_, delay)| delay.is_some())?;
    let mut text = String::new();
    for (predicate, delay) in delays {
        let wait = delay.map_or_else(
            || "null".to_owned(),
            |delay| {
                let seconds = delay.to_duration().as_secs_f64();
                format!("'PT' + string({seconds:?} * middleware.metadata.attempt) + 'S'")
            },
        );
        match predicate {
            Some(predicate) => text = format!("{text}{predicate} ? {wait} : "),
            // Policies behind it are never asked.
            None => return Some(text + &wait),
        }
    }
    Some(text + "null")
}

fn clause(
    action: &Action,
    at: At,
    codes: Vec<String>,
    targets: &[(String, Target)],
    route: &mut Route,
) {
    let mut notes = Notes::default();
    let next = match action {
        Action::Jump(label) => {
            let found = targets.iter().find(|(known, _)| *known == super::form::name(label));
            match found {
                Some((known, target)) if *known != route.name => jump(known, target, route),
                _ => {
                    let text =
                        format!("`jump` to `{}`: see Loop, and `next` of a Step.", short(label));
                    route.notes.lost(at, text);
                    return;
                }
            }
        }
        Action::Break => {
            notes.told("`break`: the tasks behind it are not run.");
            go_on(route)
        }
        _ => {
            notes.told("`continue`: the playbook goes on with its next task.");
            go_on(route)
        }
    };
    route.catch.push(Catch { notes, codes, next, ..Catch::default() });
}

/// The Step that answers as if all were done.
fn go_on(route: &mut Route) -> String {
    let name = if route.name == "go-on" { "goes-on" } else { "go-on" };
    if !route.steps.iter().any(|step| step.name == name) {
        route.steps.push(Step::answer(name, 204));
    }
    name.to_owned()
}

/// A Step that sends the request to another task's service.
fn jump(label: &str, target: &Target, route: &mut Route) -> String {
    let step_name = format!("jump-{label}");
    if !route.steps.iter().any(|step| step.name == step_name) {
        let mut with = vec![("upstream", Tree::own(&target.upstream))];
        with.extend(target.method.as_ref().map(|method| ("method", Tree::own(method))));
        with.extend(target.path.as_ref().map(|path| ("path", Tree::text(path))));
        let call = Tree::map([
            ("provider", Tree::own("mwl:provider.call/mwl-proxy/http/v1")),
            ("input", Tree::own("{{ frame.input }}")),
            ("with", Tree::map(with)),
        ]);
        let fields = vec![
            Entry::new("action", Tree::own("Call")),
            Entry::new("call", call),
            Entry::new("next", Tree::own("jumped")),
        ];
        let notes = Notes::default();
        route.steps.push(Step { notes, name: step_name.clone(), fields });
        if !route.steps.iter().any(|step| step.name == "jumped") {
            let fields = vec![Entry::new("action", Tree::own("Return"))];
            route.steps.push(Step { notes: Notes::default(), name: "jumped".to_owned(), fields });
        }
    }
    step_name
}

/// Reads `{ when, then }` or `{ else: { then } }`.
fn ruled(reading: &Reading<'_>, node: &Node, notes: &mut Notes) -> Option<Ruled> {
    let fields = reading.fields("rules", node)?;
    let at = reading.at(node.span);
    let test = match (fields.get("when"), fields.get("else")) {
        (Some(when), _) => parse(reading.text("when", when)?),
        (None, Some(_)) => Test::All(Vec::new()),
        (None, None) => {
            reading.wrong(node.span, "a rule has neither `when` nor `else`");
            return None;
        }
    };
    let action = fields.get("then").or_else(|| fields.get("else")?.get("then"));
    let Some(action) = action.and_then(|node| reading.fields("then", node)) else {
        reading.wrong(node.span, "a rule has no `then`");
        return None;
    };
    let Some(word) = action.get("do").and_then(|node| reading.text("do", node)) else {
        reading.wrong(action.span, "`then` has no `do`");
        return None;
    };
    let action = match word {
        "retry" => retry(reading, &action, notes),
        "fail" => Action::Fail,
        "continue" => Action::Continue,
        "break" => Action::Break,
        "jump" => {
            let to = action.get("to").and_then(|node| reading.text("to", node)).unwrap_or_default();
            Action::Jump(to.to_owned())
        }
        word => {
            let message =
                format!("`do` is `{}`; wanted: retry, continue, jump, break or fail", short(word));
            reading.wrong(node.span, message);
            return None;
        }
    };
    let then = fields.get("then").or_else(|| fields.get("else")?.get("then"));
    for key in ["set_iter", "set_ctx"] {
        if let Some(set) = then.and_then(|node| node.get(key)) {
            notes.lost(reading.at(set.span), format!("`{key}`: see `assign`."));
        }
    }
    let Some(holds) = test.holds() else {
        let when = fields.get("when").map(ToString::to_string).unwrap_or_default();
        notes.lost(at, format!("the rule `when: {}`.", short(&when)));
        return None;
    };
    Some(Ruled { at, holds, action })
}

fn retry(reading: &Reading<'_>, action: &Fields<'_>, notes: &mut Notes) -> Action {
    let count = action.get("attempts").and_then(|node| reading.count("attempts", node));
    let delay = action.get("delay").and_then(|node| reading.seconds("delay", node));
    let word = action.get("backoff").and_then(|node| reading.text("backoff", node));
    let rate = match word {
        Some("exponential") => 2.0,
        Some("none" | "linear") | None => 1.0,
        Some(other) => {
            notes.lost(reading.at(action.span), format!("`backoff: {}`.", short(other)));
            1.0
        }
    };
    let initial = delay.unwrap_or(SECOND).min(Time::from_nanos(SECOND.as_nanos() * 1_000_000));
    let backoff = Backoff { initial, rate, ..Backoff::default() };
    Action::Retry { attempts: count.unwrap_or(3), backoff, linear: word == Some("linear") }
}

/// Reads a `retry:` of before v10: `true`, a number of attempts, or an object.
pub(super) fn legacy(reading: &Reading<'_>, node: &Node, notes: &mut Notes) -> Rules {
    let mut rules = Vec::new();
    let at = reading.at(node.span);
    let mut backoff = Backoff { initial: SECOND, rate: 2.0, ..Backoff::default() };
    let mut attempts = 3;
    let mut condition = Test::Failed(true);
    if node.as_bool() == Some(false) {
        return Rules::default();
    }
    if node.as_object().is_some() {
        let Some(fields) = reading.fields("retry", node) else { return Rules::default() };
        let count = fields.get("max_attempts").and_then(|node| reading.count("max_attempts", node));
        attempts = count.unwrap_or(attempts);
        let seconds = |key| fields.get(key).and_then(|node| reading.seconds(key, node));
        backoff.initial = seconds("initial_delay").or_else(|| seconds("delay")).unwrap_or(SECOND);
        backoff.max = seconds("max_delay");
        let rate = fields.get("backoff_multiplier");
        let rate = rate.and_then(|node| reading.number("backoff_multiplier", node));
        backoff.rate = rate.unwrap_or(2.0).clamp(1.0, 1000.0);
        if fields.get("jitter").and_then(Node::as_bool) == Some(true) {
            backoff.jitter = Some("equal");
            backoff.notes.told("NoETL says that it draws, and not how.");
        }
        let test = |key| fields.get(key).and_then(|node| reading.text(key, node)).map(parse);
        if let Some(stop) = test("stop_when").and_then(|test| test.holds()) {
            rules.push(Ruled { at, holds: stop, action: Action::Fail });
        }
        condition = test("retry_when").unwrap_or(condition);
        fields.rest(reading, "`retry`", notes);
    } else if node.as_bool().is_none() {
        attempts = reading.count("retry", node).unwrap_or(attempts);
    }
    let holds = condition.holds().unwrap_or_else(|| {
        notes.lost(at, "the condition of `retry`: every failure is retried.");
        Holds::default()
    });
    let holds = if holds.statuses.is_empty() && !holds.transport {
        Test::Failed(true).holds().unwrap_or_default()
    } else {
        holds
    };
    let action = Action::Retry { attempts, backoff, linear: false };
    rules.push(Ruled { at, holds, action });
    // Without a policy an error fails.
    Rules { rules, written: false }
}

/// Statuses, and classes where all of one are among them.
fn classes(statuses: &[u16]) -> Vec<Status> {
    let mut found = Vec::new();
    for digit in [4, 5] {
        let of: Vec<u16> =
            statuses.iter().copied().filter(|status| status / 100 == digit).collect();
        if of.len() == 100 {
            found.push(Status::Class(digit));
        } else {
            found.extend(of.into_iter().map(Status::One));
        }
    }
    found
}

/// `fetch_page` as `FetchPage`.
fn camel(text: &str) -> String {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    let capital = |part: &str| {
        let mut letters = part.chars();
        letters
            .next()
            .map(|first| first.to_ascii_uppercase())
            .into_iter()
            .chain(letters)
            .collect::<String>()
    };
    let name: String = parts.map(capital).collect();
    if name.is_empty() || name == "System" { "Task".to_owned() } else { name }
}
