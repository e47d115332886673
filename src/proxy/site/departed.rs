//! Executions whose client has left, while their cleanups run.
//!
//! They hold no place of `limits.requests`: a client could fill it with requests that it abandons. `limits.cleanups`
//! bounds them. If one more comes, the one that has gone on longest is cut off: a cleanup that hangs is the oldest
//! sooner or later, and one that does its work is done by then.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Those of one worker.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    count: AtomicUsize,
    running: Mutex<Running>,
}

/// In the order in which their clients left.
#[derive(Debug, Default)]
struct Running {
    next: u64,
    /// Dropping one of these cuts it off.
    keep: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
struct Departure<'a> {
    departed: &'a Departed,
    number: u64,
    kept: oneshot::Receiver<()>,
}

impl Departed {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Lets `execution` go on while there are at most `most`. Calls `cut` before it is dropped unfinished.
    pub(crate) async fn run(&self, most: usize, execution: impl Future, cut: impl FnOnce()) {
        let mut departure = self.begin(most);
        let mut execution = pin!(execution);
        tokio::select! {
            biased;
            _ended = &mut execution => {}
            _cut = &mut departure.kept => cut(),
        }
    }

    fn begin(&self, most: usize) -> Departure<'_> {
        let (keep, kept) = oneshot::channel();
        let mut running = self.lock();
        let number = running.next;
        running.next += 1;
        running.keep.insert(number, keep);
        while running.keep.len() > most.max(1) {
            running.keep.pop_first();
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        Departure { departed: self, number, kept }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        self.departed.lock().keep.remove(&self.number);
        self.departed.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_too_many_cuts_off_the_one_that_has_gone_on_longest() {
        let departed = Departed::default();
        let cut = Mutex::new(Vec::new());
        let second = Duration::from_secs(1);
        let runs = |name: &'static str, from: Duration, takes: Duration| {
            let (departed, cut) = (&departed, &cut);
            async move {
                sleep(from).await;
                departed.run(2, sleep(takes), || cut.lock().unwrap().push(name)).await;
            }
        };
        tokio::join!(
            runs("hangs", Duration::ZERO, second * 1000),
            runs("ends", second, second / 2),
            runs("later", second * 2, second),
            runs("last", second * 2, second),
        );
        assert_eq!(*cut.lock().unwrap(), ["hangs"]);
        assert_eq!(departed.count(), 0);
    }
}
