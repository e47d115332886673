//! The outcome of an attempt as the language carries it: a [`Reply`] is the value of a success, [`Details`] the
//! `details` of a failure. Both hold the upstream's response unread, so that it streams to the client unless
//! something reads it.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body as _;
use tokio::time::Instant;

use super::body::AnswerBody;
use super::retry_after::RetryAfter;
use super::watched::{Keeper, WatchedBody};
use crate::language::provider::Role;
use crate::language::provider::middleware::retry::BUDGET_SPENT;
use crate::language::temporal::Span;
use crate::language::value::{Map, Missing, Native, RerunGrant, Value};
use crate::proxy::grpc::Status;
use crate::proxy::message::headers;
use crate::proxy::upstream::body::ResponseBody;
use crate::proxy::upstream::connection::Http1Lease;
use crate::proxy::upstream::retry_budget::RetryBudget;

/// An upstream's response: the object `{status, headers, body}`. `body` is only present if the route buffers it, and
/// only for those who name it.
#[derive(Debug)]
pub(crate) struct Reply {
    line: StatusLine,
    /// Who made the call. A cleanup's response never goes to the client.
    role: Role,
    /// The value of `body` in expressions.
    body: Option<Value>,
    held: Mutex<ReplyState>,
}

/// The status line of a response.
#[derive(Debug)]
pub(crate) struct StatusLine {
    pub(crate) status: StatusCode,
    /// The reason phrase, if it is not the usual one.
    pub(crate) reason: Option<Bytes>,
}

/// What is left of the response.
#[derive(Debug)]
enum ReplyState {
    /// All of it.
    Whole(HeaderMap, Payload),
    /// It went to the client.
    Passed,
    /// A re-run consumed its failure. The fields stay readable.
    Discarded(HeaderMap),
}

/// A response's body.
#[derive(Debug)]
pub(crate) enum Payload {
    /// It is still arriving.
    Stream(Box<ResponseBody>),
    /// The same, and somebody keeps a copy.
    Watched(Box<WatchedBody>),
    /// It was read, with its trailers, because an expression of the route reads it.
    Buffered(Bytes, Option<Box<HeaderMap>>),
    /// None: the connection has switched its protocol.
    Tunnel(Box<Http1Lease>),
}

/// What is known about a failed attempt: the object `details`.
#[derive(Debug)]
pub(crate) struct Details {
    /// The endpoint, as `host:port`.
    pub(crate) endpoint: Arc<str>,
    /// Who made the attempt.
    pub(crate) role: Role,
    /// How much of the request was sent.
    pub(crate) sent: RequestSent,
    /// Whether the connection had carried another request before.
    pub(crate) reused: bool,
    /// How far connecting got.
    pub(crate) phase: Option<&'static str>,
    /// How long the upstream asks to wait.
    pub(crate) retry_after: Option<RetryAfter>,
    /// gRPC's status, if this is a failed gRPC call.
    pub(crate) grpc_status: Option<Status>,
    /// Why the attempt cannot be repeated, if so.
    pub(crate) refusal: Option<&'static str>,
    /// The upstream's budget of retries, if it has one.
    pub(crate) retry_budget: Option<Arc<RetryBudget>>,
    /// The error type of RFC 9209.
    pub(crate) proxy_status: &'static str,
    /// The response, if there was one.
    pub(crate) reply: Option<Arc<Reply>>,
}

/// `details.requestSent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestSent {
    /// Not a byte.
    None,
    /// Some of it.
    Partial,
    /// All of it.
    Complete,
}

impl ReplyState {
    /// Takes the body out, if it is there; nobody will read it.
    fn discard(&mut self) -> Option<Payload> {
        match std::mem::replace(self, Self::Passed) {
            Self::Whole(headers, payload) => {
                *self = Self::Discarded(headers);
                Some(payload)
            }
            other => {
                *self = other;
                None
            }
        }
    }
}

impl RequestSent {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Partial => "partial",
            Self::Complete => "complete",
        }
    }
}

impl Reply {
    /// A response whose body streams, or was buffered as `body`.
    pub(crate) const fn new(
        role: Role,
        line: StatusLine,
        headers: HeaderMap,
        payload: Payload,
        body: Option<Value>,
    ) -> Self {
        Self { line, role, body, held: Mutex::new(ReplyState::Whole(headers, payload)) }
    }

    /// Takes the response for the client. `None` if it belongs to a cleanup, was consumed, or was taken before.
    pub(crate) fn take(&self) -> Option<Response<AnswerBody>> {
        if self.role == Role::Cleanup {
            return None;
        }
        let mut held = self.lock();
        let ReplyState::Whole(headers, payload) = std::mem::replace(&mut *held, ReplyState::Passed)
        else {
            return None;
        };
        let body = match payload {
            Payload::Stream(body) => AnswerBody::upstream(body),
            Payload::Watched(body) => AnswerBody::watched(body),
            Payload::Buffered(bytes, trailers) => AnswerBody::trailed(bytes, trailers),
            Payload::Tunnel(far) => AnswerBody::tunnel(far),
        };
        let mut response = Response::new(body.with_reason(self.line.reason.clone()));
        *response.status_mut() = self.line.status;
        *response.headers_mut() = headers;
        Some(response)
    }

    /// Lets the keeper that `made` returns for this head have a copy of the body, as it passes. A tunnel has none, and a
    /// body that was taken before has passed.
    pub(crate) fn watch(
        &self,
        made: impl FnOnce(&StatusLine, &HeaderMap) -> Option<Box<dyn Keeper>>,
    ) {
        let mut held = self.lock();
        let ReplyState::Whole(headers, payload) = &mut *held else {
            return;
        };
        if matches!(payload, Payload::Tunnel(_) | Payload::Watched(_)) {
            return;
        }
        let Some(mut keeper) = made(&self.line, headers) else {
            return;
        };
        match std::mem::replace(payload, Payload::Buffered(Bytes::new(), None)) {
            Payload::Stream(body) if body.is_end_stream() => {
                *payload = Payload::Stream(body);
                keeper.complete(None);
            }
            Payload::Stream(body) => {
                *payload = Payload::Watched(Box::new(WatchedBody::new(body, keeper)));
            }
            Payload::Buffered(bytes, trailers) => {
                if keeper.data(&bytes) {
                    keeper.complete(trailers.as_deref());
                }
                *payload = Payload::Buffered(bytes, trailers);
            }
            other => *payload = other,
        }
    }

    /// Its status.
    pub(crate) const fn status(&self) -> StatusCode {
        self.line.status
    }

    /// Returns the connection: nobody will read the body.
    pub(crate) fn discard(&self) {
        let mut held = self.lock();
        let payload = held.discard();
        drop(held);
        if let Some(Payload::Stream(body)) = payload {
            body.drain();
        }
    }

    /// The value at `path` in the fields, which are gone once they went to the client.
    fn headers(&self, path: &[Arc<str>]) -> Result<Value, Missing> {
        match &*self.lock() {
            ReplyState::Whole(headers, _) | ReplyState::Discarded(headers) => {
                headers::at(headers, path).map_err(Missing::below)
            }
            ReplyState::Passed => Err(Missing::MEMBER),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReplyState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody took the response. Its connection can be used again if little of it is left.
impl Drop for Reply {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let ReplyState::Whole(_, Payload::Stream(_)) = held
            && let Some(Payload::Stream(body)) = held.discard()
        {
            body.drain();
        }
    }
}

impl Native for Reply {
    fn member(&self, name: &str) -> Option<Value> {
        match name {
            "status" => Some(Value::from(u32::from(self.line.status.as_u16()))),
            "headers" => self.headers(&[]).ok(),
            "body" => self.body.clone(),
            _ => None,
        }
    }

    fn at(&self, member: &str, rest: &[Arc<str>]) -> Result<Value, Missing> {
        match member {
            "headers" => self.headers(rest),
            _ => Missing::follow(self.member(member), rest),
        }
    }

    /// Without the body: whether that was read depends on what else the route's expressions name.
    fn to_map(&self) -> Map {
        members(self, &["status", "headers"])
    }

    fn discard(&self) {
        Self::discard(self);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Native for Details {
    fn member(&self, name: &str) -> Option<Value> {
        match name {
            "status" | "headers" | "body" => self.reply.as_ref()?.member(name),
            "endpoint" => Some(Value::String(Arc::clone(&self.endpoint))),
            "requestSent" => Some(Value::from(self.sent.as_str())),
            "connectionReused" => Some(Value::Bool(self.reused)),
            "phase" => self.phase.map(Value::from),
            "grpcStatus" => self.grpc_status.map(|status| Value::from(status.number())),
            "retryAfter" => {
                let wait = Span::from_duration(self.retry_after?.wait());
                Some(Value::string(wait.to_string()))
            }
            _ => None,
        }
    }

    fn at(&self, member: &str, rest: &[Arc<str>]) -> Result<Value, Missing> {
        match (member, &self.reply) {
            ("headers", Some(reply)) => reply.at(member, rest),
            _ => Missing::follow(self.member(member), rest),
        }
    }

    /// Without the body, as in a [`Reply`].
    fn to_map(&self) -> Map {
        let names = [
            "status",
            "headers",
            "endpoint",
            "requestSent",
            "connectionReused",
            "phase",
            "grpcStatus",
            "retryAfter",
        ];
        members(self, &names)
    }

    fn rerun_refusal(&self) -> Option<&'static str> {
        self.refusal
    }

    /// A cleanup's work must be done, so its retries need no budget.
    fn take_rerun(&self) -> Option<RerunGrant> {
        let budget = self.retry_budget.as_ref().filter(|_| self.role == Role::Step);
        Some(match budget {
            Some(budget) if !budget.take(Instant::now()) => RerunGrant::Refused(BUDGET_SPENT),
            _ => RerunGrant::Granted,
        })
    }

    fn longer_wait(&self) -> Option<std::time::Duration> {
        self.retry_after.filter(|wait| wait.asked > wait.max).map(|wait| wait.asked)
    }

    fn discard(&self) {
        if let Some(reply) = &self.reply {
            reply.discard();
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn members(native: &dyn Native, names: &[&str]) -> Map {
    names.iter().filter_map(|name| Some(((*name).into(), native.member(name)?))).collect()
}
