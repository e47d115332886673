//! `POST /explain`: what the running configuration would do with a request, as `mwl-proxy explain` says it.
//!
//! It is worked out in virtual time on a thread of its own, beside the workers. Nothing is sent to any upstream. What a
//! question may cost is bounded: its size, its time, what is recorded of the answer, and one is answered at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Backend, Body, json, text};

/// The largest question, in bytes.
const MAX_QUESTION: usize = 16 * 1024;

/// How long a question may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(10);

/// How long an explanation may take. What goes on for longer is stopped.
const LONGEST: Duration = Duration::from_secs(10);

/// How many are worked out at once.
const AT_ONCE: usize = 1;

/// The stack of its thread: that of a main thread, on which configurations are loaded otherwise.
const STACK: usize = 8 * 1024 * 1024;

/// The places for explanations.
pub(super) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}

/// The response to a question.
pub(super) async fn answer<B>(
    backend: &Arc<dyn Backend>,
    places: &Arc<Semaphore>,
    body: B,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Ok(permit) = Arc::clone(places).try_acquire_owned() else {
        let busy = "another explanation is being worked out; ask again when it is done\n";
        return text(StatusCode::SERVICE_UNAVAILABLE, busy.into());
    };
    let question = tokio::select! {
        biased;
        collected = Limited::new(body, MAX_QUESTION).collect() => {
            let Ok(question) = collected else {
                let told = format!("the question broke off, or has more than {MAX_QUESTION} bytes\n");
                return text(StatusCode::PAYLOAD_TOO_LARGE, told);
            };
            question.to_bytes()
        }
        () = sleep(ARRIVAL) => {
            return text(StatusCode::REQUEST_TIMEOUT, "the question did not come\n".into());
        }
    };
    let stop = CancellationToken::new();
    // Also when the client leaves.
    let _stopping = stop.clone().drop_guard();
    let backend = Arc::clone(backend);
    let (tell, told) = oneshot::channel();
    let work = move || {
        let answer = backend.explain(&question, &stop);
        drop(permit);
        // An error means that nobody waits any more.
        tell.send(answer).ok();
    };
    let thread = std::thread::Builder::new().name("explain".into()).stack_size(STACK);
    if let Err(error) = thread.spawn(work) {
        let told = format!("the system provides no thread: {error}\n");
        return text(StatusCode::SERVICE_UNAVAILABLE, told);
    }
    let told = tokio::select! {
        biased;
        told = told => told,
        () = sleep(LONGEST) => {
            let late = format!("the explanation took longer than {LONGEST:?} and was stopped\n");
            return text(StatusCode::SERVICE_UNAVAILABLE, late);
        }
    };
    match told {
        Ok(Ok(explained)) => json(StatusCode::OK, &explained),
        Ok(Err(mistakes)) => text(StatusCode::BAD_REQUEST, mistakes),
        Err(_) => {
            tracing::error!("An explanation ended without a result.");
            let told = "the explanation ended without a result: a mistake in the proxy\n";
            text(StatusCode::INTERNAL_SERVER_ERROR, told.into())
        }
    }
}
