//! The one place where a configuration is loaded anew, whoever asks: loads come one after the other, and
//! what one has taken, the next cause finds unchanged.

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
    std::fs::read_to_string(&read.path).ok().as_deref() == read.text.as_deref()
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reload::testing::Folder;
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use tokio::sync::mpsc::{Receiver, Sender};

    /// Tells why each load was made and what the file held.
    struct Told {
        file: PathBuf,
        /// Whether what was loaded is served.
        served: bool,
        loads: Sender<(Cause, String)>,
    }

    impl Reload for Told {
        type Loaded = String;
        type Applied = Option<String>;

        fn load(&self) -> (Vec<Read>, String) {
            let text = fs::read_to_string(&self.file).ok();
            let read = Read { path: self.file.clone(), text: text.as_deref().map(Into::into) };
            (vec![read], text.unwrap_or_default())
        }

        fn unchanged(&self, _: Cause) -> Option<Option<String>> {
            self.served.then(|| Some("the same".into()))
        }

        async fn apply(&self, cause: Cause, loaded: String) -> Option<String> {
            self.loads.send((cause, loaded.clone())).await.unwrap();
            Some(loaded)
        }

        fn unfinished(&self, _: Cause, _: Duration) -> Option<String> {
            None
        }
    }

    /// The loads that a reloader of `file` makes while `steps` run; none but those that they await.
    async fn watched<F: Future<Output = ()>>(
        file: PathBuf,
        steps: impl FnOnce(Asks<Option<String>>, Receiver<(Cause, String)>) -> F,
    ) {
        let (loads, told) = mpsc::channel(16);
        let target = Told { file, served: true, loads };
        let (files, _) = target.load();
        let (asks, reloader) = reloader(files);
        tokio::select! {
            () = reloader.run(&target) => panic!("the reloader ended"),
            () = steps(asks, told) => {}
        }
    }

    /// The next load, which a changed file must have caused.
    async fn next(told: &mut Receiver<(Cause, String)>) -> String {
        let (cause, text) = told.recv().await.unwrap();
        assert_eq!(cause, Cause::File);
        text
    }

    /// The real watcher: each step awaits the load that it causes, so a load too many is the wrong one.
    #[tokio::test]
    async fn each_change_is_loaded_once() {
        let folder = Folder::new("watch");
        let file = folder.at("c.yaml");
        fs::create_dir(folder.at("..t1")).unwrap();
        fs::write(folder.at("..t1/c.yaml"), "1").unwrap();
        symlink("..t1", folder.at("..data")).unwrap();
        symlink("..data/c.yaml", &file).unwrap();
        watched(file.clone(), |asks, mut told| async move {
            // What changed before the watch ran is found too.
            fs::write(folder.at("..t1/c.yaml"), "1b").unwrap();
            assert_eq!(next(&mut told).await, "1b");
            // A ConfigMap's swap, twice: the second finds the watch that followed the first.
            for version in ["2", "3"] {
                let new = folder.at(&format!("..t{version}"));
                fs::create_dir(&new).unwrap();
                fs::write(new.join("c.yaml"), version).unwrap();
                symlink(&new, folder.at("..data_tmp")).unwrap();
                let old = fs::read_link(folder.at("..data")).unwrap();
                fs::rename(folder.at("..data_tmp"), folder.at("..data")).unwrap();
                fs::remove_dir_all(folder.0.join(old)).unwrap();
                assert_eq!(next(&mut told).await, version);
            }
            // An editor's rename over the link.
            fs::write(folder.at("c.yaml~"), "4").unwrap();
            fs::rename(folder.at("c.yaml~"), &file).unwrap();
            assert_eq!(next(&mut told).await, "4");
            // Written in place; then the same again, which is no change; then away, and there again.
            fs::write(&file, "5").unwrap();
            assert_eq!(next(&mut told).await, "5");
            fs::write(&file, "5").unwrap();
            fs::remove_file(&file).unwrap();
            assert_eq!(next(&mut told).await, "");
            fs::write(&file, "6").unwrap();
            assert_eq!(next(&mut told).await, "6");
            // Loaded because somebody asked, it is not loaded because it changed.
            fs::write(&file, "7").unwrap();
            assert_eq!(asks.ask(Cause::Admin).await, Some(Some("7".into())));
            assert_eq!(told.recv().await.unwrap(), (Cause::Admin, "7".into()));
            fs::write(&file, "8").unwrap();
            assert_eq!(next(&mut told).await, "8");
            // Who asks for what is served is told so.
            assert_eq!(asks.ask(Cause::Admin).await, Some(Some("the same".into())));
            fs::write(&file, "9").unwrap();
            assert_eq!(next(&mut told).await, "9");
        })
        .await;
    }

    /// Mounted by itself: written through another name, which its folder is not told of.
    #[tokio::test]
    async fn a_file_mounted_by_itself_is_watched_itself() {
        let (folder, elsewhere) = (Folder::new("mounted"), Folder::new("elsewhere"));
        let (file, source) = (folder.at("c.yaml"), elsewhere.at("c.yaml"));
        fs::write(&source, "1").unwrap();
        fs::hard_link(&source, &file).unwrap();
        watched(file, |_, mut told| async move {
            let mut writer = File::create(&source).unwrap();
            writer.write_all(b"2").unwrap();
            writer.write_all(b"3").unwrap();
            drop(writer);
            assert_eq!(next(&mut told).await, "23");
        })
        .await;
    }

    /// Who asks in the middle of a write gets what was written, and never a part of it.
    #[tokio::test]
    async fn who_asks_waits_for_a_writer() {
        let folder = Folder::new("asked");
        let file = folder.at("c.yaml");
        fs::write(&file, "1").unwrap();
        watched(file.clone(), |asks, mut told| async move {
            let mut writer = File::create(&file).unwrap();
            writer.write_all(b"2").unwrap();
            let finish = async {
                // Longer than a load takes to find out that it must wait.
                sleep(CONFIRM * 5).await;
                writer.write_all(b"3").unwrap();
                drop(writer);
            };
            let (answer, ()) = tokio::join!(asks.ask(Cause::Signal), finish);
            assert_eq!(answer, Some(Some("23".into())));
            assert_eq!(told.recv().await.unwrap(), (Cause::Signal, "23".into()));
            assert!(told.try_recv().is_err());
        })
        .await;
    }

    /// Without a watch, in virtual time: a change is found when the file has looked the same twice.
    #[tokio::test(start_paused = true)]
    async fn where_nobody_tells_of_changes_they_are_looked_for() {
        let folder = Folder::new("looked");
        let file = folder.at("c.yaml");
        fs::write(&file, "1").unwrap();
        let (loads, mut told) = mpsc::channel(16);
        let target = Told { file: file.clone(), served: true, loads };
        let (_asks, mut reloader) = reloader(target.load().0);
        reloader.watcher = None;
        let begun = Instant::now();
        let steps = async {
            sleep(LOOK / 2).await;
            fs::write(&file, "2").unwrap();
            assert_eq!(next(&mut told).await, "2");
            let took = begun.elapsed().as_secs_f64();
            assert!((2.0..2.3).contains(&took), "{took}");
            fs::write(&file, "3").unwrap();
            assert_eq!(next(&mut told).await, "3");
        };
        tokio::select! {
            () = reloader.run(&target) => panic!("the reloader ended"),
            () = steps => {}
        }
    }

    /// What could not be served is tried again when somebody asks, and only then.
    #[tokio::test(start_paused = true)]
    async fn what_is_not_served_is_loaded_again_for_who_asks() {
        let folder = Folder::new("again");
        let file = folder.at("c.yaml");
        fs::write(&file, "1").unwrap();
        let (loads, mut told) = mpsc::channel(16);
        let target = Told { file, served: false, loads };
        let (asks, mut reloader) = reloader(target.load().0);
        reloader.watcher = None;
        let steps = async {
            sleep(LOOK * 5).await;
            assert!(told.try_recv().is_err());
            assert_eq!(asks.ask(Cause::Signal).await, Some(Some("1".into())));
            assert_eq!(told.recv().await.unwrap(), (Cause::Signal, "1".into()));
        };
        tokio::select! {
            () = reloader.run(&target) => panic!("the reloader ended"),
            () = steps => {}
        }
    }

    /// A writer that never closes: who asks is told, and nothing is loaded.
    #[tokio::test(start_paused = true)]
    async fn who_asks_does_not_wait_for_ever() {
        let folder = Folder::new("unfinished");
        let file = folder.at("c.yaml");
        fs::write(&file, "1").unwrap();
        let (loads, mut told) = mpsc::channel(16);
        let target = Told { file, served: true, loads };
        let (asks, mut reloader) = reloader(target.load().0);
        reloader.watcher = None;
        reloader.settle.on(Change::Writing, Instant::now());
        let begun = Instant::now();
        let steps = async {
            assert_eq!(asks.ask(Cause::Admin).await, Some(None));
            assert_eq!(begun.elapsed(), PATIENCE);
        };
        tokio::select! {
            () = reloader.run(&target) => panic!("the reloader ended"),
            () = steps => {}
        }
        assert!(told.try_recv().is_err());
        assert_eq!(asks.ask(Cause::Admin).await, None, "the reloader is gone");
    }
}
