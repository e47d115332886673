//! How a request gets a connection: an idle one, a new one, or a stream on a shared one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::capacity::Place;
use super::connect::{self, NewHttp1};
use super::connect_error::ConnectError;
use super::connection::{Connection, Http1Lease, Http2Stream, IdleConnection, UnsentRequest};
use super::endpoints::{Visit, WorkerEndpoint};
use super::http2::{Dialed, ExchangeLimits, Http2Connection, Origin, SharedDial};
use super::request_head::LastAuthority;
use super::{Upstream, Wanted};
use crate::proxy::proxy_header::Ends;
use crate::proxy::settings::{self, Protocol};

/// Chooses another endpoint, because a lookup has changed which there are. `None` if the first one must do.
pub(crate) type Again<'a> = &'a (dyn Fn() -> Option<Arc<WorkerEndpoint>> + Sync);

/// The places in the configuration whose names one request has looked up.
type Looked = SmallVec<[usize; 2]>;

impl Upstream {
    /// A connection for one request: an idle one, or else a new one. It may lead to another endpoint than `wanted`: the
    /// one that `again` chooses if a lookup finds that the first one is gone, or another address of the same name.
    pub(crate) async fn connection(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        again: Again<'_>,
    ) -> Result<Connection, ConnectError> {
        if let Some(stage) = &self.stage {
            self.sweep();
            if stage.refuses(&self.settings) {
                // An upstream that refuses connections has closed the open ones.
                self.disconnect();
            }
        }
        let Wanted { endpoint, ends, waits } = wanted;
        if endpoint.condition().is_drained() {
            return Err(ConnectError::drained());
        }
        if self.settings.protocol == Protocol::Http2 {
            // Boxed, like a connect, so that the common case carries the size of neither.
            return Box::pin(self.stream(wanted, again)).await;
        }
        let place = self.place(waits).await?;
        match self.idle((place, Visit::new(Arc::clone(endpoint))), ends, Instant::now()) {
            Ok(connection) => Ok(connection),
            // Boxed: most requests find an idle connection and should not carry its size.
            Err(held) => Box::pin(self.connect(held, ends, again)).await,
        }
    }

    /// The same, but never an idle one.
    pub(crate) async fn fresh(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
    ) -> Result<Connection, ConnectError> {
        match self.settings.protocol {
            Protocol::Http1 => Box::pin(self.dedicated(wanted)).await.map(Connection::Http1),
            // A connection that is known to be dead is retired by now.
            Protocol::Http2 => Box::pin(self.stream(wanted, &|| None)).await,
        }
    }

    /// The same for a request of which another connection sent nothing. Hands it over.
    pub(crate) async fn resend(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        unsent: UnsentRequest,
    ) -> Result<Connection, ConnectError> {
        match unsent {
            UnsentRequest::Http1(request) => {
                let mut lease = Box::pin(self.dedicated(wanted)).await?;
                lease.resend(*request);
                Ok(Connection::Http1(lease))
            }
            UnsentRequest::Http2(request) => {
                let mut shared = self.take_stream(wanted, &|| None).await?;
                shared.send(*request);
                Ok(Connection::Http2(Box::new(shared)))
            }
        }
    }

    /// A connection to the endpoint that is visited, usually a new one.
    async fn connect(
        self: &Arc<Self>,
        mut held: (Place, Visit),
        ends: Option<&Ends>,
        again: Again<'_>,
    ) -> Result<Connection, ConnectError> {
        let (deadline, mut looked) = (connect::deadline(self), Looked::new());
        while !self.settle(held.1.endpoint(), &mut looked, deadline).await? {
            let Some(next) = again() else { break };
            held.1 = Visit::new(next);
            match self.idle(held, ends, Instant::now()) {
                Ok(connection) => return Ok(connection),
                Err(back) => held = back,
            }
        }
        self.open(held, ends, deadline).await.map(Connection::Http1)
    }

    /// A new connection to the endpoint, or to another address of its name.
    async fn dedicated(
        self: &Arc<Self>,
        Wanted { endpoint, ends, waits }: Wanted<'_>,
    ) -> Result<Http1Lease, ConnectError> {
        let place = self.place(waits).await?;
        let deadline = connect::deadline(self);
        self.settle(endpoint, &mut Looked::new(), deadline).await?;
        self.open((place, Visit::new(Arc::clone(endpoint))), ends, deadline).await
    }

    /// A place at the upstream. `waits` is true while this waits for one.
    async fn place(&self, waits: &AtomicBool) -> Result<Place, ConnectError> {
        if let Some(place) = self.capacity.at_once() {
            return Ok(place);
        }
        waits.store(true, Ordering::Relaxed);
        let place = self.capacity.place(&self.metrics).await;
        waits.store(false, Ordering::Relaxed);
        place
    }

    async fn open(
        self: &Arc<Self>,
        (place, visit): (Place, Visit),
        ends: Option<&Ends>,
        deadline: Instant,
    ) -> Result<Http1Lease, ConnectError> {
        let opened = connect::open(self, (visit.endpoint(), ends), deadline).await?;
        let NewHttp1 { conn, endpoint, peer, line } = opened;
        self.metrics.opened();
        let held = (place, Visit::new(Arc::clone(&endpoint)));
        drop(visit);
        let ends = ends.copied().map(Box::new);
        let opened = IdleConnection { conn, endpoint, ends, peer, line };
        Ok(Http1Lease::new(Arc::clone(self), held, opened, false))
    }

    /// Looks the name of `endpoint` up, unless this request has `looked` at it already. Returns whether a connection may
    /// be made to it: it has an address, and its name still has that.
    async fn settle(
        self: &Arc<Self>,
        endpoint: &WorkerEndpoint,
        looked: &mut Looked,
        deadline: Instant,
    ) -> Result<bool, ConnectError> {
        if self.stage.is_some() || !endpoint.is_named() {
            return Ok(true);
        }
        if !looked.contains(&endpoint.place) {
            looked.push(endpoint.place);
            let late =
                || ConnectError::unresolved(&endpoint.at.host, self.settings.connect_timeout);
            connect::within(deadline, self.look(endpoint), late).await?;
        }
        Ok(endpoint.address.is_some() && !endpoint.is_gone())
    }

    /// A stream on a connection to the endpoint.
    async fn stream(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        again: Again<'_>,
    ) -> Result<Connection, ConnectError> {
        self.take_stream(wanted, again).await.map(Box::new).map(Connection::Http2)
    }

    async fn take_stream(
        self: &Arc<Self>,
        Wanted { endpoint, ends, waits }: Wanted<'_>,
        again: Again<'_>,
    ) -> Result<Http2Stream, ConnectError> {
        let place = self.place(waits).await?;
        let (deadline, mut looked) = (connect::deadline(self), Looked::new());
        let mut visit = Visit::new(Arc::clone(endpoint));
        loop {
            let to = (visit.endpoint().id, ends);
            if let Some(slot) = self.shared().place(to) {
                return Ok(Http2Stream::new(slot.holding(place, visit), true));
            }
            let under_way = self.shared().dialing(to);
            let dialing = match under_way {
                Some(dialing) => dialing,
                None if self.settle(visit.endpoint(), &mut looked, deadline).await? => {
                    self.dialing(&visit, ends)
                }
                None => {
                    if let Some(next) = again() {
                        visit = Visit::new(next);
                        continue;
                    }
                    self.dialing(&visit, ends)
                }
            };
            if let Some(slot) = dialing.await?.take() {
                let reached = Visit::new(Arc::clone(&slot.shared().endpoint));
                return Ok(Http2Stream::new(slot.holding(place, reached), false));
            }
        }
    }

    /// The connect to the endpoint that is visited: the one in progress, or else a new one.
    fn dialing(self: &Arc<Self>, visit: &Visit, ends: Option<&Ends>) -> SharedDial {
        let endpoint = visit.endpoint();
        let owned = || (Arc::clone(endpoint), ends.copied().map(Box::new));
        let dial = || Box::pin(Arc::clone(self).dial(owned())) as _;
        self.shared().dial((endpoint.id, ends), dial)
    }

    async fn dial(
        self: Arc<Self>,
        (endpoint, ends): (Arc<WorkerEndpoint>, Option<Box<Ends>>),
    ) -> Dialed {
        let opened = connect::open_shared(&self, (&endpoint, ends.as_deref())).await?;
        let origin = Origin {
            upstream: Arc::clone(&self.settings.name),
            scheme: opened.endpoint.scheme(),
            endpoint: Arc::clone(opened.endpoint.name()),
            authority: opened.endpoint.at.host_field().into(),
            last: LastAuthority::default(),
        };
        let settings::Upstream { heads, idle_timeout: idle, .. } = *self.settings;
        let limits = ExchangeLimits { heads, idle };
        let metrics = Arc::clone(&self.metrics);
        let shared = Arc::new(Http2Connection::new((opened, ends), origin, limits, metrics));
        self.shared().add(Arc::clone(&shared), self.settings.max_idle);
        self.keep_swept();
        Ok(shared)
    }
}
