//! Recordings of whole exchanges (`run --record DIR`): the request as the client sent it, the answer, and the execution
//! between them, one file each, to look at and to send again.
//!
//! Unlike a [record](super::record), a recording holds bodies and fields, so it is for a developer's own machine: it is
//! off unless it is asked for, only its user reads its files, and credentials are left out ([`secrets`]). A worker copies
//! what passes, up to [`BODY`] of each body, and hands it over when the request has ended; a thread writes the file. If
//! that is too slow, recordings are lost, counted and told, and no request waits.

mod folder;
mod form;
mod secrets;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version};
use serde_json::{Value as Json, json};

use self::folder::Folder;
pub use self::folder::{ReadError, read};
pub use self::form::{RecordedAnswer, RecordedBody, RecordedField, RecordedRequest, Recording};
use super::limiter::LogLimiter;
use super::metrics::Metrics;
use super::record::Execution;
use super::write_queue::{Loss, WriteQueue};

/// How much of each body is kept.
pub const BODY: usize = 64 * 1024;
/// How many recordings may wait to be written.
const QUEUE: usize = 256;

/// How many recordings a list has unless it is asked for more.
pub const LISTED: usize = 200;

/// The recordings of the process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recordings {
    queue: WriteQueue<Box<Conversation>>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    folder: Folder,
    /// Where requests can be sent again.
    listener: Mutex<Option<SocketAddr>>,
}

/// An exchange that has ended, and its record.
#[derive(Debug)]
struct Conversation {
    copied: Copied,
    execution: Arc<Execution>,
}

/// What was copied of an exchange with a client.
#[derive(Debug)]
pub struct Copied {
    /// The method.
    pub method: Method,
    /// The target, as the client wrote it.
    pub target: Box<str>,
    /// The version of HTTP.
    pub version: Version,
    /// The request's fields, as the client sent them.
    pub headers: HeaderMap,
    /// The request's body, if it had one.
    pub body: Option<CopiedBody>,
    /// The answer, if there was one.
    pub answer: Option<(StatusCode, HeaderMap, Option<CopiedBody>)>,
}

/// A copy of a body, or of its beginning.
#[derive(Debug)]
pub struct CopiedBody {
    /// What was kept.
    pub bytes: Bytes,
    /// How many bytes passed.
    pub passed: u64,
    /// Whether all of it was kept, to its end.
    pub whole: bool,
}

/// Selects recordings for a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// How many at most; [`LISTED`] if it is not said.
    pub limit: Option<usize>,
    /// Only those of this execution.
    pub execution: Option<String>,
    /// Only that of this request.
    pub request: Option<String>,
}

impl Recordings {
    /// Starts the thread that writes into the folder at `path`, which is made if need be.
    ///
    /// # Errors
    /// When the folder is not fit, or the system provides no thread.
    pub fn start(path: &Path, metrics: &Metrics) -> io::Result<Self> {
        let folder = Folder::open(path, (folder::FILES, folder::BYTES))?;
        let state = Arc::new(State { folder, listener: Mutex::default() });
        let line = "Recordings were lost: the disk is slow, full or gone.";
        let loss =
            Loss::told(metrics.lost_records("recordings"), LogLimiter::new(line, None), line);
        let writing = Arc::clone(&state);
        let queue = WriteQueue::start_each(
            "recordings",
            QUEUE,
            loss,
            move |next: Option<Box<Conversation>>| {
                match next {
                    // Here, so that the start waits for no long list.
                    None => writing.list_earlier(),
                    Some(conversation) => writing.write(&conversation),
                }
            },
        )?;
        Ok(Self { queue, state })
    }

    /// Hands an exchange over, without waiting.
    pub(super) fn keep(&self, copied: Copied, execution: Arc<Execution>) {
        self.queue.send(Box::new(Conversation { copied, execution }));
    }

    /// From now on requests can be sent again in clear text to the first of `addresses`.
    pub fn listen(&self, addresses: &[SocketAddr]) {
        let first = addresses.first().map(|address| match address {
            SocketAddr::V4(any) if any.ip().is_unspecified() => {
                (Ipv4Addr::LOCALHOST, any.port()).into()
            }
            SocketAddr::V6(any) if any.ip().is_unspecified() => {
                (Ipv6Addr::LOCALHOST, any.port()).into()
            }
            address => *address,
        });
        *self.state.listener.lock().unwrap_or_else(PoisonError::into_inner) = first;
    }

    /// Where requests can be sent again, if anywhere.
    pub fn listener(&self) -> Option<SocketAddr> {
        *self.state.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder.
    pub fn directory(&self) -> String {
        self.state.folder.path().display().to_string()
    }

    /// The latest recordings, newest first, for `/recordings`.
    pub fn to_json(&self, wanted: &Selection) -> Json {
        let Selection { limit, execution, request } = wanted;
        let is = |summary: &Json, member: &str, wanted: &Option<String>| {
            let own = summary.get(member).and_then(Json::as_str);
            wanted.as_deref().is_none_or(|wanted| own == Some(wanted))
        };
        let (recordings, kept, bytes) =
            self.state.folder.latest(limit.unwrap_or(LISTED), |summary| {
                is(summary, "execution", execution) && is(summary, "request", request)
            });
        json!({
            "directory": self.directory(),
            "kept": kept,
            "bytes": bytes,
            "dropped": self.queue.dropped(),
            "recordings": recordings.iter().map(|one| &**one).collect::<Vec<&Json>>(),
        })
    }

    /// The recording with this id.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn read(&self, id: &str) -> Result<Recording, ReadError> {
        self.state.folder.read(id)
    }

    /// Waits, at most `patience`, until everything handed over is written.
    pub fn flush(&self, patience: Duration) {
        self.queue.flush(patience);
    }
}

impl State {
    fn list_earlier(&self) -> bool {
        let listed = self.folder.list_earlier();
        if let Err(error) = &listed {
            tracing::warn!(%error, "Earlier recordings cannot be listed.");
        }
        listed.is_ok()
    }

    /// Writes one. Returns whether that went well.
    fn write(&self, conversation: &Conversation) -> bool {
        let Conversation { copied, execution } = conversation;
        let (about, request) = (execution.to_json(), &execution.request);
        let listener = *self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        let recording = Recording {
            version: form::VERSION,
            id: folder::id(&request.at.to_string(), &request.id, &request.request.to_string()),
            listener: listener.map(|address| format!("http://{address}")),
            request: RecordedRequest::of(copied),
            answer: copied
                .answer
                .as_ref()
                .map(|(status, headers, body)| RecordedAnswer::of(*status, headers, body.as_ref())),
            execution: about,
        };
        let written = self.folder.write(&recording);
        if let Err(error) = &written {
            tracing::debug!(%error, "A recording could not be written.");
        }
        written.is_ok()
    }
}
