//! A record as JSON with the chain of failures, for `/executions`. The access log has the same members ([`line`](super::line)).

use std::net::IpAddr;

use serde::Serialize;
use tokio::time::Instant;

use super::{Attempt, Call, CaughtFailure, Cause, Execution, FiredBound, short};

/// A record as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordJson<'a> {
    time: String,
    execution: &'a str,
    request: String,
    route: Option<&'a str>,
    client: IpAddr,
    method: &'a str,
    path: &'a str,
    status: u16,
    result: &'a str,
    code: Option<&'a str>,
    duration: f64,
    bytes_in: u64,
    bytes_out: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    attempts: Vec<AttemptJson<'a>>,
    #[serde(rename = "attemptsOmitted", skip_serializing_if = "Option::is_none")]
    omitted: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    caught: Vec<CaughtJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bounds: Vec<BoundJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<&'a Vec<Cause>>,
}

/// A caught failure as JSON.
#[derive(Serialize)]
struct CaughtJson<'a> {
    step: &'a str,
    next: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cleanup: bool,
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<&'a Vec<Cause>>,
}

/// A bound that fired as JSON.
#[derive(Serialize)]
struct BoundJson<'a> {
    entry: &'a str,
    duration: Option<&'a str>,
    /// Since the beginning of the request.
    fired: f64,
}

/// An attempt as JSON.
#[derive(Serialize)]
struct AttemptJson<'a> {
    #[serde(flatten)]
    call: &'a Call,
    upstream: &'a str,
    endpoint: &'a str,
    status: Option<u16>,
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
    /// Since the beginning of the request.
    began: f64,
    waited: Option<f64>,
    source: Option<&'static str>,
    took: f64,
}

impl Execution {
    /// With the whole chain, for `/executions`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self.shown(true)).unwrap_or_default()
    }

    pub(super) fn shown(&self, chain: bool) -> RecordJson<'_> {
        let Self { request, answer, attempts, omitted, failures, caught, bounds } = self;
        let first = failures.first();
        RecordJson {
            time: request.at.to_string(),
            execution: &request.id,
            request: request.request.to_string(),
            route: request.route.as_deref(),
            client: request.client,
            method: short(&request.method),
            path: short(&request.path),
            status: answer.status,
            result: first.map_or("success", |cause| &cause.ty),
            code: first.map(|cause| &*cause.code),
            duration: answer.took.as_secs_f64(),
            bytes_in: request.received,
            bytes_out: answer.sent,
            trace: request.trace.as_ref().map(|traced| traced.context.trace_id()),
            attempts: attempts.iter().map(|attempt| shown(attempt, answer.began)).collect(),
            omitted: (*omitted > 0).then_some(*omitted),
            caught: caught.iter().map(|caught| caught_json(caught, chain)).collect(),
            bounds: bounds.iter().map(|bound| bound_json(bound, answer.began)).collect(),
            failures: chain.then_some(failures),
        }
    }
}

fn bound_json(FiredBound { entry, duration, fired }: &FiredBound, begun: Instant) -> BoundJson<'_> {
    let fired = fired.saturating_duration_since(begun).as_secs_f64();
    BoundJson { entry, duration: duration.as_deref(), fired }
}

fn caught_json(caught: &CaughtFailure, chain: bool) -> CaughtJson<'_> {
    let CaughtFailure { step, next, cleanup, chain: failures } = caught;
    let code = failures.first().map(|cause| &*cause.code);
    let failures = chain.then_some(failures);
    CaughtJson { step, next, cleanup: *cleanup, code, failures }
}

fn shown(attempt: &Attempt, begun: Instant) -> AttemptJson<'_> {
    AttemptJson {
        call: &attempt.call,
        upstream: &attempt.upstream,
        endpoint: &attempt.endpoint,
        status: attempt.status,
        code: attempt.code.as_deref(),
        interrupted: attempt.interrupted,
        began: attempt.began.saturating_duration_since(begun).as_secs_f64(),
        waited: attempt.wait.map(|wait| wait.delay.as_secs_f64()),
        source: attempt.wait.map(|wait| wait.source.as_str()),
        took: attempt.took.as_secs_f64(),
    }
}
