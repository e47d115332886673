//! Which call a connection is asked for: an `http` provider that says so.
//!
//! What is asked of an upstream is the same bytes whether a Step or a cleanup asks, so the far end could
//! not tell the two apart. The call is known where it is dispatched, and the connection is taken within the
//! dispatch's own future; a task-local that is set while that future is polled joins them, calls that run
//! side by side included.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::script::Turn;
use crate::language::outcome::Failure;
use crate::language::provider::{Answer, CallProvider, Contract, Dispatch, Prepared};
use crate::language::value::Value;
use crate::telemetry::record::Call;

tokio::task_local! {
    /// The call whose future is being polled.
    static CUE: Arc<Cue>;
}

/// A call, and what it was given to play once it took a connection.
#[derive(Debug)]
pub(super) struct Cue {
    pub(super) call: Call,
    turn: Mutex<Option<Turn>>,
    /// Whether a request or a connection of it has reached the far end.
    asked: AtomicBool,
}

impl Cue {
    /// A request or a connection of the call reaches the far end. Says whether another one has before.
    pub(super) fn asks(&self) -> bool {
        self.asked.swap(true, Ordering::Relaxed)
    }
}

/// The `http` provider of a route in a rehearsal.
#[derive(Debug)]
struct Cued(Arc<dyn CallProvider>);

impl CallProvider for Cued {
    fn contract(&self) -> &Contract {
        self.0.contract()
    }

    fn prepare(&self, with: &Value) -> Result<Prepared, Failure> {
        self.0.prepare(with)
    }

    fn call<'a>(
        &'a self,
        dispatch: Dispatch<'a>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        let call = Call::of(dispatch.attempt);
        let cue = Arc::new(Cue { call, turn: Mutex::new(None), asked: AtomicBool::new(false) });
        // The provider may take a connection already when it is called, before its future is polled.
        let calling = CUE.sync_scope(Arc::clone(&cue), || self.0.call(dispatch));
        Box::pin(CUE.scope(cue, calling))
    }
}

/// The turn of the call that is being polled, taken with `next` where it has none yet. `None` outside
/// of a call.
pub(super) fn reserve(next: impl FnOnce(&Call) -> Turn) -> Option<Turn> {
    let reserve = |cue: &Arc<Cue>| {
        let mut turn = cue.turn.lock().unwrap_or_else(PoisonError::into_inner);
        turn.get_or_insert_with(|| next(&cue.call)).clone()
    };
    CUE.try_with(reserve).ok()
}

/// Plays the turn of the call that is being polled: another request or connection of it takes another.
pub(super) fn play(next: impl FnOnce(&Call) -> Turn) -> Option<(Arc<Cue>, Turn)> {
    let turn = reserve(next)?;
    let cue = CUE.try_with(Arc::clone).ok()?;
    *cue.turn.lock().unwrap_or_else(PoisonError::into_inner) = None;
    Some((cue, turn))
}

/// The provider, cued.
pub(super) fn cued(provider: Arc<dyn CallProvider>) -> Arc<dyn CallProvider> {
    Arc::new(Cued(provider))
}
