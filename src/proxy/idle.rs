//! What an idle connection costs.
//!
//! The HTTP library keeps two buffers of 8 KiB for each connection, and its own state beside them, for as
//! long as the connection lives. Ten thousand clients that keep a connection for later are 200 MB of
//! nothing. So a connection that has idled for a while is taken out of the library: what is left of it is the
//! socket and the task that waits for its next byte. Who comes back finds it as it was. A busy connection
//! pays nothing for this: the worker's watch, which looks at all connections each tick in any case, asks.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf};

use super::preface::Prefaced;
use super::site::Core;
use super::watch::State;
use super::watched::{Line, Watched};

/// After how many ticks of idling a connection is taken out of the library.
pub(super) const AFTER: u32 = 2;

/// How much of what comes is read at first. It is handed on; the rest is the library's to read.
const FIRST: usize = 512;

/// What `served` comes to, or none where the connection can be put by before that.
pub(super) async fn until_rest<F: Future>(served: F, state: &State) -> Option<F::Output> {
    let mut served = pin!(served);
    poll_fn(|cx| {
        if state.rests() {
            return Poll::Ready(None);
        }
        served.as_mut().poll(cx).map(Some)
    })
    .await
}

/// A connection without the library, and whether it has something to read that the library had read. `None`
/// where it speaks another protocol by now.
pub(super) fn take_out<T, S>(
    connection: http1::UpgradeableConnection<TokioIo<Watched<Prefaced<T>>>, S>,
) -> Option<(Prefaced<T>, bool)>
where
    T: Line,
    S: HttpService<Incoming>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::ResBody: Body + 'static,
    <S::ResBody as Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let parts = connection.into_parts()?;
    let mut io = parts.io.into_inner().into_inner();
    let unread = !parts.read_buf.is_empty();
    if unread {
        // What holds nothing holds on to the library's buffer all the same.
        io.put_back(parts.read_buf);
    }
    Some((io, unread))
}

/// Waits until the client sends something more, which is then `io`'s first to read. False where there is
/// nothing to wait for: the client has ended, or the process stops.
pub(super) async fn resumes<T>(io: &mut Prefaced<T>, state: &State, core: &Core) -> bool
where
    T: AsyncRead + Unpin,
{
    poll_fn(|cx| {
        if state.is_draining() || core.draining() {
            return Poll::Ready(false);
        }
        let mut first = [MaybeUninit::uninit(); FIRST];
        let mut read = ReadBuf::uninit(&mut first);
        let polled = ready!(Pin::new(&mut *io).poll_read(cx, &mut read));
        if polled.is_err() || read.filled().is_empty() {
            return Poll::Ready(false);
        }
        io.put_back(Bytes::copy_from_slice(read.filled()));
        Poll::Ready(true)
    })
    .await
}
