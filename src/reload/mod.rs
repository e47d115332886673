//! When the configuration is loaded anew: on SIGHUP, on `POST /reload`, and when its files change.
//!
//! A file that changes is a question of when it has finished changing. `settle` decides it from what a
//! watcher tells, without touching a file; `watch` is the watcher, and knows which paths matter (`ways`);
//! `stamp` is what is looked at where nobody tells. `reloader` brings them together with those who ask.

mod reloader;
mod settle;
mod signals;
mod stamp;
#[cfg(test)]
mod testing;
mod watch;
mod ways;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::config::Read;

pub use self::reloader::{Asks, Reloader, reloader};
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
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signal => "SIGHUP",
            Self::Admin => "POST /reload",
            Self::File => "the file changed",
        })
    }
}

/// What a [`Reloader`] has load the configuration anew.
pub trait Reload {
    /// What was read, and is not served yet.
    type Loaded;
    /// What came of serving it.
    type Applied: Clone;

    /// Reads it. Which files were read, or asked for, and what they held: these are watched from now on.
    fn load(&self) -> (Vec<Read>, Self::Loaded);

    /// What comes of asking for what is served already; `None` where it is not, though the files are the
    /// same: an address could not be had.
    fn unchanged(&self, cause: Cause) -> Option<Self::Applied>;

    /// Serves it.
    fn apply(&self, cause: Cause, loaded: Self::Loaded) -> impl Future<Output = Self::Applied>;

    /// Nothing was loaded: a writer has held a file open for so long.
    fn unfinished(&self, cause: Cause, waited: Duration) -> Self::Applied;
}
