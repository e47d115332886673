//! The one place where a configuration is loaded anew, whoever asks: loads come one after the other, and
//! what one has taken, the next cause finds unchanged.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::settle::{Change, Settle};
use super::stamp::Stamp;
use super::watch::Watcher;
use super::{Cause, Reload};
use crate::config::Read;

/// How often the files are looked at where nobody tells of a change.
const LOOK: Duration = Duration::from_secs(1);

/// How long a load waits for news that it has read half of a file: what the system takes to tell them.
const CONFIRM: Duration = Duration::from_millis(20);

/// How long who asks waits for a writer to finish.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many may ask at once before they wait to be heard.
const ASKING: usize = 16;

/// Asks for the configuration to be loaded anew; what comes of it is an `A`.
#[derive(Debug)]
pub struct Asks<A>(mpsc::Sender<Ask<A>>);

/// Loads the configuration anew whenever somebody asks and whenever its files have changed.
#[derive(Debug)]
pub struct Reloader<A> {
    asked: mpsc::Receiver<Ask<A>>,
    /// Those that have not been answered.
    waiting: Vec<Ask<A>>,
    /// `None` where the system gives none.
    watcher: Option<Watcher>,
    settle: Settle,
    /// The files, and what they held when they were last loaded.
    files: Vec<Read>,
    /// How they looked when that was last compared, and how they looked since, where otherwise.
    stamp: Stamp,
    seen: Option<Stamp>,
    look: Instant,
}

#[derive(Debug)]
struct Ask<A> {
    cause: Cause,
    at: Instant,
    /// `None` where nobody waits for it.
    reply: Option<oneshot::Sender<A>>,
}

/// What there is to do next.
enum Next<A> {
    Note(Change),
    Take(Ask<A>),
    Refuse,
    Load,
    Look,
}

impl<A> Asks<A> {
    /// Loads, and gives what came of it; `None` where nothing is loaded any more, for the process stops.
    pub async fn ask(&self, cause: Cause) -> Option<A> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask { cause, at: Instant::now(), reply: Some(reply) };
        self.0.send(ask).await.ok()?;
        answer.await.ok()
    }

    /// Has it loaded, by and by.
    pub fn tell(&self, cause: Cause) {
        // Where there is no room, as many others have asked, and one load answers them all.
        let ask = Ask { cause, at: Instant::now(), reply: None };
        self.0.try_send(ask).ok();
    }
}

/// A reloader of a configuration that was read from `files`, and how to ask it. Must be called within a
/// runtime.
pub fn reloader<A: Clone>(files: Vec<Read>) -> (Asks<A>, Reloader<A>) {
    let (sender, asked) = mpsc::channel(ASKING);
    let mut settle = Settle::default();
    // What changed between the load and the watch was told to nobody.
    settle.on(Change::Settled, Instant::now());
    let mut reloader = Reloader {
        asked,
        waiting: Vec::new(),
        watcher: None,
        settle,
        stamp: Stamp::of(&files),
        files,
        seen: None,
        look: Instant::now() + LOOK,
    };
    if !reloader.files.is_empty() {
        reloader.watch();
    }
    (Asks(sender), reloader)
}

impl<A: Clone> Reloader<A> {
    /// Has `target` load whenever that is due, for ever.
    pub async fn run<R: Reload<Applied = A>>(mut self, target: &R) {
        loop {
            match self.next().await {
                Next::Note(change) => self.settle.on(change, Instant::now()),
                Next::Take(ask) => self.waiting.push(ask),
                Next::Refuse => self.refuse(target),
                Next::Load => self.load(target).await,
                Next::Look => self.look(),
            }
        }
    }

    async fn next(&mut self) -> Next<A> {
        let (mut due, mut late) = (self.settle.due(), None);
        if let Some(ask) = self.waiting.first() {
            // Nobody is loaded for in the middle of a change.
            due = due.or_else(|| (!self.settle.is_writing()).then_some(ask.at));
            late = ask.at.checked_add(PATIENCE);
        }
        let Self { asked, watcher, look, .. } = self;
        let change = async {
            match watcher {
                Some(watcher) => watcher.next().await,
                None => std::future::pending().await,
            }
        };
        let asked = async {
            match asked.recv().await {
                Some(ask) => ask,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            change = change => Next::Note(change),
            ask = asked => Next::Take(ask),
            () = until(late) => Next::Refuse,
            () = until(due) => Next::Load,
            () = sleep_until(*look) => Next::Look,
        }
    }

    /// Loads, where somebody asked or the files hold something else than before.
    async fn load<R: Reload<Applied = A>>(&mut self, target: &R) {
        self.settle.taken();
        let stamp = Stamp::of(&self.files);
        if self.files.iter().all(holds_the_same) && self.is_served(target) {
            self.stamp = stamp;
            self.follow();
            return;
        }
        let (files, loaded) = target.load();
        let before = std::mem::replace(&mut self.files, files);
        self.follow();
        // Half a file may be a well-formed one: whoever is at work on it shows within a moment.
        if let Some(change) = self.disturbed().await {
            self.files = before;
            self.settle.on(change, Instant::now());
            return;
        }
        let asks = std::mem::take(&mut self.waiting);
        let cause = asks.first().map_or(Cause::File, |ask| ask.cause);
        let applied = target.apply(cause, loaded).await;
        answer(asks, &applied);
        // What has changed meanwhile where it was not watched before.
        self.settle.on(Change::Settled, Instant::now());
    }

    /// Whether there is nothing to load, the files being the same; then those who ask are told.
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

    /// What happened to the files since they were read.
    async fn disturbed(&mut self) -> Option<Change> {
        if let Some(watcher) = &mut self.watcher {
            tokio::select! {
                biased;
                change = watcher.next() => return Some(change),
                () = sleep(CONFIRM) => {}
            }
        }
        (!self.files.iter().all(holds_the_same)).then_some(Change::Settled)
    }

    /// Tells who asked that the files are not whole yet.
    fn refuse<R: Reload<Applied = A>>(&mut self, target: &R) {
        let asks = std::mem::take(&mut self.waiting);
        if let Some(first) = asks.first() {
            let refused = target.unfinished(first.cause, PATIENCE);
            answer(asks, &refused);
        }
    }

    /// Looks whether the files have changed without anybody telling. They must look the same twice: who
    /// writes them is done, or has paused for long.
    fn look(&mut self) {
        self.look = Instant::now() + LOOK;
        if self.settle.is_writing() || self.settle.due().is_some() {
            return;
        }
        let stamp = Stamp::of(&self.files);
        if stamp == self.stamp {
            self.seen = None;
        } else if self.seen.replace(stamp.clone()) == Some(stamp) {
            self.settle.on(Change::Settled, Instant::now());
        }
    }

    fn watch(&mut self) {
        match Watcher::new() {
            Ok(watcher) => {
                self.watcher = Some(watcher);
                self.follow();
            }
            Err(error) => {
                tracing::warn!(%error, every = ?LOOK, "The system gives no watch: the configuration is looked at instead.");
            }
        }
    }

    fn follow(&mut self) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        if let Err(error) = watcher.follow(&self.files) {
            tracing::warn!(%error, every = ?LOOK, "A part of the configuration cannot be watched: it is looked at instead.");
        }
    }
}

fn answer<A: Clone>(asks: Vec<Ask<A>>, applied: &A) {
    for reply in asks.into_iter().filter_map(|ask| ask.reply) {
        // Who asked may have gone.
        reply.send(applied.clone()).ok();
    }
}

fn holds_the_same(read: &Read) -> bool {
    std::fs::read_to_string(&read.path).ok() == read.text
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
