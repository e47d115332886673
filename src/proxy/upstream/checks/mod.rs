//! What happens to the endpoints of an upstream while no request asks: active checks, and the ends of ejections.
//!
//! All of this is on one thread of its own, for the whole process. The workers never wait for it, and if it stood still,
//! requests would go on with what was last found. An upstream's work here ends with the upstream.

mod check;
mod grpc;
mod schedule;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::check::Check;
use self::schedule::Schedule;
use super::Upstream;
use super::endpoints::EndpointState;
use super::resolve::Resolve;
use super::shared::SharedUpstream;
use crate::proxy::settings;

/// The thread that checks endpoints. It starts with the first upstream that wants it, and ends when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Checks(Mutex<Option<Thread>>);

#[derive(Debug)]
struct Thread {
    handle: Handle,
    /// Ends it.
    _ends: DropGuard,
}

impl Checks {
    /// Begins to look after the endpoints of `upstreams`, as far as that is wanted and nobody does yet.
    pub(crate) fn supervise<'u>(
        &self,
        upstreams: impl IntoIterator<Item = &'u Arc<SharedUpstream>>,
        resolver: &Arc<dyn Resolve>,
    ) {
        for upstream in upstreams {
            let wanted = upstream.settings.health.is_some() || upstream.settings.ejection.is_some();
            if !wanted || upstream.supervision.is_begun() {
                continue;
            }
            let handle = match self.thread() {
                Ok(handle) => handle,
                Err(error) => {
                    tracing::error!(%error, "Endpoints are not checked: the system gives no thread.");
                    return;
                }
            };
            let ended = upstream.supervision.begin();
            handle.spawn(supervise(Arc::downgrade(upstream), ended, Arc::clone(resolver)));
        }
    }

    /// Ends the work for those of `before` that are not among `now`. Requests that still run there go on with what was
    /// last found.
    pub(crate) fn leave(before: &[Arc<SharedUpstream>], now: &[Arc<SharedUpstream>]) {
        let stays =
            |upstream: &Arc<SharedUpstream>| now.iter().any(|now| Arc::ptr_eq(now, upstream));
        for upstream in before.iter().filter(|upstream| !stays(upstream)) {
            upstream.supervision.end();
        }
    }

    fn thread(&self) -> io::Result<Handle> {
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Thread { handle, .. }) = &*thread {
            return Ok(handle.clone());
        }
        let driver = Builder::new_current_thread().enable_all().build()?;
        let (handle, ends) = (driver.handle().clone(), CancellationToken::new());
        let ended = ends.clone();
        std::thread::Builder::new().name("health".into()).spawn(move || {
            driver.block_on(ended.cancelled());
            // A name lookup may still run on its own thread.
            driver.shutdown_background();
        })?;
        *thread = Some(Thread { handle: handle.clone(), _ends: ends.drop_guard() });
        Ok(handle)
    }
}

/// Looks after the endpoints of one upstream, as long as there is the upstream.
async fn supervise(
    upstream: Weak<SharedUpstream>,
    ended: CancellationToken,
    resolver: Arc<dyn Resolve>,
) {
    let Some(group) = upstream.upgrade().map(|upstream| Arc::clone(&upstream.endpoints.group))
    else {
        return;
    };
    let (mut schedule, mut running) = (Schedule::default(), JoinSet::new());
    loop {
        let now = Instant::now();
        let next = {
            let Some(upstream) = upstream.upgrade() else { return };
            let check = begin(&upstream, &mut schedule, &mut running, &resolver, now);
            group.settle(now).into_iter().chain(check).min()
        };
        tokio::select! {
            biased;
            () = ended.cancelled() => return,
            () = group.ejected.notified() => {}
            Some(done) = running.join_next() => {
                if let Ok(id) = done {
                    schedule.ended(id);
                }
            }
            () = until(next) => {}
        }
    }
}

/// Begins the checks that are due. Returns when there is something to do again.
fn begin(
    upstream: &Arc<SharedUpstream>,
    schedule: &mut Schedule,
    running: &mut JoinSet<u64>,
    resolver: &Arc<dyn Resolve>,
    now: Instant,
) -> Option<Instant> {
    let health = upstream.settings.health.as_ref()?;
    let view = || Arc::new(Upstream::new(Arc::clone(upstream), Arc::clone(resolver), None));
    if upstream.settings.endpoints.iter().any(settings::Endpoint::is_named) {
        // Without it, names would only be looked up for requests.
        let _next = view().look_again(now);
    }
    let present = upstream.endpoints.present();
    let ids: Vec<u64> = present.iter().map(|endpoint| endpoint.id).collect();
    let due = schedule.due(&ids, health.interval, now, rand::random);
    let by_id: HashMap<u64, &Arc<EndpointState>> =
        present.iter().map(|endpoint| (endpoint.id, endpoint)).collect();
    for endpoint in due.iter().filter_map(|id| by_id.get(id)) {
        let (view, endpoint) = (view(), Arc::clone(endpoint));
        running.spawn(async move {
            check(&view, &endpoint).await;
            endpoint.id
        });
    }
    schedule.next()
}

/// Checks one endpoint. A name that was never found is looked up, which brings its endpoints.
async fn check(view: &Arc<Upstream>, endpoint: &EndpointState) {
    let Some(health) = &view.settings.health else { return };
    let found = if endpoint.address.is_none() && endpoint.at.is_named() {
        let found = view.addresses(endpoint.place).await;
        found.map(drop).map_err(|error| error.to_string().into())
    } else {
        let (at, address) = (&endpoint.at, endpoint.address);
        Check { upstream: &view.settings, health, at, address }.run().await
    };
    endpoint.condition().checked(found, Instant::now());
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
