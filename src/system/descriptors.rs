//! File descriptors: how many the process may have open, and what it does when there are none left.

use std::fs::File;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many descriptors the process may have open (`RLIMIT_NOFILE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Before [`raise`].
    pub before: u64,
    /// Now.
    pub now: u64,
}

/// Raises the limit to the highest that the system allows this process.
///
/// Shells set the lower limit to 1024 for programs that use `select(2)`, which cannot count further. This one does not.
pub fn raise() -> Allowance {
    let limit = getrlimit(Resource::Nofile);
    let before = limit.current.unwrap_or(u64::MAX);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let raised =
        before < limit.maximum.unwrap_or(u64::MAX) && setrlimit(Resource::Nofile, wanted).is_ok();
    Allowance { before, now: if raised { allowed() } else { before } }
}

/// How many descriptors the process may have open now.
pub fn allowed() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether `error` says that no descriptor is left, in this process or in the system.
pub fn are_exhausted(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|no| error.raw_os_error() == Some(no.raw_os_error()))
}

/// Whether there is one left now. Some libraries say of an error only that there was one.
pub fn are_left() -> bool {
    !File::open("/dev/null").is_err_and(|error| are_exhausted(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_once() {
        let first = raise();
        assert!(first.now >= first.before);
        assert_eq!(raise(), Allowance { before: first.now, now: first.now });
        assert_eq!(allowed(), first.now);
    }

    #[test]
    fn exhaustion_is_told_from_other_errors() {
        let error = |number: Errno| io::Error::from_raw_os_error(number.raw_os_error());
        assert!(are_exhausted(&error(Errno::MFILE)) && are_exhausted(&error(Errno::NFILE)));
        assert!(!are_exhausted(&error(Errno::CONNABORTED)));
        assert!(!are_exhausted(&io::ErrorKind::Other.into()));
        assert!(are_left());
    }
}
