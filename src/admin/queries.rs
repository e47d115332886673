//! The queries of pages. Each error names what was found and what is expected.

use super::unknown;
use crate::proxy::message::query;
use crate::telemetry::executions::Filter;
use crate::telemetry::record::Kind;

/// Parses the query of `/executions`. The error names what was found and what is expected.
pub(super) fn executions(query: &str) -> Result<Filter, String> {
    let mut filter = Filter::default();
    for (name, value) in query::pairs(query) {
        match (&*name, &*value) {
            ("route", _) => filter.route = Some(value.into_owned()),
            ("execution", _) => filter.execution = Some(value.into_owned()),
            ("request", _) => filter.request = Some(value.into_owned()),
            ("limit", _) => {
                let limit = value.parse().ok().filter(|limit| *limit > 0);
                let problem = || format!("`limit` is `{value}`; wanted: a number above 0\n");
                filter.limit = Some(limit.ok_or_else(problem)?);
            }
            ("outcome", "success") => filter.kind = Some(Kind::Success),
            ("outcome", "degraded") => filter.kind = Some(Kind::Degraded),
            ("outcome", "failure") => filter.kind = Some(Kind::Failure),
            ("outcome", _) => {
                return Err(format!(
                    "`outcome` is `{value}`; wanted: success, degraded or failure\n"
                ));
            }
            _ => return Err(unknown(&name, "route, outcome, execution, request, limit")),
        }
    }
    Ok(filter)
}

/// Parses the query of `/history`: the number of the last sample that is known.
pub(super) fn since(query: &str) -> Result<u64, String> {
    let mut since = 0;
    for (name, value) in query::pairs(query) {
        if name != "since" {
            return Err(unknown(&name, "since"));
        }
        let problem = || format!("`since` is `{value}`; wanted: the number of a sample\n");
        since = value.parse().map_err(|_| problem())?;
    }
    Ok(since)
}
