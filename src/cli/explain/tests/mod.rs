/// Mistakes in the arguments, and the places shown for them.
mod arguments;
/// Questions of others, at the admin address.
mod asking;
/// Faults that a stack injects.
mod faults;
/// Steps, cleanups, and calls before, after and beside the request.
mod flows;
mod limits;
/// The same as JSON.
mod machines;
/// Many requests, and two configurations.
mod many;
/// Circuit breakers and limits of concurrency.
mod protections;
/// What Retry does with the upstreams' responses.
mod retrying;
/// Which route matches a request, and why the others do not.
mod routes;
/// How responses are written.
mod scripts;
/// Timeouts, long waits, and clients that leave.
mod time;

use std::path::PathBuf;

use clap::Parser;
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::cli::arguments::{Cli, Command};

/// Parses arguments as the command line would.
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

/// The explanation of the retry-composition recipe.
fn recipe(arguments: &[&str]) -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/recipe.yaml");
    said(&[&["-c", file], arguments].concat()).unwrap_or_else(|refused| panic!("{refused}"))
}

/// The explanation of a configuration with these routes and the upstreams `app` and `audit`.
fn of(routes: &str, arguments: &[&str]) -> String {
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\n\
         upstreams:\n  app: {{ endpoints: [http://app] }}\n  audit: {{ endpoints: [http://audit] }}\n\
         routes:\n{}",
        routes.trim_start_matches('\n')
    );
    of_text(text, arguments)
}

/// The explanation of a whole configuration.
fn of_text(text: String, arguments: &[&str]) -> String {
    let input = Input::Text { name: PathBuf::from("c.yaml"), text, variables: Vec::new() };
    explained(&typed(arguments), &input)
        .map_or_else(|refused| panic!("{refused}"), |(_, said)| said)
}

fn json(said: &str) -> Json {
    serde_json::from_str(said).unwrap()
}

/// The part after the description of the routes.
fn told(said: &str) -> &str {
    said.split_once("\n\n").and_then(|(_, rest)| rest.split_once("\n\n")).unwrap().1
}
