//! When the configuration is loaded again: on SIGHUP, on `POST /reload`, when its files change, and some time after a load
//! that was refused for a reason that may pass.
//!
//! The hard part is to know when a changing file is finished. `debounce` decides it from the watcher's events,
//! without touching a file. `watch` is the watcher, and `links` tells it which paths matter. `stamp` compares
//! file metadata where no events come. `reloader` joins them with those who ask for a reload.

mod debounce;
mod links;
mod reloader;
mod signals;
mod stamp;
#[cfg(test)]
mod testing;
mod watch;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::config::FileContents;

pub use self::reloader::{ReloadHandle, Reloader, reloader};
pub use self::signals::{Signal, Signals};

/// What asked for a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// SIGHUP.
    Signal,
    /// `POST /reload`.
    Admin,
    /// A file changed.
    File,
    /// The last load was refused for a reason that may pass.
    Again,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signal => "SIGHUP",
            Self::Admin => "POST /reload",
            Self::File => "the file changed",
            Self::Again => "tried again",
        })
    }
}

/// What a [`Reloader`] calls to load a configuration.
pub trait Reload {
    /// A configuration that was read and is not served yet.
    type Loaded;
    /// The outcome of serving it.
    type Applied: Clone;

    /// Reads the configuration. Also returns the files that were read or looked for and their contents;
    /// these are watched from now on.
    fn load(&self) -> (Vec<FileContents>, Self::Loaded);

    /// The answer when the files have not changed and are served already. `None` when they are not
    /// served, for example because an address was not available.
    fn unchanged(&self, cause: Cause) -> Option<Self::Applied>;

    /// Serves what was loaded.
    fn apply(&self, cause: Cause, loaded: Self::Loaded) -> impl Future<Output = Self::Applied>;

    /// Whether the last load was refused for a reason that may pass although no file changes: no descriptor was left to
    /// read one, for example.
    fn may_pass(&self) -> bool;

    /// The answer when nothing was loaded because a writer has kept a file open for `waited`.
    fn unfinished(&self, cause: Cause, waited: Duration) -> Self::Applied;
}
