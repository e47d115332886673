//! `NoETL`: tasks of playbooks, their `spec.policy.rules`, and legacy `retry:` blocks.

use super::form::{Form, Layer, MAX_ROUTES, Match, Notes, Route, Upstream, name, unique};
use super::noetl_rules::{Rules, legacy};
use super::read::{Fields, Reading, address, is_path, is_token, short};
use crate::language::temporal::Span as Time;
use crate::source::Node;

/// How deep tasks may be nested.
const MAX_DEPTH: usize = 100;
/// Members that say what a task does with its data, which a client does here.
const OWN: [&str; 20] = [
    "kind",
    "tool",
    "type",
    "name",
    "step",
    "desc",
    "description",
    "params",
    "headers",
    "payload",
    "data",
    "args",
    "body",
    "auth",
    "command",
    "commands",
    "code",
    "next",
    "sink",
    "loop",
];

/// A task: its label, its body, and the `retry:` beside it.
struct Task<'n> {
    label: String,
    node: &'n Node,
    retry: Option<&'n Node>,
}

/// Where a task's request goes.
pub(super) struct Target {
    pub(super) upstream: String,
    pub(super) method: Option<String>,
    pub(super) path: Option<String>,
}

pub(super) fn read(reading: &Reading<'_>, root: &Node) -> Form {
    let mut tasks = Vec::new();
    find(root, "task", None, 0, &mut tasks);
    let mut form = Form::default();
    if tasks.is_empty() {
        let message = "there is no task of NoETL in this: an object with a `kind`, and a `url`, a `spec` or a `retry`";
        reading.not_this(root.span, message, "give a playbook, or tasks of one");
    }
    let mut targets: Vec<(String, Target)> = Vec::new();
    for task in &tasks {
        let taken: Vec<String> = targets.iter().map(|(label, _)| label.clone()).collect();
        let label = unique(name(&task.label), &taken);
        let target = target(reading, task, &mut form);
        targets.push((label, target));
    }
    for (place, task) in tasks.iter().enumerate() {
        if let Some(route) = route(reading, task, place, &targets, &mut form) {
            form.routes.push(route);
        }
    }
    form
}

/// Collects tasks. `label` names the node, `retry` stands beside it.
fn find<'n>(
    node: &'n Node,
    label: &str,
    retry: Option<&'n Node>,
    depth: usize,
    tasks: &mut Vec<Task<'n>>,
) {
    if depth > MAX_DEPTH {
        return;
    }
    let text = |key: &str| node.get(key).and_then(Node::as_str).map(ToString::to_string);
    let own = ["step", "task", "name", "label"].into_iter().find_map(text);
    let tool = ["kind", "tool", "type"].into_iter().any(|key| text(key).is_some());
    let known = ["url", "endpoint", "spec", "retry", "method", "command", "code"];
    let playbook = node.get("workflow").is_some();
    if tool && !playbook && known.iter().any(|key| node.get(key).is_some()) {
        let label = own.unwrap_or_else(|| label.to_owned());
        let retry = node.get("retry").or(retry);
        if tasks.len() <= MAX_ROUTES {
            tasks.push(Task { label, node, retry });
        }
        return;
    }
    for item in node.as_array().unwrap_or_default() {
        find(item, label, retry, depth + 1, tasks);
    }
    for member in node.as_object().unwrap_or_default() {
        let inner = match &*member.key {
            // What a step's tool is called stands beside it.
            "tool" | "tools" | "steps" | "workflow" => {
                own.clone().unwrap_or_else(|| label.to_owned())
            }
            key => key.to_owned(),
        };
        let beside = if &*member.key == "tool" { node.get("retry") } else { None };
        find(&member.value, &inner, beside, depth + 1, tasks);
    }
}

/// The upstream, method and path of a task's `url`.
fn target(reading: &Reading<'_>, task: &Task<'_>, form: &mut Form) -> Target {
    let text = |key: &str| task.node.get(key).and_then(Node::as_str).map(|text| &**text);
    let method = text("method").filter(|method| is_token(method)).map(str::to_uppercase);
    let url = text("url").or_else(|| text("endpoint")).unwrap_or_default();
    if let Some((endpoint, host, path)) = address(url) {
        let upstream = name(&host);
        if let Some(made) = form.upstream(&upstream)
            && made.endpoints.is_empty()
        {
            made.endpoints.push(super::form::Endpoint::new(endpoint));
        }
        return Target { upstream, method, path };
    }
    // `{{ workload.api_url }}/items`: the variable names the upstream.
    let (variable, path) = match url.strip_prefix("{{").and_then(|rest| rest.split_once("}}")) {
        Some((variable, path)) => (variable.trim(), path),
        None => ("", ""),
    };
    let variable = variable.rsplit('.').next().filter(|last| is_token(last));
    let kind = text("kind").or_else(|| text("tool")).or_else(|| text("type")).unwrap_or("task");
    let upstream = variable.map_or_else(|| name(&format!("{}-{kind}", task.label)), name);
    let known = form.upstreams.iter().any(|made| made.name == upstream);
    if let Some(made) = form.upstream(&upstream)
        && !known
    {
        if kind == "http" {
            made.notes.told(format!("`url: {}` there.", short(url)));
        } else {
            made.notes.lost(
                reading.at(task.node.span),
                format!("a task of the kind `{}`: something that serves it by HTTP, and tells an error as JSON with `code` and `message`.", short(kind)),
            );
        }
    }
    let path = path.split('?').next().filter(|path| is_path(path)).map(str::to_owned);
    Target { upstream, method, path }
}

fn route(
    reading: &Reading<'_>,
    task: &Task<'_>,
    place: usize,
    targets: &[(String, Target)],
    form: &mut Form,
) -> Option<Route> {
    let fields = reading.fields("task", task.node)?;
    let (label, target) = targets.get(place)?;
    let mut route =
        Route { name: label.clone(), upstream: target.upstream.clone(), ..Route::default() };
    let mut matches = Match { path: target.path.clone(), ..Match::default() };
    matches.methods.extend(target.method.clone());
    if targets.len() > 1 && matches.path.is_none() {
        matches.path_prefix = Some(format!("/{label}"));
    }
    let same = form.routes.iter().any(|other| {
        (&other.matches.path, &other.matches.methods) == (&matches.path, &matches.methods)
    });
    if same && matches.path.is_some() {
        route.rewrite_prefix = matches.path.take();
        matches.path_prefix = Some(format!("/{label}"));
        route.notes.told("Its path is another route's, too; so this one has a prefix of its own.");
    }
    route.matches = matches;
    fields.skip(&OWN);
    fields.skip(&["url", "endpoint", "method", "retry"]);
    let upstream = form.upstream(&target.upstream)?;
    let spec = fields.get("spec").and_then(|node| reading.fields("spec", node));
    let mut each = None;
    let mut policy = None;
    if let Some(spec) = &spec {
        each = timeouts(reading, spec, upstream);
        policy = spec.get("policy");
        spec.rest(reading, "`spec`", &mut route.notes);
    }
    fields.rest(reading, "the task", &mut route.notes);
    let rules = match (policy, task.retry) {
        (Some(policy), retry) => {
            if let Some(retry) = retry {
                route.notes.lost(reading.at(retry.span), "`retry` beside a `policy`.");
            }
            Rules::read(reading, policy, &mut route.notes)
        }
        (None, Some(retry)) => legacy(reading, retry, &mut route.notes),
        (None, None) => Rules::default(),
    };
    rules.apply(each.is_some(), targets, &mut route);
    route.layers.extend(each.map(|duration| Layer::Timeout { duration, notes: Notes::default() }));
    Some(route)
}

/// Reads `timeout`. Returns the bound of a whole attempt, if there is one.
fn timeouts(reading: &Reading<'_>, spec: &Fields<'_>, upstream: &mut Upstream) -> Option<Time> {
    let node = spec.get("timeout")?;
    if node.as_object().is_none() {
        return reading.seconds("timeout", node).filter(|bound| *bound > Time::ZERO);
    }
    let timeout = reading.fields("timeout", node)?;
    let seconds = |key| timeout.get(key).and_then(|node| reading.seconds(key, node));
    upstream.connect_timeout = seconds("connect").or(upstream.connect_timeout);
    upstream.response_timeout = seconds("read").or(upstream.response_timeout);
    let total = seconds("total");
    timeout.rest(reading, "`timeout`", &mut upstream.notes);
    total.filter(|bound| *bound > Time::ZERO)
}
