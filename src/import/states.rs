//! AWS Step Functions: `Retry` and `Catch` of Task states, in the Amazon States Language.

use super::codes;
use super::form::{
    Backoff, Catch, Form, Layer, Notes, Policy, Retry, Retryable, Route, Rule, Status, Step, name,
};
use super::read::{Fields, Reading, address, is_token, short};
use super::yaml::{Entry, Tree};
use crate::language::temporal::Span as Time;
use crate::source::Node;

const SECOND: Time = Time::from_nanos(1_000_000_000);
/// The members of a Task that say what it sends and keeps, which a client does here.
const OWN: [&str; 18] = [
    "Type",
    "Comment",
    "Next",
    "End",
    "InputPath",
    "OutputPath",
    "ResultPath",
    "ResultSelector",
    "Output",
    "Assign",
    "QueryLanguage",
    "Headers",
    "QueryParameters",
    "RequestBody",
    "Authentication",
    "InvocationConfig",
    "Transform",
    "Credentials",
];
/// The error of an HTTP task with this status behind it.
const STATUS: &str = "States.Http.StatusCode.";

/// What an `ErrorEquals` selects.
#[derive(Debug, Default)]
struct Selected {
    codes: Vec<String>,
    types: Vec<&'static str>,
}

pub(super) fn read(reading: &Reading<'_>, root: &Node) -> Form {
    let mut form = Form::default();
    let task = root.get("Type").and_then(Node::as_str).is_some_and(|kind| &**kind == "Task");
    if task {
        state(reading, "Task", root, None, &mut form);
    } else if !machines(reading, root, &mut form) {
        let message = "there are no `States` in this";
        let help = "give a definition in the Amazon States Language, or one Task state";
        reading.not_this(root.span, message, help);
    }
    form
}

/// Reads every machine in `node`, also those of `Map` and `Parallel`. Returns whether there is one.
fn machines(reading: &Reading<'_>, node: &Node, form: &mut Form) -> bool {
    let mut found = false;
    if let Some(states) = node.get("States").and_then(Node::as_object) {
        found = true;
        for member in states {
            if form.is_full() {
                break;
            }
            let kind = member.value.get("Type").and_then(Node::as_str).map_or("", |kind| kind);
            let at = reading.at(member.key_span);
            match kind {
                "Task" => state(reading, &member.key, &member.value, Some(node), form),
                "Pass" | "Succeed" | "Fail" => {}
                "Map" | "Parallel" => {
                    form.notes.lost(
                        at,
                        format!("the state `{}` (`{kind}`): see Gather.", short(&member.key)),
                    );
                }
                kind => {
                    form.notes.lost(
                        at,
                        format!("the state `{}` (`{}`).", short(&member.key), short(kind)),
                    );
                }
            }
        }
    }
    for child in node.children() {
        found |= machines(reading, child, form);
    }
    found
}

fn state(reading: &Reading<'_>, label: &str, node: &Node, machine: Option<&Node>, form: &mut Form) {
    let Some(fields) = reading.fields("state", node) else { return };
    let mut route = Route { name: name(label), ..Route::default() };
    fields.skip(&OWN);
    target(&fields, label, &mut route, form);
    let retriers = fields.get("Retry").map_or(&[][..], |node| reading.items("Retry", node));
    let mut retry = Retry::default();
    for retrier in retriers {
        retry.policies.extend(policy(reading, retrier, &mut route, &mut retry.notes));
    }
    if retry.policies.is_empty() {
        route.notes.0.append(&mut retry.notes.0);
    } else {
        route.layers.push(Layer::Retry(retry));
    }
    let bound = fields.get("TimeoutSeconds");
    if let Some(duration) = bound.and_then(|node| reading.seconds("TimeoutSeconds", node)) {
        route.layers.push(Layer::Timeout { duration, notes: Notes::default() });
    }
    for catcher in fields.get("Catch").map_or(&[][..], |node| reading.items("Catch", node)) {
        catch(reading, catcher, machine, &mut route);
    }
    fields.rest(reading, "the state", &mut route.notes);
    form.routes.push(route);
}

/// Where an HTTP task sends its request, and which requests are for it.
fn target(fields: &Fields<'_>, label: &str, route: &mut Route, form: &mut Form) {
    let resource = fields.get("Resource").and_then(Node::as_str).map_or("", |text| text);
    let parameters = fields.get("Parameters").or_else(|| fields.get("Arguments"));
    let part = |key| parameters.and_then(|node: &Node| node.get(key)).and_then(Node::as_str);
    let method = part("Method").filter(|method| is_token(method));
    route.matches.methods.extend(method.map(|method| method.to_uppercase()));
    let endpoint = part("ApiEndpoint").and_then(|text| address(text));
    let Some((url, host, path)) = endpoint else {
        let named = name(resource.rsplit([':', '/']).next().unwrap_or(label));
        route.upstream = if resource.ends_with("http:invoke") { name(label) } else { named };
        route.matches.path_prefix = Some(format!("/{}", route.name));
        if !resource.ends_with("http:invoke") {
            route.notes.told(format!(
                "The task is `{}`: something that serves it by HTTP.",
                short(resource)
            ));
        }
        return;
    };
    route.upstream = name(&host);
    route.matches.path = path.filter(|path| path != "/");
    if let Some(upstream) = form.upstream(&route.upstream)
        && upstream.endpoints.is_empty()
    {
        upstream.endpoints.push(super::form::Endpoint::new(url));
    }
}

fn policy(
    reading: &Reading<'_>,
    node: &Node,
    route: &mut Route,
    notes: &mut Notes,
) -> Option<Policy> {
    let fields = reading.fields("Retry", node)?;
    let Selected { codes, types } = selected(reading, &fields, route, notes, Retryable::Yes);
    let seconds = |key| fields.get(key).and_then(|node| reading.seconds(key, node));
    let initial = seconds("IntervalSeconds").unwrap_or(SECOND);
    let rate = fields.get("BackoffRate").and_then(|node| reading.number("BackoffRate", node));
    let max = seconds("MaxDelaySeconds");
    let retries = fields.get("MaxAttempts").and_then(|node| reading.count("MaxAttempts", node));
    let jitter = fields.get("JitterStrategy").and_then(|n| reading.text("JitterStrategy", n));
    fields.skip(&["Comment"]);
    fields.rest(reading, "the retrier", notes);
    if codes.is_empty() {
        return None;
    }
    let backoff = Backoff {
        initial,
        rate: rate.unwrap_or(2.0).clamp(1.0, 1000.0),
        max,
        jitter: (jitter == Some("FULL")).then_some("full"),
        ..Backoff::default()
    };
    let mut policy = Policy {
        codes,
        types,
        attempts: retries.unwrap_or(3).saturating_add(1),
        backoff: Some(backoff),
        ..Policy::default()
    };
    policy.tell_of_methods("Step Functions", &route.matches.methods);
    Some(policy)
}

/// The codes of an `ErrorEquals`. Statuses get rules of the route.
fn selected(
    reading: &Reading<'_>,
    fields: &Fields<'_>,
    route: &mut Route,
    notes: &mut Notes,
    retryable: Retryable,
) -> Selected {
    let mut selected = Selected::default();
    for error in fields.get("ErrorEquals").map_or(&[][..], |n| reading.items("ErrorEquals", n)) {
        let Some(text) = reading.text("ErrorEquals", error) else { continue };
        let mut take = |codes: &[&str]| {
            selected.codes.extend(codes.iter().map(|code| (*code).to_owned()));
        };
        match text {
            "States.ALL" => take(&["*"]),
            "States.TaskFailed" => {
                take(&["*"]);
                selected.types.push("error");
            }
            "States.Timeout" | "States.HeartbeatTimeout" => take(&[codes::BOUND, codes::SLOW]),
            "States.Http.Socket" => take(&[codes::REFUSED, codes::LOST, codes::INVALID]),
            text => match text.strip_prefix(STATUS).and_then(|status| status.parse().ok()) {
                Some(status @ 400..=599) => {
                    take(&[text]);
                    if !route.classify.iter().any(|rule| rule.code == text) {
                        route.classify.push(Rule {
                            statuses: vec![Status::One(status)],
                            code: text.to_owned(),
                            retryable: Some(retryable),
                            ..Rule::default()
                        });
                    }
                }
                _ => notes.lost(reading.at(error.span), format!("the error `{}`.", short(text))),
            },
        }
    }
    if selected.codes.iter().any(|code| code == "*") {
        selected.codes = vec!["*".to_owned()];
    } else {
        selected.types.clear();
    }
    selected
}

fn catch(reading: &Reading<'_>, node: &Node, machine: Option<&Node>, route: &mut Route) {
    let Some(fields) = reading.fields("Catch", node) else { return };
    let mut notes = Notes::default();
    let Selected { mut codes, types } =
        selected(reading, &fields, route, &mut notes, Retryable::No);
    let Some(next) = fields.get("Next").and_then(|node| reading.text("Next", node)) else { return };
    fields.skip(&["ResultPath", "Comment", "Assign", "Output"]);
    fields.rest(reading, "the catcher", &mut notes);
    if codes.is_empty() {
        route.notes.0.append(&mut notes.0);
        return;
    }
    let retried = route.layers.iter().any(|layer| match layer {
        Layer::Retry(retry) => retry
            .policies
            .iter()
            .any(|policy| policy.codes.iter().any(|code| code == "*" || codes.contains(code))),
        _ => false,
    });
    if retried && codes.iter().all(|code| code != "*") {
        codes.push(codes::EXHAUSTED.to_owned());
        notes.told("What a Retry gave up on has the Retry's code, whatever it was.");
    }
    let mut step_name = name(next);
    if step_name == route.name {
        step_name.push_str("-state");
    }
    if !route.steps.iter().any(|step| step.name == step_name) {
        let state = machine.and_then(|node| node.get("States")).and_then(|node| node.get(next));
        route.steps.push(step(reading, &step_name, next, state));
    }
    route.catch.push(Catch { notes, codes, types, next: step_name });
}

/// The Step of the state to which a catcher leads.
fn step(reading: &Reading<'_>, named: &str, label: &str, state: Option<&Node>) -> Step {
    let kind = state.and_then(|state| state.get("Type")).and_then(Node::as_str);
    let part = |key| state.and_then(|state| state.get(key)).and_then(Node::as_str);
    let mut step = Step::answer(named, 204);
    match kind.map(|kind| &**kind) {
        Some("Pass" | "Succeed") => {
            step.notes.told("The machine goes on there; the client is told that all is done.");
        }
        Some("Fail") => {
            let error = name(part("Error").map_or("States.Failed", |error| error));
            let error = if error.starts_with("System") { format!("States.{error}") } else { error };
            let code =
                error.split('.').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".");
            let cause = part("Cause").filter(|cause| !cause.contains("{{"));
            let mut result = vec![("code", Tree::own(&code))];
            result.extend(cause.map(|cause| ("message", Tree::text(cause))));
            step.fields = vec![
                Entry::new("action", Tree::own("Raise")),
                Entry::new("result", Tree::map(result)),
            ];
        }
        _ => {
            let at = state.map(|state| reading.at(state.span)).unwrap_or_default();
            step.notes.lost(at, format!("the machine goes on with `{}`.", short(label)));
        }
    }
    step
}
