//! One dispatch, from `with` and input to a Result.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Body as _;
use tokio::time::sleep;

use super::CONTRACT;
use super::compose::{Source, compose, is_own};
use super::params::Params;
use super::record::{Causes, Count, Run, Where, Window};
use super::send::Lost;
use crate::language::code::Code;
use crate::language::expr::EvalError;
use crate::language::outcome::{Failure, FailureType, Outcome};
use crate::language::provider::{Answer, Dispatch, Role};
use crate::language::value::Value;
use crate::proxy::answer::classify::{Class, Repeatable, Seen, classify, system_time};
use crate::proxy::answer::reply::{Details, Payload, Reply, Sent};
use crate::proxy::answer::retry_after::retry_after;
use crate::proxy::body::BodyError;
use crate::proxy::body::collect::{CollectError, collect};
use crate::proxy::body::request::Progress;
use crate::proxy::body::source::Broken;
use crate::proxy::code;
use crate::proxy::grpc::{self, Ended, Pushback};
use crate::proxy::message::{headers, media, upgrade};
use crate::proxy::request::exchange::Exchange;
use crate::proxy::settings::Protocol;
use crate::proxy::upstream::Upstream;
use crate::proxy::upstream::body::ResponseBody;
use crate::proxy::upstream::connection::{Answered, Arriving, Connection, Far, SendError};
use crate::proxy::upstream::ending::Ending;
use crate::proxy::upstream::outgoing::Outgoing;
use crate::telemetry::trace::SpanId;

/// What an attempt is made with, and what is known of it whatever comes.
pub(super) struct Attempt<'a> {
    pub(super) dispatch: Dispatch<'a>,
    pub(super) params: &'a Params,
    pub(super) exchange: &'a Exchange,
    pub(super) upstream: &'a Arc<Upstream>,
    /// The endpoint that it goes to.
    pub(super) endpoint: usize,
    /// Whether the request's method makes it repeatable, or its key.
    pub(super) repeatable: Repeatable,
    /// Whether the request offers to change the protocol.
    pub(super) offers: bool,
    /// Whether the client hears of interim answers.
    pub(super) passes: bool,
    pub(super) progress: Progress,
    /// What the upstream is told that it is called by.
    pub(super) span: Option<SpanId>,
}

/// How long a cancellation may take to drop the call that asked for it.
const CANCELLATION: Duration = Duration::from_secs(1);

/// A response, as far as it was read.
struct Received {
    status: StatusCode,
    fields: HeaderMap,
    payload: Payload,
    /// What expressions read of the body, where the route reads it.
    value: Option<Value>,
    /// How a gRPC call ended that sent no message.
    ended: Option<Ended>,
}

/// An attempt that runs.
pub(super) type Running<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Runs a dispatch.
///
/// What needs no waiting is done here. The common attempt finds a connection at hand, so that its request is on
/// its way before there is a future, which holds what the answer needs and no more.
pub(super) fn run(dispatch: Dispatch<'_>) -> Running<'_> {
    let at_once = |answer| Box::pin(std::future::ready(answer));
    let Some(params) = dispatch.with.downcast_ref::<Params>() else {
        return at_once(Answer::wrong_with(&CONTRACT));
    };
    let exchange = dispatch.host.and_then(|host| host.downcast_ref::<Exchange>());
    let Some(exchange) = exchange else {
        return at_once(no_proxy(&dispatch));
    };
    let Some(upstream) = exchange.site.upstreams.get(params.upstream) else {
        return at_once(no_proxy(&dispatch));
    };
    if dispatch.role == Role::Step {
        exchange.count_attempt();
    }
    let mut count = Count::begin(exchange, (params.upstream, upstream.as_ref()), &dispatch);
    let span = count.span;
    let (outgoing, body) = compose(params, &dispatch, exchange, span);
    count.sends(&outgoing.method, &outgoing.uri);
    let attempt = Attempt {
        offers: outgoing.upgrade.is_some(),
        passes: dispatch.role == Role::Step && is_own(&dispatch, exchange),
        repeatable: Repeatable::of(&outgoing.method, &outgoing.fields),
        progress: body.progress(),
        endpoint: count.endpoint,
        dispatch,
        params,
        exchange,
        upstream,
        span,
    };
    let Some(mut connection) = upstream.at_hand(attempt.endpoint, count.begun()) else {
        return Box::pin(attempt.over_new(outgoing, body, count));
    };
    match attempt.hand_over(&mut connection, outgoing, body) {
        Ok(()) => Box::pin(attempt.over(connection, count)),
        Err(lost) => Box::pin(async move {
            let answer = attempt.lost(lost).await;
            count.end(answer)
        }),
    }
}

/// A dispatch outside the proxy: a definition that is run from the command line, say.
fn no_proxy(dispatch: &Dispatch<'_>) -> Answer {
    let message = format!(
        "{}: there is no proxy to send this request: the http provider serves routes",
        dispatch.step_name
    );
    Answer {
        outcome: Failure::error(code::CONNECTION_FAILED, message).with_retryable(false).into(),
        metadata: Value::Null,
    }
}

/// How a gRPC call ended, where it has ended before its first message.
async fn peek(body: &mut ResponseBody, fields: &HeaderMap) -> Option<Ended> {
    if body.is_end_stream() {
        return Ended::of(fields);
    }
    if let Some(trailers) = body.peek_trailers(grpc::PEEK).await {
        return Ended::of(trailers);
    }
    // An end that comes by itself, behind the head, is the end of the head all the same.
    body.is_end_stream().then(|| Ended::of(fields)).flatten()
}

impl Attempt<'_> {
    /// Over a connection that was at hand, when the request was handed over.
    async fn over(self, connection: Connection, count: Count<'_>) -> Answer {
        let answer = match self.response(connection).await {
            Ok(answered) => self.got(answered).await,
            // Boxed, as is all that is rare: what is common need not carry it.
            Err(error) => Box::pin(self.failed_over(error)).await,
        };
        count.end(answer)
    }

    /// Over a connection that must first be made, or waited for.
    async fn over_new(self, outgoing: Outgoing<'_>, body: Source, count: Count<'_>) -> Answer {
        let sent = match Box::pin(self.connection()).await {
            Ok(mut connection) => {
                self.hand_over(&mut connection, outgoing, body).map(|()| connection)
            }
            Err(lost) => Err(lost),
        };
        let answer = match sent {
            Ok(connection) => return self.over(connection, count).await,
            Err(lost) => Box::pin(self.lost(lost)).await,
        };
        count.end(answer)
    }

    /// The request failed on its connection.
    async fn failed_over(&self, error: Box<SendError>) -> Answer {
        match self.once_more(error).await {
            Ok(answered) => self.got(answered).await,
            Err(lost) => self.lost(lost).await,
        }
    }

    /// A response came.
    async fn got(&self, answered: Answered) -> Answer {
        let Answered { status, mut fields, body } = answered;
        let at = Where { endpoint: self.endpoint, reused: body.reused(), status: Some(status) };
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return self.switched(at, fields, body);
        }
        if !headers::strip_hop_by_hop(&mut fields) {
            return self.unknown_coding(at, status);
        }
        if self.upstream.settings.protocol == Protocol::Http2 && !headers::is_length_sound(&fields)
        {
            return self.bad_length(at, status);
        }
        if status == StatusCode::NO_CONTENT {
            fields.remove(header::CONTENT_LENGTH);
        }
        let idle = self.upstream.settings.idle_timeout;
        let body = ResponseBody::new(body, self.progress.clone(), idle);
        let grpc = self.is_grpc(status, &fields);
        if grpc || self.exchange.route.facts.reads_response {
            return Box::pin(self.got_to_read(at, status, fields, body, grpc)).await;
        }
        let payload = Payload::Stream(Box::new(body));
        self.judge(at, Received { status, fields, payload, value: None, ended: None })
    }

    /// A response of which more than the head is needed.
    async fn got_to_read(
        &self,
        at: Where,
        status: StatusCode,
        fields: HeaderMap,
        mut body: ResponseBody,
        grpc: bool,
    ) -> Answer {
        let ended = if grpc { peek(&mut body, &fields).await } else { None };
        if !self.exchange.route.facts.reads_response {
            let payload = Payload::Stream(Box::new(body));
            return self.judge(at, Received { status, fields, payload, value: None, ended });
        }
        match self.read(body, &fields).await {
            Ok((payload, value)) => {
                let value = Some(value);
                self.judge(at, Received { status, fields, payload, value, ended })
            }
            Err(error) => self.unread(at, status, &error),
        }
    }

    /// What a response comes to.
    fn judge(&self, at: Where, received: Received) -> Answer {
        let Received { status, fields, payload, value, ended } = received;
        let rules = &self.exchange.route.classify;
        // Where nothing could read it, the clock is left alone.
        let timed = !rules.is_empty() || ended.is_some() || status.as_u16() >= 400;
        let clock = self.exchange.site.core.clock;
        let now = if timed { clock.now() } else { clock.begun() }.as_nanos();
        let seen = Seen { status, headers: &fields, body: value.as_ref(), grpc: ended, now };
        let class = match classify(rules, self.repeatable, seen) {
            Ok(class) => class,
            Err(fault) => return self.fault(at, &fault),
        };
        let (code, retryable, waits) = match class {
            Class::Success => {
                let reply = self.reply(status, fields, payload, value);
                return self.answer(at, Outcome::Success(Value::Native(reply)));
            }
            Class::Failure { code, retryable, waits } => (code, retryable, waits),
        };
        let max = self.upstream.settings.retry_after_max;
        let asked = || retry_after(&fields, system_time(now), max);
        let retry_after = match ended.map(|ended| ended.pushback) {
            Some(Pushback::After(wait)) => Some(wait.min(max)),
            _ => waits.then(asked).flatten(),
        };
        let never = ended.is_some_and(|ended| ended.pushback == Pushback::Never);
        let details = Details {
            retry_after,
            sent: self.sent(true),
            reply: Some(self.reply(status, fields, payload, value)),
            grpc_status: ended.map(|ended| ended.status),
            refusal: self.refusal().or_else(|| never.then_some(grpc::REFUSED_BY_SERVER)),
            ..self.details(at, "http_request_error")
        };
        match ended.map(|ended| ended.status) {
            Some(status) => {
                let (number, name) = (status.number(), status.name());
                let what = format_args!("answered grpc-status {number} ({name})");
                self.failed(at, code, retryable, what, details)
            }
            None => self.failed(
                at,
                code,
                retryable,
                format_args!("answered {}", status.as_u16()),
                details,
            ),
        }
    }

    /// Whether the response is a gRPC call's.
    fn is_grpc(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        self.upstream.settings.protocol == Protocol::Http2
            && status == StatusCode::OK
            && grpc::is_grpc(fields.get(header::CONTENT_TYPE))
    }

    /// The body, and what expressions read of it.
    async fn read(
        &self,
        mut body: ResponseBody,
        fields: &HeaderMap,
    ) -> Result<(Payload, Value), CollectError<BodyError>> {
        let limit = self.exchange.route.buffer.response;
        let (bytes, trailers) = collect(&mut body, limit).await?;
        let value = media::to_value(fields.get(header::CONTENT_TYPE), &bytes);
        Ok((Payload::Buffered(bytes, trailers.map(Box::new)), value))
    }

    fn reply(
        &self,
        status: StatusCode,
        fields: HeaderMap,
        payload: Payload,
        value: Option<Value>,
    ) -> Arc<Reply> {
        let reply = Reply::new(self.dispatch.role, status, fields, payload, value);
        if self.dispatch.role == Role::Cleanup {
            reply.discard();
        }
        Arc::new(reply)
    }

    /// No response came.
    async fn lost(&self, lost: Lost) -> Answer {
        match lost {
            Lost::Connect(error) => {
                let at = Where { endpoint: self.endpoint, reused: false, status: None };
                let details = Details {
                    phase: Some(error.cause.phase()),
                    ..self.details(at, error.cause.proxy_status())
                };
                let code = Code::Static(code::CONNECTION_FAILED);
                let what = format_args!("{error}");
                self.failed(at, code, true, what, details)
            }
            Lost::BodyGone => {
                let at = Where { endpoint: self.endpoint, reused: false, status: None };
                let details = self.details(at, "proxy_internal_error");
                let what = format_args!("was not asked: the request's body was read already");
                let code = Code::Static(code::BODY_NOT_REPLAYABLE);
                self.failed(at, code, false, what, details)
            }
            Lost::Send(error) => {
                if self.progress.broken() == Some(Broken::Gone) && self.exchange.cancel() {
                    // The Result is the cancellation's, which drops this call; the wait ends where the
                    // call is shielded from it.
                    sleep(CANCELLATION).await;
                }
                let at = Where { endpoint: self.endpoint, reused: error.reused, status: None };
                self.broken(at, &error)
            }
        }
    }

    /// The connection failed under the request.
    fn broken(&self, at: Where, error: &SendError) -> Answer {
        let sent = self.sent(error.wrote && error.unsent.is_none());
        if let Some(broken) = self.progress.broken() {
            let details = Details { sent, ..self.details(at, "http_request_error") };
            let what = match broken {
                Broken::Gone => format_args!("lost its request: the client went away"),
                Broken::Malformed => {
                    format_args!("lost its request: the client's body is malformed")
                }
                Broken::Stalled => format_args!("lost its request: the client's body stalled"),
            };
            let code = Code::Static(code::REQUEST_ABORTED);
            return self.failed(at, code, false, what, details);
        }
        let (code, proxy_status, what) = match error.ending {
            Ending::Refused | Ending::Leaving | Ending::Unwelcome => {
                return self.unprocessed(at, error);
            }
            Ending::Invalid => {
                (code::PROTOCOL_ERROR, "http_protocol_error", "sent no valid response")
            }
            Ending::Reset(_) => {
                let what = "reset the stream before it answered";
                (code::CONNECTION_CLOSED, "connection_terminated", what)
            }
            Ending::Lost => {
                let what = "closed the connection before it answered";
                (code::CONNECTION_CLOSED, "connection_terminated", what)
            }
        };
        let details = Details { sent, ..self.details(at, proxy_status) };
        let retryable = sent == Sent::None || self.repeatable.any();
        let what = format_args!("{what}: {}", Causes(error.error.error()));
        self.failed(at, Code::Static(code), retryable, what, details)
    }

    /// The upstream says that it has not looked at the request: as good as no connection at all, whatever
    /// of the request was written.
    fn unprocessed(&self, at: Where, error: &SendError) -> Answer {
        let (phase, proxy_status, what) = match error.ending {
            Ending::Unwelcome => ("tls", "tls_alert_received", "refused the TLS handshake"),
            Ending::Leaving => {
                let what = "took leave of the connection before the request";
                ("stream", "destination_unavailable", what)
            }
            _ => ("stream", "destination_unavailable", "refused the request unread"),
        };
        let details = Details { phase: Some(phase), ..self.details(at, proxy_status) };
        let code = Code::Static(code::CONNECTION_FAILED);
        let what = format_args!("{what}: {}", Causes(error.error.error()));
        self.failed(at, code, true, what, details)
    }

    /// A response's body that the route reads could not be read.
    fn unread(&self, at: Where, status: StatusCode, error: &CollectError<BodyError>) -> Answer {
        let sent = self.sent(true);
        match error {
            CollectError::TooLarge => {
                let details = Details { sent, ..self.details(at, "http_response_body_size") };
                let limit = self.exchange.route.buffer.response;
                let what = format_args!(
                    "answered {} with a body over the {limit} bytes that the route reads",
                    status.as_u16()
                );
                let code = Code::Static(code::BODY_TOO_LARGE);
                self.failed(at, code, false, what, details)
            }
            CollectError::Broken(error) => {
                let details = Details { sent, ..self.details(at, "http_response_incomplete") };
                let what = format_args!("answered {}, but {error}", status.as_u16());
                let code = Code::Static(code::CONNECTION_CLOSED);
                let retryable = self.repeatable.any();
                self.failed(at, code, retryable, what, details)
            }
        }
    }

    /// A length that is no number, or several.
    fn bad_length(&self, at: Where, status: StatusCode) -> Answer {
        let details = Details { sent: self.sent(true), ..self.details(at, "http_protocol_error") };
        let what = format_args!("answered {} with a bad Content-Length", status.as_u16());
        let code = Code::Static(code::PROTOCOL_ERROR);
        self.failed(at, code, self.repeatable.any(), what, details)
    }

    /// 101: the connection changes its protocol, where that was asked for.
    fn switched(&self, at: Where, mut fields: HeaderMap, body: Arriving) -> Answer {
        let status = StatusCode::SWITCHING_PROTOCOLS;
        let offered = self.exchange.asked.upgrade.as_ref().filter(|_| self.offers);
        let agreed = offered.is_some_and(|offered| upgrade::is_offered(offered, &fields));
        let Arriving::Alone(connection) = body else {
            return self.unasked_switch(at, status);
        };
        if !agreed {
            return self.unasked_switch(at, status);
        }
        let protocols: Vec<_> = fields.get_all(header::UPGRADE).iter().cloned().collect();
        headers::strip_hop_by_hop(&mut fields);
        fields.remove(header::CONTENT_LENGTH);
        fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        for protocol in protocols {
            fields.append(header::UPGRADE, protocol);
        }
        let far = Box::new(Far::new(connection));
        let reply = self.reply(status, fields, Payload::Tunnel(far), None);
        self.answer(at, Outcome::Success(Value::Native(reply)))
    }

    /// 101 to a request that asked for nothing of the kind.
    fn unasked_switch(&self, at: Where, status: StatusCode) -> Answer {
        let details = Details { sent: self.sent(true), ..self.details(at, "http_upgrade_failed") };
        let what = format_args!("answered {}, which nobody asked for", status.as_u16());
        let code = Code::Static(code::PROTOCOL_ERROR);
        self.failed(at, code, self.repeatable.any(), what, details)
    }

    /// A body that is coded for this hop in a way that is not known here, so that it cannot go on to the
    /// next (RFC 9112 §6.1).
    fn unknown_coding(&self, at: Where, status: StatusCode) -> Answer {
        let sent = self.sent(true);
        let details = Details { sent, ..self.details(at, "http_response_transfer_coding") };
        let what = format_args!("answered {} in an unknown transfer coding", status.as_u16());
        let code = Code::Static(code::PROTOCOL_ERROR);
        self.failed(at, code, self.repeatable.any(), what, details)
    }

    /// A rule's own expression failed.
    fn fault(&self, at: Where, fault: &EvalError) -> Answer {
        let message = format!("{}: classify: {fault}", self.dispatch.step_name);
        self.answer(at, Failure::error(fault.code(), message).into())
    }

    /// How much of the request was sent, once something was.
    fn sent(&self, wrote: bool) -> Sent {
        match (wrote, self.progress.finished()) {
            (false, _) => Sent::None,
            (true, false) => Sent::Partial,
            (true, true) => Sent::Complete,
        }
    }

    /// Why running the work again is out of the question.
    fn refusal(&self) -> Option<&'static str> {
        match self.progress.broken() {
            Some(Broken::Gone) => return Some("clientGone"),
            Some(Broken::Malformed | Broken::Stalled) => return Some("requestAborted"),
            None => {}
        }
        let body_gone = self.exchange.route.facts.resends && !self.progress.replayable();
        body_gone.then_some("bodyNotReplayable")
    }

    fn details(&self, at: Where, proxy_status: &'static str) -> Details {
        Details {
            endpoint: Arc::clone(self.upstream.authority(at.endpoint)),
            sent: Sent::None,
            reused: at.reused,
            phase: None,
            retry_after: None,
            grpc_status: None,
            refusal: self.refusal(),
            proxy_status,
            reply: None,
        }
    }

    fn failed(
        &self,
        at: Where,
        code: Code,
        retryable: bool,
        what: fmt::Arguments<'_>,
        details: Details,
    ) -> Answer {
        if self.dispatch.role == Role::Step {
            self.exchange.asked_to_wait(details.retry_after);
        }
        let message = format!(
            "{}: attempt {}: upstream {} {what}",
            self.dispatch.step_name,
            Run(&self.dispatch),
            self.upstream.settings.name,
        );
        let failure = Failure {
            ty: FailureType::Error,
            code,
            message: Some(message.into()),
            retryable: Some(retryable && details.refusal.is_none()),
            details: Some(Value::Native(Arc::new(details))),
            previous: None,
        };
        self.answer(at, failure.into())
    }

    fn answer(&self, at: Where, outcome: Outcome) -> Answer {
        let metadata = if self.dispatch.windowed {
            Value::Native(Arc::new(Window {
                request_id: self.exchange.id.clone(),
                status: at.status,
                endpoint: Arc::clone(self.upstream.authority(at.endpoint)),
                reused: at.reused,
            }))
        } else {
            Value::Null
        };
        Answer { outcome, metadata }
    }
}
