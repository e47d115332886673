//! `schema`, `catalog` and `conformance`: print documents and lists.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::Value as Json;

use super::output::{fail, say};
use crate::config;
use crate::language::conformance::CLAIM;
use crate::proxy;
use crate::proxy::provider::http::HttpProvider;
use crate::proxy::settings::Paths;

pub(super) fn schema() -> ExitCode {
    match documents() {
        Ok(documents) => {
            say(&format!("{:#}", config::schema::schema(&documents)));
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

pub(super) fn conformance() -> ExitCode {
    say(&CLAIM.join("\n"));
    ExitCode::SUCCESS
}

pub(super) fn catalog() -> ExitCode {
    match documents() {
        Ok(documents) => {
            say(&format!("{:#}", Json::Array(documents)));
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

/// The documents of all providers that a route may name.
pub(super) fn documents() -> Result<Vec<Json>, String> {
    let mut catalog = proxy::catalog(None);
    let http = HttpProvider::new(Arc::new(HashMap::new()), None, Paths::default());
    catalog.add_call(Arc::new(http)).map_err(|error| error.to_string())?;
    Ok(catalog.contracts().map(|contract| contract.document.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification's own style for names: lower case with hyphens, and a version at the end.
    #[test]
    fn names_have_the_recommended_style() {
        for document in documents().unwrap() {
            let uri = document["uri"].as_str().unwrap();
            let (_, name) = uri.split_once(':').unwrap();
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-./".contains(c);
            assert!(name.chars().all(plain), "{uri}: lower case and hyphens");
            let version = name.rsplit_once("/v").unwrap_or_else(|| panic!("{uri}: no version")).1;
            assert!(version.parse::<u32>().is_ok_and(|version| version > 0), "{uri}: no version");
        }
    }

    /// Each failure code and each open prefix has a line in the description: `- CODE: what it means`.
    #[test]
    fn every_declared_code_is_described() {
        for document in documents().unwrap() {
            let uri = document["uri"].as_str().unwrap();
            let description = document["description"].as_str().unwrap();
            let described: Vec<&str> = description
                .lines()
                .filter_map(|line| line.strip_prefix("- ")?.split_once(": "))
                .filter(|(_, meaning)| meaning.contains(' '))
                .map(|(code, _)| code)
                .collect();
            let catalog = &document["failureCatalog"];
            let declared = ["closed", "open"].map(|kind| catalog[kind].as_array().unwrap());
            let declared: Vec<&str> =
                declared.into_iter().flatten().map(|code| code.as_str().unwrap()).collect();
            assert_eq!(described, declared, "{uri}: the lines of its description, and its codes");
        }
    }

    /// Each phase at which a middleware acts says what it does. What races its inner scope says when that is over.
    #[test]
    fn every_middleware_says_what_it_does_and_when_a_race_is_over() {
        let mut races = Vec::new();
        for document in documents().unwrap() {
            let uri = document["uri"].as_str().unwrap();
            for (phase, declared) in document["phases"].as_object().into_iter().flatten() {
                let said = |member: &str| declared["action"][member].as_str();
                assert!(said("description").is_some_and(|said| !said.is_empty()), "{uri} {phase}");
                if let Some(acceptance) = said("acceptance") {
                    assert!(acceptance.contains("accepted when"), "{uri} {phase}: {acceptance}");
                    races.push(uri.to_owned());
                }
            }
        }
        assert_eq!(races, ["mwl:provider.middleware/mwl/timeout/v1"]);
    }

    #[test]
    fn the_catalog_holds_what_a_route_may_name() {
        let documents = documents().unwrap();
        let uris: Vec<&str> = documents.iter().map(|d| d["uri"].as_str().unwrap()).collect();
        assert_eq!(
            uris,
            [
                "mwl:provider.call/mwl-proxy/http/v1",
                "mwl:provider.call/mwl/mock/v1",
                "mwl:provider.middleware/mwl-proxy/circuit-breaker/v1",
                "mwl:provider.middleware/mwl-proxy/concurrency-limit/v1",
                "mwl:provider.middleware/mwl-proxy/fault/v1",
                "mwl:provider.middleware/mwl-proxy/idempotency/v1",
                "mwl:provider.middleware/mwl-proxy/rate-limit/v1",
                "mwl:provider.middleware/mwl/finally/v1",
                "mwl:provider.middleware/mwl/loop/v1",
                "mwl:provider.middleware/mwl/retry/v1",
                "mwl:provider.middleware/mwl/timeout/v1",
            ]
        );
    }
}
