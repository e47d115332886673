/// What is typed: each mistake and its place.
mod arguments;
/// Steps, cleanups and calls around and beside the request.
mod flows;
/// The same in JSON.
mod machines;
/// What Retry does with what upstreams answer.
mod retrying;
/// Which route takes a request, and why no other.
mod routes;
/// Bounds, long waits, clients that wait no longer.
mod time;

use std::path::PathBuf;

use clap::Parser;
use serde_json::Value as Json;

use super::*;
use crate::cli::{Cli, Command};

/// The arguments, read as they are typed.
fn typed(arguments: &[&str]) -> Explain {
    let line = ["mwl-proxy", "explain"].iter().chain(arguments);
    match Cli::try_parse_from(line).unwrap().command {
        Some(Command::Explain(explain)) => explain,
        other => panic!("{other:?}"),
    }
}

fn said(arguments: &[&str]) -> Result<String, String> {
    let explain = typed(arguments);
    explained(&explain, &input(&explain)?).map(|(_, said)| said)
}

/// What is said of the retry-composition recipe.
fn recipe(arguments: &[&str]) -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/recipe.yaml");
    said(&[&["-c", file], arguments].concat()).unwrap_or_else(|refused| panic!("{refused}"))
}

/// What is said of a configuration with these routes and the upstreams `app` and `audit`.
fn of(routes: &str, arguments: &[&str]) -> String {
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\n\
         upstreams:\n  app: {{ endpoints: [http://app] }}\n  audit: {{ endpoints: [http://audit] }}\n\
         routes:\n{}",
        routes.trim_start_matches('\n')
    );
    let input = Input::Text { name: PathBuf::from("c.yaml"), text, variables: Vec::new() };
    explained(&typed(arguments), &input)
        .map_or_else(|refused| panic!("{refused}"), |(_, said)| said)
}

fn json(said: &str) -> Json {
    serde_json::from_str(said).unwrap()
}

/// What follows the description of the routes.
fn told(said: &str) -> &str {
    said.split_once("\n\n").and_then(|(_, rest)| rest.split_once("\n\n")).unwrap().1
}
