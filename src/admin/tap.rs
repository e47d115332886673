//! `/tap`: execution events as server-sent events (WHATWG HTML §9.2).
//!
//! A listener is told at once that it listens, every few seconds that the connection lives, and what it
//! was too slow for (`event: missed`). How many may listen is bounded, and so is what waits for each.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use serde_json::{Value as Json, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::{Body, Operated, of_kind, text, unknown};
use crate::proxy::message::query;
use crate::telemetry::events::Heard;
use crate::telemetry::tap::{Filter, Tap, Wanted};

/// How often a silent connection is written to.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The query of `/tap`. The error says what was seen and what is wanted.
pub(super) fn filter(query: &str) -> Result<Filter, String> {
    let mut filter = Filter::default();
    for (name, value) in query::pairs(query) {
        match &*name {
            "route" => filter.route = Some(value.into_owned()),
            "outcome" => filter.outcome = Some(Wanted::of(&value)),
            _ => return Err(unknown(&name)),
        }
    }
    Ok(filter)
}

/// The answer to a listener, while there is room for one.
pub(super) fn open(
    filter: Filter,
    operated: &Arc<dyn Operated>,
    room: &Arc<Semaphore>,
    head: bool,
) -> Response<Body> {
    let kind = "text/event-stream";
    if head {
        return of_kind(StatusCode::OK, kind, Empty::new().boxed_unsync());
    }
    let Ok(permit) = Arc::clone(room).try_acquire_owned() else {
        let full = "as many listen as may; try again when one has gone\n";
        return text(StatusCode::SERVICE_UNAVAILABLE, full.into());
    };
    let listening = Listening {
        tap: Tap::new(filter),
        operated: Arc::clone(operated),
        begun: false,
        _permit: permit,
    };
    of_kind(StatusCode::OK, kind, StreamBody::new(events(listening)).boxed_unsync())
}

/// One listener.
struct Listening {
    tap: Tap,
    operated: Arc<dyn Operated>,
    begun: bool,
    _permit: OwnedSemaphorePermit,
}

fn events(listening: Listening) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
    unfold(listening, |mut listening| async move {
        let text = listening.next().await;
        Some((Ok(Frame::data(Bytes::from(text))), listening))
    })
}

impl Listening {
    /// The next bytes.
    async fn next(&mut self) -> String {
        if !std::mem::replace(&mut self.begun, true) {
            return ": listening\n\n".into();
        }
        tokio::select! {
            heard = self.tap.next() => match heard {
                Heard::Event(event) => {
                    let name = event.get("event").and_then(Json::as_str).unwrap_or("event");
                    message(name, &event)
                }
                Heard::Missed(count) => {
                    self.operated.missed(count);
                    message("missed", &json!({ "event": "missed", "missed": count }))
                }
            },
            () = sleep(KEEP_ALIVE) => ": still listening\n\n".into(),
        }
    }
}

/// One message. JSON has no line feeds of its own.
fn message(name: &str, data: &dyn Display) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}
