//! What is said and counted of an attempt: its window, its place in messages, its metrics.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use http::uri::Scheme;
use http::{HeaderValue, Method, StatusCode, Uri};
use tokio::time::Instant;

use crate::language::code::{Code, system};
use crate::language::outcome::Outcome;
use crate::language::provider::{Answer, Dispatch, Role};
use crate::language::value::{Map, Native, Value};
use crate::proxy::message::id;
use crate::proxy::request::exchange::Exchange;
use crate::proxy::request::recording;
use crate::proxy::upstream::Upstream;
use crate::telemetry::record::{Attempt, Sent, Wait};
use crate::telemetry::trace::SpanId;

/// `provider.metadata`.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) request_id: HeaderValue,
    pub(super) status: Option<StatusCode>,
    pub(super) endpoint: Arc<str>,
    pub(super) reused: bool,
}

impl Native for Window {
    fn member(&self, name: &str) -> Option<Value> {
        match name {
            "requestId" => Some(Value::from(id::text(&self.request_id))),
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

/// Counts and records the attempt; one that is interrupted, as what interrupted it.
pub(super) struct Count<'a> {
    exchange: &'a Exchange,
    upstream: &'a Upstream,
    step: &'a str,
    number: u32,
    role: Role,
    interrupted: &'a OnceLock<Code>,
    begun: Instant,
    /// What the upstream is told that it is called by.
    pub(super) span: Option<SpanId>,
    /// What is sent, where a span says so.
    target: Option<Box<(Method, Uri)>>,
    wait: Option<Wait>,
    /// Where it goes.
    pub(super) endpoint: usize,
    done: bool,
}

/// Where an attempt went, as far as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Where {
    pub(super) endpoint: usize,
    pub(super) reused: bool,
    /// Of the response, where there was one.
    pub(super) status: Option<StatusCode>,
}

impl<'a> Count<'a> {
    /// The attempt begins, at the upstream at this position: its endpoint is chosen.
    pub(super) fn begin(
        exchange: &'a Exchange,
        (position, upstream): (usize, &'a Upstream),
        dispatch: &Dispatch<'a>,
    ) -> Self {
        let step = dispatch.step_name;
        Self {
            exchange,
            upstream,
            step,
            number: dispatch.attempt,
            role: dispatch.role,
            interrupted: dispatch.interrupted,
            begun: Instant::now(),
            span: recording::span(exchange),
            target: None,
            wait: exchange.recorder(false).and_then(|recorder| recorder.waited(step)),
            endpoint: upstream.pick(exchange.avoided(position)),
            done: false,
        }
    }

    /// It sends this.
    pub(super) fn sends(&mut self, method: &Method, uri: &Uri) {
        if self.exchange.traced().is_some() {
            self.target = Some(Box::new((method.clone(), uri.clone())));
        }
    }

    /// When it began.
    pub(super) const fn begun(&self) -> Instant {
        self.begun
    }

    /// It came to `answer`.
    pub(super) fn end(mut self, answer: Answer) -> Answer {
        self.done = true;
        self.count(Some(&answer.outcome));
        answer
    }

    /// `None`: it was interrupted.
    fn count(&self, outcome: Option<&Outcome>) {
        let interrupted = || self.interrupted.get().map_or(system::CANCELLED, Code::as_str);
        let code = match outcome {
            Some(outcome) => outcome.failure().map(|failure| failure.code.as_str()),
            None => Some(interrupted()),
        };
        let upstream = &self.upstream.settings.name;
        let took = self.begun.elapsed();
        self.exchange.route.metrics.attempt(upstream, code, took);
        let Some(recorder) = self.exchange.recorder(code.is_some()) else {
            return;
        };
        let sent = self.target.as_deref().zip(self.span).map(|((method, uri), id)| Sent {
            id,
            method: method.as_str().into(),
            scheme: if self.upstream.scheme(self.endpoint) == Scheme::HTTPS {
                "https"
            } else {
                "http"
            },
            path: uri.path().into(),
        });
        recorder.attempt(Attempt {
            step: self.step.into(),
            number: self.number,
            cleanup: self.role == Role::Cleanup,
            upstream: Arc::clone(upstream),
            endpoint: Arc::clone(self.upstream.authority(self.endpoint)),
            status: outcome.and_then(status),
            code: code.map(Into::into),
            interrupted: !self.done,
            wait: self.wait,
            began: self.begun,
            took,
            span: sent,
        });
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.count(None);
        }
    }
}

/// Of the response, where there was one.
fn status(outcome: &Outcome) -> Option<u16> {
    let status = match outcome {
        Outcome::Success(value) => value.get("status"),
        Outcome::Failure(failure) => failure.details.as_ref()?.get("status"),
    };
    u16::try_from(status?.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::proxy::provider::http::CONTRACT;

    #[test]
    fn the_window_holds_the_declared_members_and_no_others() {
        let window = Window {
            request_id: HeaderValue::from_static("r"),
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
