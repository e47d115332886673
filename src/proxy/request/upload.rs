//! A request's body: sent on as it arrives, or read before the Flow begins.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use crate::language::value::Value;
use crate::proxy::body::BodyError;
use crate::proxy::body::client::ClientBody;
use crate::proxy::body::collect::{CollectError, collect};
use crate::proxy::body::source::{BodyFailure, NotReplayable, ReplaySource};
use crate::proxy::body::valued::valued;
use crate::proxy::memory::{Budget, Full, Reservation};
use crate::proxy::message::refusal::Refusal;
use crate::proxy::settings::BodyPatience;
use crate::proxy::site::WorkerConfig;
use crate::proxy::site::runtime::Route;
use crate::telemetry::metrics::BodyUse;

/// A request's body.
#[derive(Debug)]
pub(crate) enum Upload {
    /// There is none.
    None,
    /// It is sent on as it arrives.
    Stream(Arc<ReplaySource<ClientBody>>),
    /// It was read, because an expression of the route reads it (as `value`), or because several calls may send
    /// it side by side.
    Buffered {
        bytes: Bytes,
        /// The trailers that may pass.
        trailers: Option<Box<HeaderMap>>,
        value: Option<Value>,
    },
}

impl Upload {
    /// Reads `body` before the Flow begins: all of it if an expression of `route` reads it, otherwise as much
    /// as can be sent again.
    pub(super) async fn read(
        body: ClientBody,
        site: &WorkerConfig,
        route: &Route,
        content_type: Option<&HeaderValue>,
    ) -> Result<Self, Refusal> {
        let patience = site.runtime.limits.body_patience();
        if route.facts.reads_request {
            let (bytes, trailers, part) =
                read(body, &site.memory, route.buffer.request, patience).await?;
            let valued = valued(bytes, content_type, part).await;
            let (bytes, value) = valued.map_err(|Full| no_room(&site.memory))?;
            let trailers = trailers.map(Box::new);
            return Ok(Self::Buffered { bytes, trailers, value: Some(value) });
        }
        let keep = route.facts.resends || route.facts.looks_at_request;
        let keep = keep.then_some(route.buffer.replay);
        let source = Arc::new(ReplaySource::new(body, keep).within(&site.memory));
        Ok(match source.read_ahead(patience).await.map_err(unread)? {
            Some((bytes, trailers)) => {
                Self::Buffered { bytes, trailers: trailers.map(Box::new), value: None }
            }
            None => Self::Stream(source),
        })
    }

    /// How the client's body broke off, if it did.
    pub(crate) fn broken(&self) -> Option<BodyFailure> {
        match self {
            Self::Stream(source) => source.broken(),
            Self::None | Self::Buffered { .. } => None,
        }
    }
}

/// Reads a body of at most `limit` bytes, waiting for it as long as `patience` says, and those of its trailers that may pass.
async fn read(
    body: ClientBody,
    memory: &Arc<Budget>,
    limit: usize,
    patience: BodyPatience,
) -> Result<(Bytes, Option<HeaderMap>, Reservation), Refusal> {
    let attempt = Arc::new(ReplaySource::new(body, None)).attempt(patience);
    let mut attempt = attempt.map_err(|NotReplayable| Refusal::body_timeout())?;
    let mut reservation = memory.reservation();
    let read = collect(&mut attempt, limit, &mut reservation).await;
    let (bytes, trailers) = read.map_err(|error| match error {
        CollectError::TooLarge => Refusal::too_large(limit),
        CollectError::Full => no_room(memory),
        CollectError::Broken(error) => unread(error),
    })?;
    Ok((bytes, trailers, reservation))
}

/// The refusal of a request whose body found no room in memory.
fn no_room(memory: &Budget) -> Refusal {
    memory.refused(BodyUse::Request);
    Refusal::no_room()
}

/// The refusal of a request whose body could not be read.
fn unread(error: BodyError) -> Refusal {
    match error {
        BodyError::Stalled(_) => Refusal::body_timeout(),
        BodyError::Slow(rate) => Refusal::slow_body(rate),
        BodyError::Client(error) => Refusal::broken_body(error.as_ref()),
        error => Refusal::broken_body(&error),
    }
}
