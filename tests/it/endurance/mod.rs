//! Long and large runs: endless reloads, clients that leave, hours of trouble.
//!
//! Each test has a small size that always runs. `MWL_ENDURANCE=1` selects the full size, which means more with
//! an optimised program, set with `MWL_PROXY_BIN`.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::program::Proxy;
use crate::support::watched::{PATIENCE, pause};
use tokio::time::Instant;

/// Upstreams that behave at random.
mod chaos;
/// Clients that leave at any moment.
mod departures;
/// Reloads under load, up to a thousand of them.
mod reloads;
/// Everything at once, for minutes.
mod soak;

/// Ends the load when dropped, also after a failure.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether the full sizes are requested.
fn big() -> bool {
    std::env::var_os("MWL_ENDURANCE").is_some()
}

/// The small or the full size.
fn size<T>(small: T, large: T) -> T {
    if big() { large } else { small }
}

/// The resources of a process.
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

    /// Waits until the proxy has no more descriptors and tasks than this. Returns what it has then.
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

/// Prints a figure, which `--nocapture` shows.
#[expect(clippy::print_stderr, reason = "the figure is what the big size is run for")]
fn say(figure: &str) {
    eprintln!("{figure}");
}
