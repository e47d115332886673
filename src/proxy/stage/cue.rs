//! Tells which call asks for a connection: an `http` provider that announces its call.
//!
//! An upstream gets the same bytes whether a Step or a cleanup sends them, so the far end cannot tell the calls
//! apart. But the call is known where it is dispatched, and the connection is taken within the dispatch's own future.
//! A task-local that is set while that future is polled connects the two, also for calls that run side by side.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::script::ScriptUse;
use crate::language::outcome::Failure;
use crate::language::provider::{Answer, CallProvider, Contract, Dispatch, Prepared};
use crate::language::value::Value;
use crate::telemetry::record::Call;

tokio::task_local! {
    /// The call whose future is being polled.
    static CUE: Arc<CallCue>;
}

/// A call, and the scripted response that it got with its connection.
#[derive(Debug)]
pub(super) struct CallCue {
    pub(super) call: Call,
    turn: Mutex<Option<ScriptUse>>,
    /// Whether one of its requests or connections has reached the far end.
    asked: AtomicBool,
}

impl CallCue {
    /// One of the call's requests or connections reaches the far end. Returns whether it is not the first.
    pub(super) fn asks(&self) -> bool {
        self.asked.swap(true, Ordering::Relaxed)
    }
}

/// The `http` provider of a route in a rehearsal.
#[derive(Debug)]
struct CuedProvider(Arc<dyn CallProvider>);

impl CallProvider for CuedProvider {
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
        let cue = Arc::new(CallCue { call, turn: Mutex::new(None), asked: AtomicBool::new(false) });
        // The provider may take a connection when it is called, before its future is polled.
        let calling = CUE.sync_scope(Arc::clone(&cue), || self.0.call(dispatch));
        Box::pin(CUE.scope(cue, calling))
    }
}

/// The turn of the call that is being polled, or `next` if it has none yet. `None` outside of a call.
pub(super) fn reserve(next: impl FnOnce(&Call) -> ScriptUse) -> Option<ScriptUse> {
    let reserve = |cue: &Arc<CallCue>| {
        let mut turn = cue.turn.lock().unwrap_or_else(PoisonError::into_inner);
        turn.get_or_insert_with(|| next(&cue.call)).clone()
    };
    CUE.try_with(reserve).ok()
}

/// Uses the turn of the call that is being polled. Its next request or connection gets another one.
pub(super) fn play(next: impl FnOnce(&Call) -> ScriptUse) -> Option<(Arc<CallCue>, ScriptUse)> {
    let turn = reserve(next)?;
    let cue = CUE.try_with(Arc::clone).ok()?;
    *cue.turn.lock().unwrap_or_else(PoisonError::into_inner) = None;
    Some((cue, turn))
}

/// Wraps the provider.
pub(super) fn cued(provider: Arc<dyn CallProvider>) -> Arc<dyn CallProvider> {
    Arc::new(CuedProvider(provider))
}
