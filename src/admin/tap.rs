//! `/tap`: execution events as server-sent events (WHATWG HTML §9.2).
//!
//! A listener learns at once that it listens, then every few seconds that the connection still lives, and
//! how many events it was too slow for (`event: missed`). The number of listeners is bounded, and so is
//! each one's queue.

use std::convert::Infallible;
use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Empty, StreamBody};
use serde_json::{Value as Json, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::{Backend, Body, of_kind, text, unknown};
use crate::proxy::message::query;
use crate::telemetry::events::TapMessage;
use crate::telemetry::tap::{Filter, OutcomeFilter, Tap};

/// The media type of server-sent events.
const EVENTS: &str = "text/event-stream";

/// How often something is written to a connection that has no events.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long events wait for others after some were sent.
const GATHER: Duration = Duration::from_millis(5);

/// The most bytes of events that are sent at once, beside the last one.
const BATCH: usize = 64 * 1024;

/// Parses the query of `/tap`. The error names what was found and what is expected.
pub(super) fn filter(query: &str) -> Result<Filter, String> {
    let mut filter = Filter::default();
    for (name, value) in query::pairs(query) {
        match &*name {
            "route" => filter.route = Some(value.into_owned()),
            "outcome" => filter.outcome = Some(OutcomeFilter::of(&value)),
            _ => return Err(unknown(&name, "route, outcome")),
        }
    }
    Ok(filter)
}

/// The response to a listener, if there is room for one more.
pub(super) fn open(
    filter: Filter,
    backend: &Arc<dyn Backend>,
    room: &Arc<Semaphore>,
    head: bool,
) -> Response<Body> {
    let kind = EVENTS;
    if head {
        return of_kind(StatusCode::OK, kind, Empty::new().boxed_unsync());
    }
    let Ok(permit) = Arc::clone(room).try_acquire_owned() else {
        let full = "as many listen as may; try again when one has gone\n";
        return text(StatusCode::SERVICE_UNAVAILABLE, full.into());
    };
    let listener = TapListener {
        tap: Tap::new(filter),
        backend: Arc::clone(backend),
        begun: false,
        told: false,
        _permit: permit,
    };
    of_kind(StatusCode::OK, kind, StreamBody::new(events(listener)).boxed_unsync())
}

/// Whether `response` is one that goes on: events as they happen.
pub(super) fn is_open(response: &Response<Body>) -> bool {
    !response.body().is_end_stream()
        && response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == EVENTS)
}

/// One listener.
struct TapListener {
    tap: Tap,
    backend: Arc<dyn Backend>,
    begun: bool,
    /// Whether the last bytes were events.
    told: bool,
    _permit: OwnedSemaphorePermit,
}

fn events(listener: TapListener) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
    unfold(listener, |mut listener| async move {
        let text = listener.next().await;
        Some((Ok(Frame::data(Bytes::from(text))), listener))
    })
}

impl TapListener {
    /// The next bytes to send: what has happened since the last ones.
    async fn next(&mut self) -> String {
        if !std::mem::replace(&mut self.begun, true) {
            return ": listening\n\n".into();
        }
        if self.told {
            // An event that somebody waits for wakes this thread, which costs a request more than the event itself.
            sleep(GATHER).await;
        }
        self.told = false;
        let first = tokio::select! {
            heard = self.tap.next() => heard,
            () = sleep(KEEP_ALIVE) => return ": still listening\n\n".into(),
        };
        self.told = true;
        let mut text = String::new();
        self.tell(first, &mut text);
        while text.len() < BATCH
            && let Some(more) = self.tap.try_next()
        {
            self.tell(more, &mut text);
        }
        text
    }

    fn tell(&self, heard: TapMessage, text: &mut String) {
        match heard {
            TapMessage::Event(event) => {
                let name = event.get("event").and_then(Json::as_str).unwrap_or("event");
                message(name, &event, text);
            }
            TapMessage::Missed(count) => {
                self.backend.missed(count);
                message("missed", &json!({ "event": "missed", "missed": count }), text);
            }
        }
    }
}

/// Appends one message. JSON is written without line feeds.
fn message(name: &str, data: &dyn Display, text: &mut String) {
    // Writing to a string cannot fail.
    write!(text, "event: {name}\ndata: {data}\n\n").ok();
}
