//! A scripted resolver: a test sets the result of each lookup.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use mwl_proxy::proxy::Resolve;
use tokio::sync::Semaphore;

/// The result of one lookup.
pub(crate) type Says = Result<Vec<&'static str>, &'static str>;

/// The resolver.
#[derive(Debug)]
pub(crate) struct Names {
    /// The last one is for all further lookups.
    says: Mutex<VecDeque<Says>>,
    asked: Mutex<Vec<String>>,
    /// A lookup takes one of these permits before it ends.
    may_end: Arc<Semaphore>,
}

impl Names {
    /// Returns this for every name.
    pub(crate) fn saying(addresses: &[&'static str]) -> Arc<Self> {
        Self::playing([Ok(addresses.to_vec())])
    }

    /// Returns these one after the other, and the last from then on.
    pub(crate) fn playing(says: impl IntoIterator<Item = Says>) -> Arc<Self> {
        Self::with(says, Semaphore::MAX_PERMITS)
    }

    /// Returns this for every name, once [`Names::answer`] allows it.
    pub(crate) fn held(addresses: &[&'static str]) -> Arc<Self> {
        Self::with([Ok(addresses.to_vec())], 0)
    }

    fn with(says: impl IntoIterator<Item = Says>, may_end: usize) -> Arc<Self> {
        Arc::new(Self {
            says: Mutex::new(says.into_iter().collect()),
            asked: Mutex::default(),
            may_end: Arc::new(Semaphore::new(may_end)),
        })
    }

    /// Returns something else from now on.
    pub(crate) fn say(&self, says: Says) {
        *self.says.lock().unwrap() = VecDeque::from([says]);
    }

    /// Lets one held lookup end.
    pub(crate) fn answer(&self) {
        self.may_end.add_permits(1);
    }

    /// The names that were looked up so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn next(&self) -> Says {
        let mut says = self.says.lock().unwrap();
        if says.len() > 1 { says.pop_front().unwrap() } else { says[0].clone() }
    }
}

impl Resolve for Names {
    fn resolve(
        &self,
        host: Arc<str>,
        port: u16,
    ) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        self.asked.lock().unwrap().push(host.to_string());
        let says = self.next().map_err(io::Error::other);
        let found = says.map(|all| {
            let address = |ip: &str| SocketAddr::new(ip.parse().unwrap(), port);
            all.into_iter().map(address).collect()
        });
        let gate = Arc::clone(&self.may_end);
        Box::pin(async move {
            gate.acquire_owned().await.unwrap().forget();
            found
        })
    }
}
