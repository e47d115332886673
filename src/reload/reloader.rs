//! Every reload happens here, one after the other, whoever asks. A change that one reload has loaded is
//! no change for the next.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::debounce::{Change, Debounce};
use super::stamp::Stamp;
use super::watch::Watcher;
use super::{Cause, Reload};
use crate::config::FileContents;
use crate::source::MAX_BYTES;
use crate::system::file;

/// How often the files are looked at when no events come.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a load waits for the news that it read half a file: the time the system needs to deliver an event.
const CONFIRM: Duration = Duration::from_millis(20);

/// How long after a load that was refused for a reason that may pass the next one is made: at first, and at most. Each
/// time it is twice as long.
const FIRST_AGAIN: Duration = Duration::from_secs(1);
const LAST_AGAIN: Duration = Duration::from_mins(1);

/// How long a caller of a reload waits for a writer to finish.
const WRITER_TIMEOUT: Duration = Duration::from_secs(5);

/// How many requests for a reload may be queued.
const QUEUE: usize = 16;

/// Asks for a reload, whose outcome is an `A`.
#[derive(Debug)]
pub struct ReloadHandle<A>(mpsc::Sender<ReloadRequest<A>>);

/// Loads the configuration whenever somebody asks and whenever its files have changed.
#[derive(Debug)]
pub struct Reloader<A> {
    asked: mpsc::Receiver<ReloadRequest<A>>,
    /// The requests that have not been answered.
    waiting: Vec<ReloadRequest<A>>,
    /// `None` when the system provides no watch.
    watcher: Option<Watcher>,
    debounce: Debounce,
    /// The files, and their contents when they were last loaded.
    files: Vec<FileContents>,
    /// The files' metadata at the last comparison with their contents, and the metadata since then if it
    /// differs.
    stamp: Stamp,
    seen: Option<Stamp>,
    look: Instant,
    /// When to try again, and how long that is after the last try.
    again: Option<(Instant, Duration)>,
}

#[derive(Debug)]
struct ReloadRequest<A> {
    cause: Cause,
    at: Instant,
    /// `None` when nobody waits for the outcome.
    reply: Option<oneshot::Sender<A>>,
}

/// What to do next.
enum Next<A> {
    Note(Change),
    Take(ReloadRequest<A>),
    Refuse,
    Load,
    Look,
    Again,
}

impl<A> ReloadHandle<A> {
    /// Loads, and returns the outcome; `None` when the process is stopping and loads nothing any more.
    pub async fn ask(&self, cause: Cause) -> Option<A> {
        let (reply, answer) = oneshot::channel();
        let ask = ReloadRequest { cause, at: Instant::now(), reply: Some(reply) };
        self.0.send(ask).await.ok()?;
        answer.await.ok()
    }

    /// Asks for a reload without waiting for it.
    pub fn tell(&self, cause: Cause) {
        // A full queue needs no further request: one load answers all that are waiting.
        let ask = ReloadRequest { cause, at: Instant::now(), reply: None };
        self.0.try_send(ask).ok();
    }
}

/// A reloader of a configuration that was read from `files`, and the handle to ask it. Must be called
/// within a runtime.
pub fn reloader<A: Clone>(files: Vec<FileContents>) -> (ReloadHandle<A>, Reloader<A>) {
    let (sender, asked) = mpsc::channel(QUEUE);
    let mut debounce = Debounce::default();
    // No event told of changes between the load and the start of the watch.
    debounce.on(Change::Complete, Instant::now());
    let mut reloader = Reloader {
        asked,
        waiting: Vec::new(),
        watcher: None,
        debounce,
        stamp: Stamp::of(&files),
        files,
        seen: None,
        look: Instant::now() + POLL_INTERVAL,
        again: None,
    };
    if !reloader.files.is_empty() {
        reloader.watch();
    }
    (ReloadHandle(sender), reloader)
}

impl<A: Clone> Reloader<A> {
    /// Loads into `target` whenever a load is due, forever.
    pub async fn run<R: Reload<Applied = A>>(mut self, target: &R) {
        loop {
            match self.next().await {
                Next::Note(change) => self.debounce.on(change, Instant::now()),
                Next::Take(ask) => self.waiting.push(ask),
                Next::Refuse => self.refuse(target),
                Next::Load => self.load(target).await,
                Next::Look => self.look(),
                Next::Again => self.try_again(),
            }
        }
    }

    async fn next(&mut self) -> Next<A> {
        let (mut due, mut late) = (self.debounce.due(), None);
        if let Some(ask) = self.waiting.first() {
            // A request does not cause a load in the middle of a change.
            due = due.or_else(|| (!self.debounce.is_writing()).then_some(ask.at));
            late = ask.at.checked_add(WRITER_TIMEOUT);
        }
        let again = self.again.map(|(at, _)| at);
        let Self { asked, watcher, look, .. } = self;
        let change = async { Some(watcher.as_mut()?.next().await) };
        // What gives `None` never comes.
        tokio::select! {
            biased;
            Some(change) = change => Next::Note(change),
            Some(ask) = asked.recv() => Next::Take(ask),
            Some(()) = until(late) => Next::Refuse,
            Some(()) = until(due) => Next::Load,
            Some(()) = until(again) => Next::Again,
            () = sleep_until(*look) => Next::Look,
        }
    }

    /// Loads if somebody asked or the files' contents have changed.
    async fn load<R: Reload<Applied = A>>(&mut self, target: &R) {
        self.debounce.clear();
        let stamp = Stamp::of(&self.files);
        if self.files.iter().all(holds_the_same) && self.is_served(target) {
            self.stamp = stamp;
            self.follow();
            return;
        }
        let (files, loaded) = target.load();
        let before = std::mem::replace(&mut self.files, files);
        self.follow();
        // Half a file may be well-formed. If a writer is at work, its events arrive within a moment.
        if let Some(change) = self.changed_since_read().await {
            self.files = before;
            self.debounce.on(change, Instant::now());
            return;
        }
        let asks = std::mem::take(&mut self.waiting);
        let cause = asks.first().map_or(Cause::File, |ask| ask.cause);
        let applied = target.apply(cause, loaded).await;
        answer(asks, &applied);
        self.plan_again(cause, target.may_pass());
        // Files that were not watched before may have changed meanwhile.
        self.debounce.on(Change::Complete, Instant::now());
    }

    /// Plans the next try after a load with this `cause`, if what refused it `may_pass`.
    fn plan_again(&mut self, cause: Cause, may_pass: bool) {
        let last = self.again.take().filter(|_| cause == Cause::Again);
        let wait = last.map_or(FIRST_AGAIN, |(_, wait)| wait.saturating_mul(2).min(LAST_AGAIN));
        self.again = may_pass.then(|| (Instant::now() + wait, wait));
    }

    /// Asks for a load, which ends in another plan.
    fn try_again(&mut self) {
        let now = Instant::now();
        if let Some((at, wait)) = &mut self.again {
            // Not at once, in case the load is put off because of a writer.
            *at = now + *wait;
        }
        self.waiting.push(ReloadRequest { cause: Cause::Again, at: now, reply: None });
    }

    /// Whether the files are unchanged and served, so that there is nothing to load. Answers those who ask.
    fn is_served<R: Reload<Applied = A>>(&mut self, target: &R) -> bool {
        let Some(first) = self.waiting.first() else {
            return true;
        };
        let unchanged = target.unchanged(first.cause);
        if let Some(unchanged) = &unchanged {
            answer(std::mem::take(&mut self.waiting), unchanged);
        }
        unchanged.is_some()
    }

    /// What has happened to the files since they were read.
    async fn changed_since_read(&mut self) -> Option<Change> {
        if let Some(watcher) = &mut self.watcher {
            tokio::select! {
                biased;
                change = watcher.next() => return Some(change),
                () = sleep(CONFIRM) => {}
            }
        }
        (!self.files.iter().all(holds_the_same)).then_some(Change::Complete)
    }

    /// Tells those who ask that the files are not complete yet.
    fn refuse<R: Reload<Applied = A>>(&mut self, target: &R) {
        let asks = std::mem::take(&mut self.waiting);
        if let Some(first) = asks.first() {
            let refused = target.unfinished(first.cause, WRITER_TIMEOUT);
            answer(asks, &refused);
        }
    }

    /// Looks for changes where no events come. The files must look the same twice: then the writer is
    /// done, or has paused for long.
    fn look(&mut self) {
        self.look = Instant::now() + POLL_INTERVAL;
        if self.debounce.is_writing() || self.debounce.due().is_some() {
            return;
        }
        let stamp = Stamp::of(&self.files);
        if stamp == self.stamp {
            self.seen = None;
        } else if self.seen.replace(stamp.clone()) == Some(stamp) {
            self.debounce.on(Change::Complete, Instant::now());
        }
    }

    fn watch(&mut self) {
        match Watcher::new() {
            Ok(watcher) => {
                self.watcher = Some(watcher);
                self.follow();
            }
            Err(error) => {
                tracing::warn!(%error, every = ?POLL_INTERVAL, "The system gives no watch: the configuration is looked at instead.");
            }
        }
    }

    fn follow(&mut self) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        if let Err(error) = watcher.follow(&self.files) {
            tracing::warn!(%error, every = ?POLL_INTERVAL, "A part of the configuration cannot be watched: it is looked at instead.");
        }
    }
}

fn answer<A: Clone>(asks: Vec<ReloadRequest<A>>, applied: &A) {
    for reply in asks.into_iter().filter_map(|ask| ask.reply) {
        // The caller may have left.
        reply.send(applied.clone()).ok();
    }
}

fn holds_the_same(read: &FileContents) -> bool {
    file::read_text(&read.path, MAX_BYTES).ok().as_deref() == read.text.as_deref()
}

async fn until(at: Option<Instant>) -> Option<()> {
    sleep_until(at?).await;
    Some(())
}
