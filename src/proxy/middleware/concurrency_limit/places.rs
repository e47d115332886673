//! The places of a limit, and the queue before them.
//!
//! A run that finds a place free and nobody waiting only increments a counter. One that finds none joins the queue, if
//! that has room, and gets the place of the next run that ends, in the order of arrival.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::gradient::Gradient;
use super::settings::{Limit, Settings};
use crate::language::provider::{Moment, Pass};

/// The places of one limit. All workers share them.
#[derive(Debug)]
pub(super) struct Places {
    /// How many there are now.
    limit: AtomicUsize,
    /// How many are taken.
    taken: AtomicUsize,
    /// How many runs are in the queue. Only if there are any is it locked.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
    /// How many may be in it.
    room: usize,
    /// How long each may wait.
    wait: Duration,
    /// What finds the limit, unless it is fixed.
    gradient: Option<Gradient>,
}

/// Those who wait, by their number in the order of arrival.
#[derive(Debug, Default)]
struct Queue {
    next: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Place>>,
}

/// A place that was taken at once. It must be [given back](Places::give_back), or become a [`Place`], which does that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// When the run began, by the gradient's clock; 1 if there is none.
    begun: NonZeroU64,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    taken: Taken,
    /// How the run went, once that is known.
    went: Option<Went>,
    /// How long it waited for the place.
    pub(super) waited: Option<Duration>,
}

/// A run in the queue. It leaves the queue when it is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    places: Arc<Places>,
    number: u64,
    receiver: oneshot::Receiver<Place>,
    since: Instant,
}

/// What a run is told.
#[derive(Debug)]
pub(super) enum Admission {
    Place(Place),
    Queued(Waiting),
    /// There is neither a place nor room in the queue.
    Full,
}

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Went {
    Well,
    Badly,
}

impl Places {
    pub(super) fn new(settings: &Settings) -> Self {
        let (limit, gradient) = match settings.limit {
            Limit::Fixed(max) => (max, None),
            Limit::Adaptive(range) => (range.initial, Some(Gradient::new(range))),
        };
        Self {
            limit: AtomicUsize::new(limit as usize),
            taken: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
            room: settings.queue as usize,
            wait: settings.wait,
            gradient,
        }
    }

    /// A place, or one in the queue.
    pub(super) fn ask(self: &Arc<Self>) -> Admission {
        if let Some(taken) = self.take_at_once(&mut Moment::default()) {
            return Admission::Place(self.place(taken));
        }
        if self.room == 0 {
            return Admission::Full;
        }
        let (sender, receiver) = oneshot::channel();
        let Some(number) = self.join(sender) else {
            return Admission::Full;
        };
        let places = Arc::clone(self);
        let waiting = Waiting { places, number, receiver, since: Instant::now() };
        // A place may have become free before this run was in the queue.
        self.call_next();
        Admission::Queued(waiting)
    }

    /// A place `now`, if one is free and nobody waits.
    pub(super) fn take_at_once(&self, now: &mut Moment) -> Option<Taken> {
        (self.waiting() == 0 && self.take()).then(|| self.begins(now))
    }

    /// Gives a place back. `went`: how its run went, if that says something.
    pub(super) fn give_back(self: &Arc<Self>, taken: Taken, went: Option<Went>) {
        if let (Some(gradient), Some(went)) = (&self.gradient, went)
            && let Some(limit) = gradient.ended(taken.begun.get(), went)
        {
            self.limit.store(limit, Ordering::Relaxed);
        }
        self.taken.fetch_sub(1, Ordering::SeqCst);
        if self.waiting() > 0 {
            self.call_next();
        }
    }

    /// The place that was `taken`.
    pub(super) fn place(self: &Arc<Self>, taken: Taken) -> Place {
        Place { places: Arc::clone(self), taken, went: None, waited: None }
    }

    /// Whether nobody has a place or waits for one.
    pub(super) fn is_idle(&self) -> bool {
        self.taken.load(Ordering::SeqCst) == 0 && self.waiting() == 0
    }

    /// How many places there are now.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Takes a place, if one is free.
    fn take(&self) -> bool {
        let mut taken = self.taken.load(Ordering::SeqCst);
        while taken < self.limit() {
            let next = taken.saturating_add(1);
            match self.taken.compare_exchange_weak(taken, next, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return true,
                Err(seen) => taken = seen,
            }
        }
        false
    }

    /// A run begins `now`, for which a place was taken.
    fn begins(&self, now: &mut Moment) -> Taken {
        let gradient = self.gradient.as_ref();
        let begun = gradient.map_or(1, |gradient| gradient.begins(self.taken(), now.read()));
        Taken { begun: NonZeroU64::new(begun).unwrap_or(NonZeroU64::MIN) }
    }

    /// The number in the queue, unless that is full.
    fn join(&self, sender: oneshot::Sender<Place>) -> Option<u64> {
        let mut queue = self.lock();
        if queue.waiting.len() >= self.room {
            return None;
        }
        let number = queue.next;
        queue.next = number.wrapping_add(1);
        queue.waiting.insert(number, sender);
        self.waiting.store(queue.waiting.len(), Ordering::SeqCst);
        Some(number)
    }

    fn leave(&self, number: u64) {
        let mut queue = self.lock();
        queue.waiting.remove(&number);
        self.waiting.store(queue.waiting.len(), Ordering::SeqCst);
    }

    /// Gives free places to those who wait.
    fn call_next(self: &Arc<Self>) {
        while self.waiting() > 0 && self.take() {
            let first = {
                let mut queue = self.lock();
                let first = queue.waiting.pop_first();
                self.waiting.store(queue.waiting.len(), Ordering::SeqCst);
                first
            };
            let place = self.place(self.begins(&mut Moment::default()));
            let Some((_, sender)) = first else { break };
            // One who has left meanwhile gives the place back, and that calls the next.
            drop(sender.send(place));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// How many places there are and are taken.
    pub(super) fn of(&self) -> (usize, usize) {
        (self.places.taken(), self.places.limit())
    }

    /// The run has ended, and went so. That is told once the place is given back.
    pub(super) const fn ended(&mut self, went: Went) {
        self.went = Some(went);
    }

    /// Whether the way its run went tells something.
    pub(super) fn is_timed(&self) -> bool {
        self.places.gradient.is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.give_back(self.taken, self.went);
    }
}

impl Taken {
    /// The place of a run with `pass`, if it got one.
    pub(super) fn of(pass: Pass) -> Option<Self> {
        NonZeroU64::new(pass.0).map(|begun| Self { begun })
    }
}

impl From<Taken> for Pass {
    fn from(taken: Taken) -> Self {
        Self(taken.begun.get())
    }
}

impl Waiting {
    /// A place, unless none becomes free in time.
    pub(super) async fn place(mut self) -> Option<Place> {
        let limit = self.places.wait;
        let place = tokio::select! {
            biased;
            Ok(place) = &mut self.receiver => Some(place),
            () = sleep(limit) => None,
        };
        let waited = self.since.elapsed();
        place.map(|mut place| {
            place.waited = Some(waited);
            place
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.places.leave(self.number);
    }
}
