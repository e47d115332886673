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
    say(&format!("{:#}", config::schema::schema()));
    ExitCode::SUCCESS
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
fn documents() -> Result<Vec<Json>, String> {
    let mut catalog = proxy::catalog(None);
    let http = HttpProvider::new(Arc::new(HashMap::new()), None, Paths::default());
    catalog.add_call(Arc::new(http)).map_err(|error| error.to_string())?;
    Ok(catalog.contracts().map(|contract| contract.document.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_holds_what_a_route_may_name() {
        let documents = documents().unwrap();
        let uris: Vec<&str> = documents.iter().map(|d| d["uri"].as_str().unwrap()).collect();
        assert_eq!(
            uris,
            [
                "mwl:provider.call/mwl-proxy/http/v1",
                "mwl:provider.call/mwl/mock/v1",
                "mwl:provider.middleware/mwl-proxy/fault/v1",
                "mwl:provider.middleware/mwl/finally/v1",
                "mwl:provider.middleware/mwl/loop/v1",
                "mwl:provider.middleware/mwl/retry/v1",
                "mwl:provider.middleware/mwl/timeout/v1",
            ]
        );
    }
}
