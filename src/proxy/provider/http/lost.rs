//! The Result of an attempt that got no response.

use std::time::Duration;

use tokio::time::sleep;

use super::answer::Destination;
use super::attempt::Attempt;
use super::send::NoResponse;
use crate::language::outcome::Failure;
use crate::language::provider::Answer;
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::answer::classify::Retryable;
use crate::proxy::answer::reply::{Details, RequestSent};
use crate::proxy::body::source::BodyFailure;
use crate::proxy::code;
use crate::proxy::upstream::condition::{Cause, Reported};
use crate::proxy::upstream::connection::SendError;
use crate::proxy::upstream::failure::FailureKind;
use crate::source::Causes;

/// How long a cancellation may take to drop the call that asked for it.
const CANCELLATION: Duration = Duration::from_secs(1);

impl Attempt<'_> {
    /// The Result if there is no response.
    pub(super) async fn lost(&self, lost: NoResponse) -> Answer {
        let at = Destination { reused: false, status: None };
        match lost {
            NoResponse::Connect(error) => {
                let details = Details {
                    phase: Some(error.cause.phase()),
                    ..self.details(at, error.cause.proxy_status())
                };
                self.failed(
                    at,
                    code::CONNECTION_FAILED,
                    Retryable::Is(true),
                    format_args!("{error}"),
                    details,
                )
            }
            NoResponse::Late { reused } => self.late(Destination { reused, ..at }),
            NoResponse::BodyGone => {
                let details = self.details(at, "proxy_internal_error");
                let what = format_args!("was not asked: the request's body was read already");
                self.failed(at, code::BODY_NOT_REPLAYABLE, Retryable::Is(false), what, details)
            }
            NoResponse::Target => self.no_such_target(at),
            NoResponse::Compose(failure) => self.answer(at, (*failure).into()),
            NoResponse::Send(error) => {
                if self.progress.broken() == Some(BodyFailure::Gone) && self.exchange.cancel() {
                    // The Result will be the cancellation's, which drops this call. The sleep ends if the call
                    // is shielded from it.
                    sleep(CANCELLATION).await;
                }
                self.broken(Destination { reused: error.reused, ..at }, &error)
            }
        }
    }

    /// No response head came in time.
    fn late(&self, at: Destination) -> Answer {
        self.endpoint.report(Reported::Failure(Cause::ResponseTimeout));
        let sent = self.sent(true);
        let details = Details { sent, ..self.details(at, "http_response_timeout") };
        let bound = self.params.response_timeout;
        let bound = Span::from_duration(bound.unwrap_or(self.upstream.settings.response_timeout));
        let what = format_args!("sent no response head within {bound} (responseTimeout)");
        self.failed(at, code::RESPONSE_TIMEOUT, Retryable::ByMethod, what, details)
    }

    /// The upstream speaks HTTP/2, and the library does not support the target: the client's, or one made here.
    fn no_such_target(&self, at: Destination) -> Answer {
        let what = "was not asked: it speaks HTTP/2, in which `\"`, `<`, `>` and a backtick of a target must be percent-encoded";
        if self.params.path.is_some() {
            let (step, upstream) = (self.dispatch.attempt.step, &self.upstream.settings.name);
            let message = format!("{step}: upstream {upstream} {what}");
            let failure = Failure::validation(message, "/properties/path", Value::Null);
            return self.answer(at, failure.into());
        }
        let details = self.details(at, "http_request_error");
        self.failed(
            at,
            code::REQUEST_ABORTED,
            Retryable::Is(false),
            format_args!("{what}"),
            details,
        )
    }

    /// The connection failed during the request.
    fn broken(&self, at: Destination, error: &SendError) -> Answer {
        let sent = self.sent(error.wrote && error.unsent.is_none());
        if let Some(broken) = self.progress.broken() {
            let details = Details { sent, ..self.details(at, "http_request_error") };
            let what = match broken {
                BodyFailure::Gone => format_args!("lost its request: the client went away"),
                BodyFailure::Malformed => {
                    format_args!("lost its request: the client's body is malformed")
                }
                BodyFailure::Stalled => format_args!("lost its request: the client's body stalled"),
            };
            return self.failed(at, code::REQUEST_ABORTED, Retryable::Is(false), what, details);
        }
        self.report(error.ending);
        let (code, proxy_status, what) = match error.ending {
            FailureKind::Refused | FailureKind::Leaving | FailureKind::Unwelcome => {
                return self.unprocessed(at, error);
            }
            FailureKind::Invalid => {
                (code::PROTOCOL_ERROR, "http_protocol_error", "sent no valid response")
            }
            FailureKind::TooLarge => {
                let what = "answered with more than the limits allow";
                (code::PROTOCOL_ERROR, "http_response_header_section_size", what)
            }
            FailureKind::Reset(_) => {
                let what = "reset the stream before it answered";
                (code::CONNECTION_CLOSED, "connection_terminated", what)
            }
            FailureKind::Stalled => {
                let what = "took no more of the request";
                (code::CONNECTION_CLOSED, "connection_write_timeout", what)
            }
            FailureKind::Lost => {
                let what = "closed the connection before it answered";
                (code::CONNECTION_CLOSED, "connection_terminated", what)
            }
        };
        let details = Details { sent, ..self.details(at, proxy_status) };
        let retryable = match (error.ending, sent) {
            // The next response would be as large.
            (FailureKind::TooLarge, _) => Retryable::Is(false),
            (_, RequestSent::None) => Retryable::Is(true),
            _ => Retryable::ByMethod,
        };
        let what = format_args!("{what}: {}", Causes(error.error.error()));
        self.failed(at, code, retryable, what, details)
    }

    /// Tells what the end of a request says of its endpoint. One that takes leave, or that refuses a stream, is well.
    fn report(&self, ending: FailureKind) {
        let cause = match ending {
            FailureKind::Refused | FailureKind::Leaving | FailureKind::TooLarge => return,
            FailureKind::Unwelcome => Cause::ConnectionFailed,
            FailureKind::Invalid => Cause::ProtocolError,
            FailureKind::Lost | FailureKind::Reset(_) | FailureKind::Stalled => {
                Cause::ConnectionClosed
            }
        };
        self.endpoint.report(Reported::Failure(cause));
    }

    /// The upstream says that it has not processed the request. That is as good as no connection, however much
    /// of the request was written.
    fn unprocessed(&self, at: Destination, error: &SendError) -> Answer {
        let (phase, proxy_status, what) = match error.ending {
            FailureKind::Unwelcome => ("tls", "tls_alert_received", "refused the TLS handshake"),
            FailureKind::Leaving => {
                let what = "took leave of the connection before the request";
                ("stream", "destination_unavailable", what)
            }
            _ => ("stream", "destination_unavailable", "refused the request unread"),
        };
        let details = Details { phase: Some(phase), ..self.details(at, proxy_status) };
        let what = format_args!("{what}: {}", Causes(error.error.error()));
        self.failed(at, code::CONNECTION_FAILED, Retryable::Is(true), what, details)
    }
}
