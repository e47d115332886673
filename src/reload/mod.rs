//! When the configuration is loaded anew: on SIGHUP, on `POST /reload`, and when its files change.
//!
//! A file that changes is a question of when it has finished changing. `settle` decides it from what a
//! watcher tells, without touching a file; `watch` is the watcher, and knows which paths matter: the
//! file, and every link on the way to it, for a `ConfigMap` changes by swapping one of those.

mod settle;
mod signals;
mod watch;

use std::fmt;
use std::future::Future;

use crate::config::Read;

pub use self::signals::{Signal, Signals};
pub use self::watch::Watcher;

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

/// What a watcher asks to load the configuration anew.
pub trait Reload {
    /// Loads it. Which files were read, or asked for, and what they held: these are watched from now on.
    fn reload(&self) -> impl Future<Output = Vec<Read>>;
}
