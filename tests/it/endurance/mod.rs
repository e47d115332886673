//! What holds for long and for many: reloads without end, clients that leave, hours of trouble.
//!
//! Each test has a small size that always runs, and the size that it is named for behind `MWL_ENDURANCE=1`.
//! The big sizes mean more against an optimised program, which `MWL_PROXY_BIN` names.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::program::Proxy;
use crate::support::watched::{PATIENCE, pause};
use tokio::time::Instant;

/// Upstreams that do as they like.
mod chaos;
/// Clients that leave at any moment.
mod departures;
/// Reloads under load, and a thousand of them.
mod reloads;
/// All of it at once, for minutes.
mod soak;

/// Dropped, also by a failure, it ends the load.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether the big sizes are asked for.
fn big() -> bool {
    std::env::var_os("MWL_ENDURANCE").is_some()
}

/// The small size or the big one.
fn size<T>(small: T, large: T) -> T {
    if big() { large } else { small }
}

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    descriptors: u64,
    tasks: u64,
    /// Resident, in KiB.
    memory: u64,
}

impl Held {
    fn by(proxy: &Proxy) -> Self {
        Self {
            descriptors: proxy.program().descriptors(),
            tasks: proxy.metric("mwl_worker_tasks", &[]),
            memory: proxy.program().memory("VmRSS:"),
        }
    }

    /// Waits until the proxy holds no more descriptors and tasks than this; what it holds then.
    fn until_back(self, proxy: &Proxy) -> Self {
        let begun = Instant::now();
        loop {
            let now = Self::by(proxy);
            if now.descriptors <= self.descriptors && now.tasks <= self.tasks {
                return now;
            }
            assert!(begun.elapsed() < PATIENCE, "it holds {now:?}, and held {self:?} before");
            pause(50);
        }
    }
}

/// Says a figure; shown with `--nocapture`.
#[expect(clippy::print_stderr, reason = "the figure is what the big size is run for")]
fn say(figure: &str) {
    eprintln!("{figure}");
}
