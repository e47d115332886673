//! Holds `limits.connections` against the number of descriptors that the process may have.

use crate::proxy::settings::Limits;
use crate::system::descriptors::{self, Allowance};

/// What a client's connection needs: its own descriptor, and that of a connection to an upstream.
const OF_A_CONNECTION: u64 = 2;

/// What a worker needs beside its connections: its poller, its listeners, and both ends of each pipe for large bodies.
const OF_A_WORKER: u64 = 96;

/// What is kept back for all else: the admin address and its reserve, the log, the files of a reload, health checks.
const OF_THE_PROCESS: u64 = 128;

/// Raises the limit of open files as far as the system allows.
pub(super) fn raise() {
    let Allowance { before, now } = descriptors::raise();
    if now > before {
        tracing::info!(from = before, to = now, "The limit of open files was raised.");
    }
}

/// Lowers `limits.connections` if the process could not open that many, and says so. Nobody asked for the default: of
/// that, only the `first` time.
pub(super) fn fit(limits: &mut Limits, first: bool) {
    let files = descriptors::allowed();
    let wanted = limits.connections;
    let most = connections(files, limits.workers);
    if wanted <= most {
        return;
    }
    limits.connections = most;
    if !limits.connections_given {
        if first {
            tracing::info!(
                files,
                default = wanted,
                connections = most,
                "The limit of open files allows fewer clients at once than the default of `limits.connections`: more wait."
            );
        }
        return;
    }
    tracing::warn!(
        files,
        wanted,
        connections = most,
        help = "raise the hard limit of open files (`ulimit -Hn`, LimitNOFILE=), or lower `limits.connections`",
        "`limits.connections` is more than the limit of open files allows: fewer clients are served at once, and more wait."
    );
}

/// For how many connections of clients `files` descriptors are enough.
fn connections(files: u64, workers: usize) -> usize {
    let workers = u64::try_from(workers).unwrap_or(u64::MAX);
    let kept = OF_A_WORKER.saturating_mul(workers).saturating_add(OF_THE_PROCESS);
    let most = files.saturating_sub(kept) / OF_A_CONNECTION;
    usize::try_from(most).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_never_for_clients() {
        assert_eq!(connections(4096, 2), 1888);
        assert_eq!(connections(1024, 1), 400);
        assert_eq!(connections(100, 64), 1);
        assert_eq!(connections(1 << 20, 2), 524_128);
        assert_eq!(connections(u64::MAX, 2), usize::MAX / 2 - 160);
    }
}
