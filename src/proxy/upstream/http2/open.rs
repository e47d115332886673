//! Opens a connection.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep, sleep_until};

use super::driver::Driver;
use crate::proxy::h2::{
    Builder, Incoming, STREAMS, SendRequest, Traffic, WINDOW, connection_window,
};
use crate::proxy::io::Io;
use crate::proxy::settings::HeadLimits;
use crate::proxy::upstream::connect_error::{Cause, ConnectError};

/// How long to wait for the end of a response without a body.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// A new connection.
#[derive(Debug)]
pub(in crate::proxy::upstream) struct NewConnection {
    pub(super) sender: SendRequest,
    pub(super) traffic: Arc<Traffic>,
    /// How many requests it carries. Whoever sends requests on it counts them here.
    pub(super) carried: Arc<AtomicU32>,
}

fn protocol(heads: HeadLimits) -> Builder {
    Builder::new()
        .initial_max_send_streams(STREAMS as usize)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(connection_window(STREAMS))
        .max_send_buffer_size(WINDOW as usize)
        .max_header_list_size(heads.list_size())
}

/// Begins HTTP/2 over `io` before `deadline`, and spawns the task that drives the connection. See [`Driver`] for
/// `ping_interval`.
pub(in crate::proxy::upstream) async fn open(
    io: Io,
    heads: HeadLimits,
    ping_interval: Duration,
    deadline: Instant,
) -> Result<NewConnection, ConnectError> {
    let (sender, connection) = protocol(heads).connect(io);
    let traffic = connection.traffic();
    let carried = Arc::<AtomicU32>::default();
    let counts = (Arc::clone(&traffic), Arc::clone(&carried));
    let mut driver = Driver::new(connection, counts, ping_interval);
    // The other side first sends its settings (RFC 9113 §3.4). Requests that are sent earlier might exceed them
    // and be refused; and if no settings arrive, the other side speaks another protocol.
    let greeted = tokio::select! {
        biased;
        ended = &mut driver => Err(ended.err()),
        () = traffic.first_byte() => Ok(()),
        () = sleep_until(deadline) => Err(None),
    };
    if let Err(error) = greeted {
        let why = error.map(|error| format!(" ({error})")).unwrap_or_default();
        let message = format!("did not greet in HTTP/2{why}: is `protocol` right?");
        return Err(ConnectError { cause: Cause::Greeting, message });
    }
    tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(%error, "An upstream connection ended with an error.");
        }
    });
    Ok(NewConnection { sender, traffic, carried })
}

/// Waits a while for the end of a response without a body, so that the stream need not be reset. Keeps `stream` until
/// then.
pub(in crate::proxy::upstream) async fn read_to_end<S>(mut incoming: Incoming, stream: S) {
    let empty = |frame: Frame<Bytes>| frame.data_ref().is_none_or(Bytes::is_empty);
    let ended = async { while incoming.frame().await.is_some_and(|it| it.is_ok_and(empty)) {} };
    tokio::select! {
        () = ended => {}
        () = sleep(END_TIMEOUT) => {}
    }
    drop((incoming, stream));
}
