//! What is said and counted of an attempt: its window, its place in messages, its metrics.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use tokio::time::Instant;

use crate::language::code::{Code, system};
use crate::language::provider::{Answer, Dispatch};
use crate::language::value::{Map, Native, Value};
use crate::proxy::request::Exchange;
use crate::proxy::upstream::Upstream;

/// `provider.metadata`.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) request_id: Arc<str>,
    pub(super) status: Option<StatusCode>,
    pub(super) endpoint: Arc<str>,
    pub(super) reused: bool,
}

impl Native for Window {
    fn member(&self, name: &str) -> Option<Value> {
        match name {
            "requestId" => Some(Value::String(Arc::clone(&self.request_id))),
            "status" => Some(Value::from(u32::from(self.status?.as_u16()))),
            "endpoint" => Some(Value::String(Arc::clone(&self.endpoint))),
            "reusedConnection" => Some(Value::Bool(self.reused)),
            _ => None,
        }
    }

    fn to_map(&self) -> Map {
        ["requestId", "status", "endpoint", "reusedConnection"]
            .into_iter()
            .filter_map(|name| Some((name.into(), self.member(name)?)))
            .collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// `3 of 5`, or `3` where no number says how many there may be.
pub(super) struct Run<'a>(pub(super) &'a Dispatch<'a>);

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.attempts {
            Some(all) => write!(f, "{} of {all}", self.0.attempt),
            None => write!(f, "{}", self.0.attempt),
        }
    }
}

/// An error and what caused it, in one line.
pub(super) struct Causes<'a>(pub(super) &'a (dyn std::error::Error + 'static));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// Counts the attempt; one that is interrupted, as what interrupted it.
pub(super) struct Count<'a> {
    exchange: &'a Exchange,
    upstream: &'a Upstream,
    interrupted: &'a OnceLock<Code>,
    begun: Instant,
    done: bool,
}

impl<'a> Count<'a> {
    /// The attempt begins.
    pub(super) fn begin(
        exchange: &'a Exchange,
        upstream: &'a Upstream,
        interrupted: &'a OnceLock<Code>,
    ) -> Self {
        Self { exchange, upstream, interrupted, begun: Instant::now(), done: false }
    }

    /// When it began.
    pub(super) const fn begun(&self) -> Instant {
        self.begun
    }

    /// It came to `answer`.
    pub(super) fn end(mut self, answer: Answer) -> Answer {
        self.done = true;
        self.count(answer.outcome.failure().map(|failure| failure.code.as_str()));
        answer
    }

    fn count(&self, code: Option<&str>) {
        let upstream = &self.upstream.settings.name;
        let metrics = &self.exchange.route.metrics;
        metrics.attempt(upstream, code, self.begun.elapsed());
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.count(Some(self.interrupted.get().map_or(system::CANCELLED, Code::as_str)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::CONTRACT;
    use super::*;

    #[test]
    fn the_window_holds_the_declared_members_and_no_others() {
        let window = Window {
            request_id: "r".into(),
            status: Some(StatusCode::OK),
            endpoint: "a:80".into(),
            reused: true,
        };
        let held: BTreeSet<String> = window.to_map().keys().map(ToString::to_string).collect();
        let declared = CONTRACT.document["metadata"]["properties"].as_object();
        let declared: BTreeSet<String> = declared.unwrap().keys().cloned().collect();
        assert_eq!(held, declared);
        assert_eq!(window.member("other"), None);
    }
}
