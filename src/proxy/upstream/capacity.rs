//! How many requests may be at an upstream at once, over all workers: `maxRequests`.
//!
//! A request that finds room only increments a counter. One that finds none joins a queue, and gets the place
//! of the next request that ends, in the order of arrival. It waits at most `maxWait`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use super::connect_error::ConnectError;
use crate::telemetry::metrics::UpstreamMetrics;

/// The places at one upstream. All workers share them.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    /// How long a request may wait for a place.
    wait: Duration,
    /// How many places are taken.
    taken: AtomicUsize,
    /// How many requests are in the queue. Only if there are any is it locked.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

/// The places, behind a worker's own reference count: each request holds one.
#[derive(Debug)]
pub(super) struct Capacity(Arc<Places>);

/// Those who wait, by their number in the order of arrival.
#[derive(Debug, Default)]
struct Queue {
    next: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Place>>,
}

/// A place at an upstream, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Capacity>);

/// A request in the queue. It leaves the queue when it is dropped.
struct Waiting<'a> {
    places: &'a Places,
    metrics: &'a UpstreamMetrics,
    number: u64,
}

impl Places {
    /// `most` places, for each of which a request waits at most `wait`.
    pub(crate) fn new(most: usize, wait: Duration) -> Arc<Self> {
        Arc::new(Self {
            most,
            wait,
            taken: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        })
    }

    /// Takes a place, if one is free.
    fn take(&self) -> bool {
        let taken = self.taken.fetch_add(1, Ordering::SeqCst);
        if taken >= self.most {
            self.taken.fetch_sub(1, Ordering::SeqCst);
        }
        taken < self.most
    }

    /// How many there are, how many are taken, and how many requests wait for one.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let taken = self.taken.load(Ordering::Relaxed).min(self.most);
        (self.most, taken, self.waiting.load(Ordering::Relaxed))
    }

    fn any_wait(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    fn join<'a>(
        &'a self,
        sender: oneshot::Sender<Place>,
        metrics: &'a UpstreamMetrics,
    ) -> Waiting<'a> {
        let mut queue = self.lock();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.insert(number, sender);
        self.waiting.store(queue.waiting.len(), Ordering::SeqCst);
        metrics.waits();
        Waiting { places: self, metrics, number }
    }

    fn first(&self) -> Option<oneshot::Sender<Place>> {
        let mut queue = self.lock();
        let first = queue.waiting.pop_first();
        self.waiting.store(queue.waiting.len(), Ordering::SeqCst);
        first.map(|(_, sender)| sender)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Capacity {
    /// The view of one worker.
    pub(super) fn new(places: Arc<Places>) -> Arc<Self> {
        Arc::new(Self(places))
    }

    /// A place, if there is one and nobody waits for it.
    pub(super) fn at_once(self: &Arc<Self>) -> Option<Place> {
        (!self.0.any_wait() && self.0.take()).then(|| Place(Arc::clone(self)))
    }

    /// A place, once there is one.
    pub(super) async fn place(
        self: &Arc<Self>,
        metrics: &UpstreamMetrics,
    ) -> Result<Place, ConnectError> {
        if let Some(place) = self.at_once() {
            return Ok(place);
        }
        let (sender, receiver) = oneshot::channel();
        let _waiting = self.0.join(sender, metrics);
        // A place may have become free before this request was in the queue.
        self.call_next();
        tokio::select! {
            biased;
            Ok(place) = receiver => Ok(place),
            () = sleep(self.0.wait) => Err(ConnectError::no_place(self.0.most, self.0.wait)),
        }
    }

    /// Gives free places to those who wait.
    fn call_next(self: &Arc<Self>) {
        while self.0.any_wait() && self.0.take() {
            let place = Place(Arc::clone(self));
            let Some(first) = self.0.first() else { break };
            // One who has left meanwhile gives the place back, and that calls the next.
            drop(first.send(place));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self(capacity) = self;
        capacity.0.taken.fetch_sub(1, Ordering::SeqCst);
        if capacity.0.any_wait() {
            capacity.call_next();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut queue = self.places.lock();
        queue.waiting.remove(&self.number);
        self.places.waiting.store(queue.waiting.len(), Ordering::SeqCst);
        self.metrics.waits_no_longer();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::time::Instant;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    const WAIT: Duration = Duration::from_secs(1);

    fn capacity(most: usize, wait: Duration) -> Arc<Capacity> {
        Capacity::new(Places::new(most, wait))
    }

    fn metrics() -> Arc<UpstreamMetrics> {
        Metrics::new().upstream("u")
    }

    #[tokio::test(start_paused = true)]
    async fn places_go_to_those_who_wait_in_the_order_of_arrival() {
        let (capacity, metrics) = (capacity(1, WAIT), metrics());
        let order = Mutex::new(Vec::new());
        let turns = (0..5_u8).map(|number| {
            let (capacity, metrics, order) = (&capacity, &metrics, &order);
            async move {
                let place = capacity.place(metrics).await.unwrap();
                order.lock().unwrap().push(number);
                sleep(WAIT / 10).await;
                drop(place);
            }
        });
        let begun = Instant::now();
        join_all(turns).await;
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(begun.elapsed(), WAIT / 2);
        assert!(capacity.at_once().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told_and_leaves_the_queue() {
        let (capacity, metrics) = (capacity(2, WAIT), metrics());
        let held = [capacity.at_once().unwrap(), capacity.at_once().unwrap()];
        assert!(capacity.at_once().is_none());
        let begun = Instant::now();
        let error = capacity.place(&metrics).await.unwrap_err();
        assert_eq!(begun.elapsed(), WAIT);
        assert_eq!(error.cause.phase(), "capacity");
        assert_eq!(
            error.to_string(),
            "has 2 requests already (maxRequests), and none ended within PT1S"
        );
        drop(held);
        assert!(capacity.at_once().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_the_queue_hands_its_place_on() {
        let (capacity, metrics) = (capacity(1, WAIT), metrics());
        let held = capacity.at_once();
        let mut leaving = Box::pin(capacity.place(&metrics));
        assert!(futures_util::poll!(&mut leaving).is_pending());
        let mut staying = Box::pin(capacity.place(&metrics));
        assert!(futures_util::poll!(&mut staying).is_pending());
        drop(held);
        // The place was given to the first, who never took it.
        drop(leaving);
        assert!(staying.await.is_ok());
    }

    #[test]
    fn many_threads_never_take_more_than_there_are() {
        const THREADS: usize = 4;
        let (capacity, metrics) = (capacity(2, Duration::from_mins(1)), metrics());
        let most = AtomicUsize::new(0);
        let now = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let driver = tokio::runtime::Builder::new_current_thread().enable_all().build();
                    driver.unwrap().block_on(async {
                        for _ in 0..500 {
                            let place = capacity.place(&metrics).await.unwrap();
                            most.fetch_max(
                                now.fetch_add(1, Ordering::SeqCst) + 1,
                                Ordering::SeqCst,
                            );
                            tokio::task::yield_now().await;
                            now.fetch_sub(1, Ordering::SeqCst);
                            drop(place);
                        }
                    });
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 2);
        assert_eq!(capacity.0.taken.load(Ordering::SeqCst), 0);
    }
}
