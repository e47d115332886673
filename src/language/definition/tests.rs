//! Bad definitions and their messages, good definitions, and laws.

use std::sync::Arc;

use super::*;
use crate::source::{Format, Sources};

mod bad;
mod laws;
mod plans;
mod warned;

/// A call provider and a middleware that a platform might add.
mod support {
    use std::pin::Pin;
    use std::sync::Arc;

    use crate::language::outcome::{Failure, Outcome};
    use crate::language::provider::{
        Answer, CallProvider, Catalog, Contract, Dispatch, Middleware, Prepared,
    };
    use crate::language::value::Value;

    #[derive(Debug)]
    struct Http(Contract);

    impl CallProvider for Http {
        fn contract(&self) -> &Contract {
            &self.0
        }
        fn prepare(&self, _with: &Value) -> Result<Prepared, Failure> {
            Ok(Arc::new(()))
        }
        fn call<'a>(
            &'a self,
            _dispatch: Dispatch<'a>,
        ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
            let outcome = Outcome::Success(Value::Null);
            Box::pin(std::future::ready(Answer { outcome, metadata: Value::Null }))
        }
    }

    #[derive(Debug)]
    struct StepOnly(Contract);

    impl Middleware for StepOnly {
        fn contract(&self) -> &Contract {
            &self.0
        }
    }

    const HTTP: &str = r#"{
        "$schema": "https://mwl.dev/v0.1/provider/schema.json",
        "uri": "mwl:provider.call/acme/http/v1",
        "codePrefix": "Http",
        "description": "",
        "parameters": {
            "type": "object",
            "properties": { "path": { "type": "string" }, "retries": { "type": "integer" } },
            "required": ["path"]
        },
        "failureCatalog": {
            "closed": ["Provider.Call.Http.Throttled", "Provider.Call.Http.ConnectionFailed"],
            "open": ["Provider.Call.Http.Grpc.*"]
        }
    }"#;

    const STEP_ONLY: &str = r#"{
        "$schema": "https://mwl.dev/v0.1/provider/schema.json",
        "uri": "mwl:provider.middleware/acme/cache/v1",
        "codePrefix": "Cache",
        "description": "",
        "attachment": ["step"],
        "phases": { "onEntry": { "action": { "kind": "control", "description": "" } } },
        "failureCatalog": { "closed": [], "open": [] }
    }"#;

    pub(super) fn catalog() -> Catalog {
        let mut catalog = Catalog::spec_defined(None);
        catalog.add_call(Arc::new(Http(Contract::parse(HTTP).unwrap()))).unwrap();
        catalog.add_middleware(Arc::new(StepOnly(Contract::parse(STEP_ONLY).unwrap()))).unwrap();
        catalog
    }
}

/// A root Flow whose entrypoint is the Step `a`.
fn root(rest: &str) -> String {
    format!("$schema: {SCHEMA_URI}\nentrypoint: a\n{rest}")
}

/// The plan with its warnings, or the errors, both as `say` puts them.
fn compiled_saying(
    say: impl Fn(&Sources, &Diagnostics) -> String,
    text: &str,
    strictness: Strictness,
) -> Result<(Arc<Plan>, String), String> {
    let mut sources = Sources::default();
    let format = if text.starts_with('{') { Format::Json } else { Format::Yaml };
    let document = sources.parse("f", text, format).map_err(|found| say(&sources, &found))?;
    match compile(&document, &support::catalog(), strictness) {
        Ok((plan, warnings)) => Ok((plan, say(&sources, &warnings))),
        Err(found) => {
            assert!(found.has_errors());
            Err(say(&sources, &found))
        }
    }
}

/// The plan with its warnings, or the errors, each with the text at its place.
fn compiled(text: &str, strictness: Strictness) -> Result<(Arc<Plan>, String), String> {
    compiled_saying(Sources::brief, text, strictness)
}

/// The messages for a definition that is refused at load.
fn refused(text: &str) -> String {
    compiled(text, Strictness::Load).map(|(_, warnings)| warnings).expect_err(text)
}

/// The warnings for a definition that compiles.
fn warned(text: &str) -> String {
    plan_and_warnings(text).1
}

/// Both, for a definition that compiles.
fn plan_and_warnings(text: &str) -> (Arc<Plan>, String) {
    compiled(text, Strictness::Load).unwrap_or_else(|found| panic!("it does not compile:\n{found}"))
}
