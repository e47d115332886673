//! Shared by the random laws: the virtual clock, the codes, and a run of a definition that may be cancelled.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mwl_proxy::language::definition::{Strictness, compile};
use mwl_proxy::language::engine::{Start, run};
use mwl_proxy::language::outcome::Outcome;
use mwl_proxy::language::plan::Plan;
use mwl_proxy::language::value::Value;
use mwl_proxy::source::{Format, Sources};
use mwl_proxy::telemetry::events::Subject;
use mwl_proxy::telemetry::record::RequestId;
use proptest::prelude::ProptestConfig;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::script::Scripted;

pub(crate) const EXCEEDED: &str = "Provider.Middleware.Timeout.Exceeded";
pub(crate) const EXHAUSTED: &str = "Provider.Middleware.Retry.Exhausted";
pub(crate) const CANCELLED: &str = "System.Cancelled";
pub(crate) const SCRIPT: &str = "mwl:provider.call/test/script/v1";
/// `Start::cleanup_limit` of these runs, in milliseconds.
pub(crate) const CLEANUP_LIMIT: u64 = 40;

/// This many random cases, or as many as `LAW_CASES` says.
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("LAW_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = asked.unwrap_or(usual);
    ProptestConfig {
        cases,
        max_global_rejects: cases.max(1024),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// What the events of an execution without a request belong to.
pub(crate) const fn subject(execution: &str) -> Subject<'_> {
    Subject { execution, request: RequestId([0; 8]), route: "route" }
}

/// This many milliseconds in ISO 8601.
pub(crate) fn duration(millis: u64) -> String {
    format!("PT{}.{:03}S", millis / 1000, millis % 1000)
}

/// The URI of a middleware that the specification defines.
pub(crate) fn middleware(name: &str) -> String {
    format!("mwl:provider.middleware/mwl/{name}/v1")
}

/// Runs `future` with its own clock, which jumps when everything waits.
pub(crate) fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(future)
}

/// The plan of `definition`, whose calls play `scripted`.
pub(crate) fn planned(scripted: &Arc<Scripted>, mut definition: serde_json::Value) -> Arc<Plan> {
    definition["$schema"] = "https://mwl.dev/v0.1/flow/schema.json".into();
    let mut sources = Sources::default();
    let node = sources.parse("case.json", &definition.to_string(), Format::Json).unwrap();
    match compile(&node, &scripted.catalog(), Strictness::Load) {
        Ok((plan, _advice)) => plan,
        Err(diagnostics) => panic!("{}", sources.render(&diagnostics)),
    }
}

/// Runs `definition` on the input 1, possibly cancelled from outside at an instant. Returns its Result, and
/// when it ended.
pub(crate) async fn ended(
    scripted: &Arc<Scripted>,
    definition: serde_json::Value,
    cancel: Option<u64>,
) -> (Outcome, u64) {
    let plan = planned(scripted, definition);
    let began = Instant::now();
    let token = CancellationToken::new();
    if let Some(at) = cancel {
        let token = token.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(began + Duration::from_millis(at)).await;
            token.cancel();
        });
    }
    // Like a host: an execution with nothing to unwind is not cancelled but dropped.
    let cancellable = plan.needs_unwind() || cancel.is_some();
    let mut start = Start {
        cancel: cancellable.then_some(token),
        cleanup_limit: Duration::from_millis(CLEANUP_LIMIT),
        ..Start::new("law")
    };
    let outcome = run(&plan, &mut start, Value::empty_object(), Value::from(1)).await;
    (outcome, u64::try_from(began.elapsed().as_millis()).unwrap())
}
