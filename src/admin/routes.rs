//! The routes in plain words, for `/routes`: what each matches and what its stacks do, outermost first.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::proxy::settings::{Route, RouteMatch, Settings};
use crate::telemetry::metrics::RouteSummary;

/// All routes of a configuration, in order. Kept as text, because the JSON trees of a long table would
/// weigh more than the table itself.
#[derive(Clone, Debug)]
pub struct RouteDescriptions(Box<[Box<str>]>);

impl RouteDescriptions {
    /// The routes of `settings`.
    pub fn of(settings: &Settings) -> Self {
        Self(settings.routes.iter().map(|described| route(described).to_string().into()).collect())
    }

    /// Each route as JSON.
    pub fn iter(&self) -> impl Iterator<Item = Json> {
        // This module wrote the text, so it is JSON.
        self.0.iter().map(|text| serde_json::from_str(text).unwrap_or_default())
    }
}

/// The described routes, each with its counters.
pub fn counted(described: &RouteDescriptions, summaries: &BTreeMap<String, RouteSummary>) -> Json {
    let routes = described.iter().map(|mut route| {
        let name = route.get("name").and_then(Json::as_str);
        let summary = name.and_then(|name| summaries.get(name));
        let counters = summary.and_then(|summary| serde_json::to_value(summary).ok());
        if let Some(members) = route.as_object_mut() {
            members.insert("counters".into(), counters.unwrap_or_default());
        }
        route
    });
    routes.collect()
}

fn route(route: &Route) -> Json {
    let document = route.document.to_json();
    let steps = document.get("steps").and_then(Json::as_object);
    let stacks: Map<String, Json> = steps
        .into_iter()
        .flatten()
        .filter_map(|(name, step)| {
            let entries = stack(step.get("middleware")?);
            (!entries.is_empty()).then(|| (name.clone(), entries.into()))
        })
        .collect();
    json!({
        "name": *route.name,
        "match": matching(&route.matches),
        "upstream": route.upstream.as_deref(),
        "flow": document.get("middleware").map(stack).unwrap_or_default(),
        "steps": stacks,
    })
}

/// One sentence: `POST /billing/charge*, header x-a`.
fn matching(matches: &RouteMatch) -> String {
    let RouteMatch { hosts, path, path_prefix, methods, headers, query } = matches;
    let mut parts = Vec::new();
    if !methods.is_empty() {
        let methods: Vec<&str> = methods.iter().map(AsRef::as_ref).collect();
        parts.push(methods.join(" or "));
    }
    if !hosts.is_empty() {
        parts.push(format!("host {}", hosts.join(" or ")));
    }
    if let Some(path) = path {
        parts.push(format!("path {path}"));
    }
    if let Some(prefix) = path_prefix {
        parts.push(format!("path {prefix} and beneath"));
    }
    let named = |kind, name: &str, value: Option<&str>| match value {
        Some(value) => format!("{kind} {name}={value}"),
        None => format!("{kind} {name}"),
    };
    parts.extend(
        headers.iter().map(|(name, value)| named("header", name.as_str(), value.as_deref())),
    );
    parts.extend(query.iter().map(|(name, value)| named("query", name, value.as_deref())));
    if parts.is_empty() { "every request".into() } else { parts.join(", ") }
}

fn stack(entries: &Json) -> Vec<String> {
    entries.as_array().into_iter().flatten().map(entry).collect()
}

/// `retry: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full`.
fn entry(entry: &Json) -> String {
    let uri = entry.get("provider").and_then(Json::as_str).unwrap_or_default();
    // In `mwl:provider.middleware/mwl/retry/v1` the name is before the version.
    let name = uri.rsplit('/').nth(1).unwrap_or(uri);
    let with = |phase: &str| entry.get(phase).and_then(|block| block.get("with"));
    let mut says = Vec::new();
    if let Some(policies) = with("onEntry").and_then(|with| with.get("policies")) {
        says.extend(policies.as_array().into_iter().flatten().map(policy));
    }
    if let Some(duration) = with("onEntry").and_then(|with| with.get("duration")) {
        says.push(word(duration));
    }
    if let Some(delay) = with("onFailure").and_then(|with| with.get("delay")) {
        says.push(format!("waits {} where that says so", word(delay)));
    }
    if let Some(call) = with("onAlways").and_then(|with| with.get("call")) {
        says.push(format!("calls {}", target(call)));
    }
    for phase in ["onEntry", "onSuccess", "onFailure", "onAlways"] {
        if let Some(when) = entry.get(phase).and_then(|block| block.get("when")) {
            says.push(format!("{phase} when {}", word(when)));
        }
    }
    if says.is_empty() { name.to_owned() } else { format!("{name}: {}", says.join("; ")) }
}

fn policy(policy: &Json) -> String {
    let matcher = policy.get("match");
    let of = |key: &str| matcher.and_then(|matcher| matcher.get(key));
    let list = |value: &Json| {
        let items: Vec<String> = value.as_array().into_iter().flatten().map(word).collect();
        items.join(" or ")
    };
    let mut parts: Vec<String> =
        ["codes", "types"].iter().filter_map(|key| of(key)).map(list).collect();
    match of("retryable") {
        Some(Json::Bool(true)) => parts.push("retryable".into()),
        Some(Json::Bool(false)) => parts.push("not retryable".into()),
        _ => {}
    }
    if let Some(attempts) = policy.get("attempts") {
        parts.push(format!("{} attempts", word(attempts)));
    }
    parts.push(match policy.get("backoff") {
        Some(backoff) => wait(backoff),
        None => "no wait".into(),
    });
    parts.join(", ")
}

fn wait(backoff: &Json) -> String {
    let mut text = format!("waits {}", backoff.get("initial").map(word).unwrap_or_default());
    for (key, before) in [("rate", " ×"), ("max", " up to "), ("jitter", ", jitter ")] {
        if let Some(value) = backoff.get(key) {
            text.push_str(before);
            text.push_str(&word(value));
        }
    }
    text
}

fn target(call: &Json) -> String {
    match (call.get("provider"), call.get("flow")) {
        (Some(provider), _) => word(provider),
        (_, Some(Json::String(name))) => format!("the Flow {name}"),
        (_, Some(_)) => "a Flow of its own".into(),
        _ => String::new(),
    }
}

/// A string without its quotes, anything else as JSON.
fn word(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Origin, load};
    use std::path::Path;

    #[test]
    fn the_recipe_reads_as_what_it_does() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/recipe.yaml");
        let variable = |_: &str| None;
        let origin = Origin { variable: &variable, ..Origin::system() };
        let settings = load(&path, origin).unwrap().settings;
        let described: Vec<Json> = RouteDescriptions::of(&settings).iter().collect();
        let names: Vec<&Json> = (0..10).map(|place| &described[place]["match"]).collect();
        insta::assert_snapshot!(format!("{:#}", described[0]), @r#"
        {
          "flow": [],
          "match": "POST, path /billing/charge and beneath",
          "name": "charge-payment",
          "steps": {
            "charge-payment": [
              "finally: calls a Flow of its own",
              "retry: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full; Provider.Call.Http.ConnectionFailed, 3 attempts, waits PT1S ×2; waits {{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }} where that says so",
              "timeout: PT30S"
            ]
          },
          "upstream": "billing"
        }
        "#);
        insta::assert_snapshot!(names[0], @r#""POST, path /billing/charge and beneath""#);
        insta::assert_snapshot!(names[9], @r#""every request""#);
        insta::assert_snapshot!(format!("{:#}", described[4]["steps"]), @r#"
        {
          "gated": [
            "retry: Provider.Call.*, 3 attempts, waits PT0.1S; onEntry when {{ vars.retriesEnabled }}"
          ]
        }
        "#);
        insta::assert_snapshot!(format!("{:#}", described[8]), @r#"
        {
          "flow": [
            "retry: Provider.Call.Http.*, retryable, 3 attempts, waits PT0.2S ×2"
          ],
          "match": "path /whole-flow and beneath",
          "name": "whole-flow",
          "steps": {},
          "upstream": null
        }
        "#);
    }
}
