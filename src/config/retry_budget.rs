//! `retryBudget:` of an upstream.

use super::read::Object;
use super::report::Report;
use super::shape::{Section, Shape, or};
use crate::proxy::settings::RetryBudget;

pub(super) const RETRY_BUDGET: Section = Section {
    name: "`retryBudget`",
    doc: "How many re-runs after failures of the upstream are allowed, over all routes and workers. Beyond it a Retry gives up at once, with `details.reason: retryBudgetSpent`, and the client gets the upstream's own response. Retries of cleanups don't count.",
    fields: &[
        or(
            "share",
            Shape::Number(0.0, 1.0),
            "0.2",
            "As many as this share of the upstream's requests within the window, re-runs not counted.",
        ),
        or(
            "minPerSecond",
            Shape::Count(0, 1_000_000),
            "10",
            "At least as many within the window as this many a second, so that few requests can be retried.",
        ),
        or("window", Shape::Duration, r#""PT10S""#, "Over how long both are counted."),
    ],
};

/// The budget of an upstream; `None` if it has no such key.
pub(super) fn retry_budget(report: &Report, upstream: &Object<'_>) -> Option<RetryBudget> {
    let node = upstream.get("retryBudget")?;
    let object = Object::open(report, "retryBudget", node, &RETRY_BUDGET)?;
    let least = object.count("minPerSecond").unwrap_or_default();
    Some(RetryBudget {
        share: object.number("share"),
        min_per_second: u32::try_from(least).unwrap_or(u32::MAX),
        window: object.duration("window", ("PT1S", "PT1H")),
    })
}
