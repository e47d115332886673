//! A restart without an outage: a new process takes the listening sockets of the old one, which then stops as at SIGTERM.
//!
//! Both run with `--takeover SOCKET`, and meet at that Unix socket. It is not in the configuration, because it belongs to how a
//! process is started and not to what it serves: a reload cannot change it, and it works without a file. One word serves
//! both: who finds nobody there starts by itself, and whoever serves waits there for the next one. So a supervisor always
//! starts the same command.
//!
//! The conversation is lines of JSON, each of which may carry one descriptor (`SCM_RIGHTS`):
//!
//! ```text
//! new: {"take":{"protocol":1}}
//! old: {"socket":{"name":"listener","configured":"0.0.0.0:8080"}}      with the socket, for each
//! old: {"all":{"sockets":3}}
//!      The new one has checked its configuration before it asked. Now it starts, and accepts.
//! new: "ready"
//! old: "drains"
//! ```
//!
//! At any time the old one may answer `{"refused":{"why":"…"}}` instead. It does so to a process of another user, to a second one
//! while a first is at it, and to one that is not ready in time ([`PATIENCE`]). Whatever goes wrong before "ready", the old
//! one goes on as if nobody had come.
//!
//! Nothing is refused meanwhile, because the sockets are never closed: both processes have descriptors of the same ones, and
//! for a moment both accept. That is why the new one accepts before it says so: nothing that can fail is left to do then. If
//! the old one vanishes without a word, the new one goes on, as it has all that it needs.
//!
//! The socket's file belongs to its user alone (mode 0600), and the system tells both sides who the other one is. A file that a
//! dead process has left behind is replaced.

mod channel;
mod file;
mod giver;
mod taker;
#[cfg(test)]
mod tests;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::file::SocketFile;
pub(crate) use self::giver::{Giver, Outcome};
pub(crate) use self::taker::{Taker, take};

/// The version of the conversation.
const PROTOCOL: u32 = 1;

/// How long the old process waits for the new one to be ready, from its first word. It serves meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the new process waits for each answer of the old one.
const ANSWER: Duration = Duration::from_secs(10);

/// Why the sockets of another process cannot be taken, or no other one could take ours. The message says what to do.
#[derive(Debug, thiserror::Error)]
#[error("--takeover: {0}")]
pub struct TakeoverError(String);

/// A socket that is handed over.
#[derive(Debug)]
pub(crate) struct Passed {
    /// Whether it is for clients or for operators: [`LISTENER`](crate::system::inherited::LISTENER) or [`ADMIN`](crate::system::inherited::ADMIN).
    pub(crate) name: &'static str,
    /// Its address as configured.
    pub(crate) configured: SocketAddr,
    pub(crate) listener: TcpListener,
}

/// What the new process says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum TakerMessage {
    /// It wants the sockets.
    Take { protocol: u32 },
    /// It accepts on them.
    Ready,
}

/// What the old process says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum GiverMessage {
    /// A socket, whose descriptor comes with this line.
    Socket { name: String, configured: SocketAddr },
    /// These were all.
    All { sockets: usize },
    /// It accepts no more, and lets its requests end.
    Drains,
    /// It goes on, and the new process must not.
    Refused { why: String },
}
