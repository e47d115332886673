//! Turns a response into a Result: by the route's rules, by the classification table, or by what is wrong with it.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Body as _;

use super::answer::Destination;
use super::attempt::Attempt;
use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::{Answer, Role};
use crate::language::value::Value;
use crate::proxy::answer::classify::{Class, ResponseView, Retryable, classify, system_time};
use crate::proxy::answer::reply::{Details, Payload, Reply, StatusLine};
use crate::proxy::answer::retry_after::{RetryAfter, retry_after};
use crate::proxy::body::BodyError;
use crate::proxy::body::collect::{CollectError, collect};
use crate::proxy::body::valued::valued;
use crate::proxy::boxed::{boxed, shared};
use crate::proxy::code;
use crate::proxy::grpc::{self, Ended, Pushback};
use crate::proxy::memory::Full;
use crate::proxy::message::{headers, upgrade};
use crate::proxy::settings::Protocol;
use crate::proxy::upstream::body::ResponseBody;
use crate::proxy::upstream::condition::{Cause, Reported};
use crate::proxy::upstream::connection::{ResponseSource, UpstreamResponse};
use crate::telemetry::metrics::BodyUse;

/// What becomes of a response.
pub(super) enum Judged {
    /// Its Result.
    Done(Answer),
    /// Its Result depends on more than the head: see [`Attempt::read_on`].
    Unread(Box<UnreadResponse>),
}

/// A response of which more than the head is needed.
pub(super) struct UnreadResponse {
    at: Destination,
    line: StatusLine,
    fields: HeaderMap,
    body: Box<ResponseBody>,
    grpc: bool,
}

/// A response, as far as it was read.
struct ReadResponse {
    line: StatusLine,
    fields: HeaderMap,
    payload: Payload,
    /// The body as expressions read it, if the route reads it.
    value: Option<Value>,
    /// The outcome of a gRPC call that failed without a message.
    ended: Option<Ended>,
}

/// The outcome of a gRPC call that ended before its first message.
async fn peek(body: &mut ResponseBody, fields: &HeaderMap) -> Option<Ended> {
    if body.is_end_stream() {
        return Ended::of(fields);
    }
    if let Some(trailers) = body.peek_trailers(grpc::PEEK).await {
        return Ended::of(trailers);
    }
    // An end without data right after the head still belongs to the head.
    body.is_end_stream().then(|| Ended::of(fields)).flatten()
}

/// Whether a failure with this status is one of the server's: it could do better the next time.
fn is_faulty(status: StatusCode) -> bool {
    status.is_server_error() && !matches!(status.as_u16(), 501 | 505)
}

impl Attempt<'_> {
    /// Handles a response.
    pub(super) fn got(&self, answered: UpstreamResponse) -> Judged {
        let UpstreamResponse { status, reason, mut fields, body } = answered;
        let at = Destination { reused: body.reused(), status: Some(status) };
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Judged::Done(self.switched(at, StatusLine { status, reason }, fields, body));
        }
        if status.as_u16() > 599 {
            // Nobody knows what it means, or whether a body follows (RFC 9110 §15).
            let what = format_args!("answered {}, which is no status", status.as_u16());
            return Judged::Done(self.invalid(at, "http_protocol_error", what));
        }
        if !headers::strip_hop_by_hop(&mut fields) {
            // It cannot be sent on (RFC 9112 §6.1).
            let what = format_args!("answered {} in an unknown transfer coding", status.as_u16());
            return Judged::Done(self.invalid(at, "http_response_transfer_coding", what));
        }
        if self.upstream.settings.protocol == Protocol::Http2 && !headers::is_length_sound(&fields)
        {
            let what = format_args!("answered {} with a bad Content-Length", status.as_u16());
            return Judged::Done(self.invalid(at, "http_protocol_error", what));
        }
        if status == StatusCode::NO_CONTENT {
            fields.remove(header::CONTENT_LENGTH);
        }
        let idle = self.upstream.settings.idle_timeout;
        let body = boxed(|| ResponseBody::new(body, self.progress.clone(), idle));
        let (grpc, line) = (self.is_grpc(status, &fields), StatusLine { status, reason });
        if grpc || self.exchange.route.facts.reads_response {
            let unread = UnreadResponse { at, line, fields, body, grpc };
            return Judged::Unread(Box::new(unread));
        }
        let payload = Payload::Stream(body);
        let received = ReadResponse { line, fields, payload, value: None, ended: None };
        Judged::Done(self.judge(at, received))
    }

    /// Handles a response of which more than the head is needed.
    pub(super) async fn read_on(&self, unread: UnreadResponse) -> Answer {
        let UnreadResponse { at, line, fields, mut body, grpc } = unread;
        let ended = if grpc { peek(&mut body, &fields).await } else { None };
        if !self.exchange.route.facts.reads_response {
            let payload = Payload::Stream(body);
            return self.judge(at, ReadResponse { line, fields, payload, value: None, ended });
        }
        match self.read(body, &fields).await {
            Ok((payload, value)) => {
                let value = Some(value);
                self.judge(at, ReadResponse { line, fields, payload, value, ended })
            }
            Err(error) => self.unread(at, line.status, &error),
        }
    }

    /// The Result of a response.
    fn judge(&self, at: Destination, received: ReadResponse) -> Answer {
        let ReadResponse { line, fields, payload, value, ended } = received;
        let status = line.status;
        let rules = &self.exchange.route.classify;
        // If nothing can read the time, the clock is not read.
        let timed = !rules.is_empty() || ended.is_some() || status.as_u16() >= 400;
        let clock = self.exchange.site.core.clock;
        let now = if timed { clock.now() } else { clock.begun() }.as_nanos();
        let seen =
            ResponseView { status, headers: &fields, body: value.as_ref(), grpc: ended, now };
        let (class, fault) = classify(rules, self.repeatable, seen);
        if let Some(fault) = fault {
            let step = self.dispatch.attempt.step;
            let message = format!("{step}: a rule of `classify` does not apply: {fault}");
            self.dispatch.destination.blame(Failure::error(fault.code(), message));
        }
        let (code, retryable, waits) = match class {
            Class::Success => {
                self.endpoint.report(Reported::Success);
                self.endpoint.spare();
                let reply = self.reply(line, fields, payload, value);
                return self.answer(at, Outcome::Success(Value::Native(reply)));
            }
            Class::Failure { code, retryable, waits } => (code, retryable, waits),
        };
        let faulty = ended.map_or_else(|| is_faulty(status), |ended| ended.status.is_faulty());
        self.endpoint.report(if faulty {
            Reported::Failure(Cause::Status)
        } else {
            Reported::Success
        });
        let max = self.upstream.settings.retry_after_max;
        let asked = || retry_after(&fields, system_time(now));
        let asked = match ended.map(|ended| ended.pushback) {
            Some(Pushback::After(wait)) => Some(wait),
            _ => waits.then(asked).flatten(),
        };
        let fields_ask = fields.contains_key(header::RETRY_AFTER);
        let never = ended.is_some_and(|ended| ended.pushback == Pushback::Never);
        let details = Details {
            retry_after: asked.map(|asked| RetryAfter { asked, max }),
            sent: self.sent(true),
            reply: Some(self.reply(line, fields, payload, value)),
            grpc_status: ended.map(|ended| ended.status),
            refusal: self.refusal().or_else(|| never.then_some(grpc::REFUSED_BY_SERVER)),
            ..self.details(at, "http_request_error")
        };
        let Some(ended) = ended else {
            // Otherwise nobody would know why the wait is another one.
            let vain = waits && asked.is_none() && fields_ask;
            let but =
                if vain { " with a Retry-After that is neither seconds nor a date" } else { "" };
            let what = format_args!("answered {}{but}", status.as_u16());
            return self.failed(at, code, retryable, what, details);
        };
        let (number, name) = (ended.status.number(), ended.status.name());
        let what = format_args!("answered grpc-status {number} ({name})");
        self.failed(at, code, retryable, what, details)
    }

    /// Whether the response belongs to a gRPC call.
    fn is_grpc(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        self.upstream.settings.protocol == Protocol::Http2
            && status == StatusCode::OK
            && grpc::is_grpc(fields.get(header::CONTENT_TYPE))
    }

    /// Reads the body, for expressions.
    async fn read(
        &self,
        mut body: Box<ResponseBody>,
        fields: &HeaderMap,
    ) -> Result<(Payload, Value), CollectError<BodyError>> {
        let limit = self.exchange.route.buffer.response;
        let mut reservation = self.exchange.site.memory.reservation();
        let (bytes, trailers) = collect(&mut *body, limit, &mut reservation).await?;
        let valued = valued(bytes, fields.get(header::CONTENT_TYPE), reservation).await;
        let (bytes, value) = valued.map_err(|Full| CollectError::Full)?;
        Ok((Payload::Buffered(bytes, trailers.map(Box::new)), value))
    }

    fn reply(
        &self,
        line: StatusLine,
        fields: HeaderMap,
        payload: Payload,
        value: Option<Value>,
    ) -> Arc<Reply> {
        let role = self.dispatch.attempt.role;
        let reply = shared(|| Reply::new(role, line, fields, payload, value));
        if role == Role::Cleanup {
            reply.discard();
        }
        reply
    }

    /// The body of a response could not be read, and the route reads it.
    fn unread(
        &self,
        at: Destination,
        status: StatusCode,
        error: &CollectError<BodyError>,
    ) -> Answer {
        let (sent, status) = (self.sent(true), status.as_u16());
        match error {
            CollectError::TooLarge => {
                let details = Details { sent, ..self.details(at, "http_response_body_size") };
                let limit = self.exchange.route.buffer.response;
                let what = format_args!(
                    "answered {status} with a body over the {limit} bytes that the route reads"
                );
                self.failed(at, code::BODY_TOO_LARGE, Retryable::Is(false), what, details)
            }
            CollectError::Full => {
                self.exchange.site.memory.refused(BodyUse::Response);
                let details = Details { sent, ..self.details(at, "proxy_internal_error") };
                let what = format_args!(
                    "answered {status} with a body for which there is no room (limits.bufferedBytes)"
                );
                self.failed(at, code::BODY_NOT_BUFFERED, Retryable::Is(false), what, details)
            }
            CollectError::Broken(error) => {
                self.endpoint.report(Reported::Failure(Cause::ConnectionClosed));
                let details = Details { sent, ..self.details(at, "http_response_incomplete") };
                let what = format_args!("answered {status}, but {error}");
                self.failed(at, code::CONNECTION_CLOSED, Retryable::ByMethod, what, details)
            }
        }
    }

    /// 101: the protocol is switched, if that was offered.
    fn switched(
        &self,
        at: Destination,
        line: StatusLine,
        mut fields: HeaderMap,
        body: ResponseSource,
    ) -> Answer {
        let offered = self.exchange.asked.upgrade.as_ref().filter(|_| self.offers);
        let agreed = offered.is_some_and(|offered| upgrade::is_offered(offered, &fields));
        let (true, ResponseSource::Http1(connection)) = (agreed, body) else {
            let what = format_args!("answered {}, which nobody asked for", line.status.as_u16());
            return self.invalid(at, "http_upgrade_failed", what);
        };
        let protocols: Vec<_> = fields.get_all(header::UPGRADE).iter().cloned().collect();
        headers::strip_hop_by_hop(&mut fields);
        fields.remove(header::CONTENT_LENGTH);
        fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        for protocol in protocols {
            fields.append(header::UPGRADE, protocol);
        }
        self.endpoint.report(Reported::Success);
        self.endpoint.spare();
        let tunnel = Payload::Tunnel(Box::new(connection));
        let reply = self.reply(line, fields, tunnel, None);
        self.answer(at, Outcome::Success(Value::Native(reply)))
    }

    /// The response breaks a rule of HTTP. `what` names it.
    fn invalid(
        &self,
        at: Destination,
        proxy_status: &'static str,
        what: fmt::Arguments<'_>,
    ) -> Answer {
        self.endpoint.report(Reported::Failure(Cause::ProtocolError));
        let details = Details { sent: self.sent(true), ..self.details(at, proxy_status) };
        self.failed(at, code::PROTOCOL_ERROR, Retryable::ByMethod, what, details)
    }
}
