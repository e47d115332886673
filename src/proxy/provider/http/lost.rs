//! The Result of an attempt that got no response.

use std::time::Duration;

use tokio::time::sleep;

use super::answer::Destination;
use super::attempt::Attempt;
use super::send::NoResponse;
use crate::language::provider::Answer;
use crate::proxy::answer::reply::{Details, RequestSent};
use crate::proxy::body::source::BodyFailure;
use crate::proxy::code;
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
                self.failed(at, code::CONNECTION_FAILED, true, format_args!("{error}"), details)
            }
            NoResponse::BodyGone => {
                let details = self.details(at, "proxy_internal_error");
                let what = format_args!("was not asked: the request's body was read already");
                self.failed(at, code::BODY_NOT_REPLAYABLE, false, what, details)
            }
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
            return self.failed(at, code::REQUEST_ABORTED, false, what, details);
        }
        let (code, proxy_status, what) = match error.ending {
            FailureKind::Refused | FailureKind::Leaving | FailureKind::Unwelcome => {
                return self.unprocessed(at, error);
            }
            FailureKind::Invalid => {
                (code::PROTOCOL_ERROR, "http_protocol_error", "sent no valid response")
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
        let retryable = sent == RequestSent::None || self.repeatable.any();
        let what = format_args!("{what}: {}", Causes(error.error.error()));
        self.failed(at, code, retryable, what, details)
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
        self.failed(at, code::CONNECTION_FAILED, true, what, details)
    }
}
