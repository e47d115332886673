//! The routes in plain words, for `/routes`: what each matches and what its stacks do, outermost first.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use crate::config::without_literals;
use crate::language::plan::{Action, EntryPlan, FlowId, Plan};
use crate::proxy::settings::{CertificateMatch, Route, RouteMatch, Settings};
use crate::telemetry::metrics::RouteSummary;
use crate::telemetry::switches::{StandingSwitch, SwitchKind};

/// All routes of a configuration, in order. Kept as text, because the JSON trees of a long table would
/// weigh more than the table itself.
#[derive(Clone, Debug)]
pub struct RouteDescriptions(Box<[Box<str>]>);

/// The routes of a configuration before their Flows are compiled: what each takes.
#[derive(Clone, Debug)]
pub struct RouteHeads(Vec<Map<String, Json>>);

impl RouteHeads {
    /// The routes of `settings`.
    pub fn of(settings: &Settings) -> Self {
        Self(settings.routes.iter().map(head).collect())
    }

    /// The same with what their stacks do: `plans` are theirs, in order.
    pub fn described<'p>(self, plans: impl Iterator<Item = &'p Plan>) -> RouteDescriptions {
        let described = self.0.into_iter().zip(plans);
        RouteDescriptions(
            described.map(|(head, plan)| route(head, plan).to_string().into()).collect(),
        )
    }
}

impl RouteDescriptions {
    /// Whether a route has this name.
    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|route| route.get("name").and_then(Json::as_str) == Some(name))
    }

    /// Each route as JSON.
    pub fn iter(&self) -> impl Iterator<Item = Json> {
        // This module wrote the text, so it is JSON.
        self.0.iter().map(|text| serde_json::from_str(text).unwrap_or_default())
    }
}

/// The described routes, each with its counters, and with its retries if they are switched off.
pub fn counted(
    described: &RouteDescriptions,
    summaries: &BTreeMap<String, RouteSummary>,
    standing: &[StandingSwitch],
) -> Json {
    let routes = described.iter().map(|mut route| {
        let name = route.get("name").and_then(Json::as_str);
        let summary = name.and_then(|name| summaries.get(name));
        let off =
            standing.iter().find(|one| one.kind == SwitchKind::Retries && name == Some(&*one.what));
        let off = off.map(StandingSwitch::to_json);
        let counters = summary.and_then(|summary| serde_json::to_value(summary).ok());
        if let Some(members) = route.as_object_mut() {
            members.insert("counters".into(), counters.unwrap_or_default());
            members.extend(off.map(|off| ("retriesOff".to_owned(), off)));
        }
        route
    });
    routes.collect()
}

fn head(route: &Route) -> Map<String, Json> {
    let members: [(&str, Json); 3] = [
        ("name", (*route.name).into()),
        ("match", matching(&route.matches).into()),
        ("upstream", route.upstream.as_deref().into()),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn route(mut head: Map<String, Json>, plan: &Plan) -> Json {
    let root = plan.flow(FlowId::ROOT);
    let stacks = root.steps.iter().filter_map(|step| match &step.action {
        Action::Call(call) if !call.stack.is_empty() => {
            Some((step.name.as_ref().to_owned(), described(plan, &call.stack)))
        }
        _ => None,
    });
    head.insert("steps".to_owned(), Json::Object(stacks.collect()));
    head.insert("flow".to_owned(), described(plan, &root.stack));
    Json::Object(head)
}

/// What a stack does, without the literals of its expressions: they may be secrets.
fn described(plan: &Plan, stack: &[EntryPlan]) -> Json {
    plan.described(stack).iter().map(|entry| without_literals(entry)).collect()
}

/// One sentence: `POST, path /billing and beneath, header x-a`.
fn matching(matches: &RouteMatch) -> String {
    let RouteMatch { hosts, path, path_prefix, methods, headers, query, certificate } = matches;
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
    // A value may be a secret.
    let named = |kind, name: &str, has_value| {
        if has_value { format!("{kind} {name}=(hidden)") } else { format!("{kind} {name}") }
    };
    parts.extend(
        headers.iter().map(|(name, value)| named("header", name.as_str(), value.is_some())),
    );
    parts.extend(query.iter().map(|(name, value)| named("query", name, value.is_some())));
    if let Some(certificate) = certificate {
        let any = *certificate == CertificateMatch::default();
        let which = if any { "any client certificate" } else { "client certificate (hidden)" };
        parts.push(which.to_owned());
    }
    if parts.is_empty() { "every request".into() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::check;
    use crate::config::{Origin, load};
    use std::path::Path;

    #[test]
    fn the_recipe_reads_as_what_it_does() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/recipe.yaml");
        let variable = |_: &str| None;
        let origin = Origin { variable: &variable, ..Origin::system() };
        let built = check(load(&path, origin).unwrap()).unwrap();
        let described: Vec<Json> = built.shown.routes.iter().collect();
        let names: Vec<&Json> = (0..10).map(|place| &described[place]["match"]).collect();
        insta::assert_snapshot!(format!("{:#}", described[0]), @r#"
        {
          "flow": [],
          "match": "POST, path /billing/charge and beneath",
          "name": "charge-payment",
          "steps": {
            "charge-payment": [
              "finally: calls a Flow of its own",
              "timeout: PT20M",
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
