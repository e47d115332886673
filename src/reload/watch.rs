//! Gets an event for each change to the files of a configuration.
//!
//! It watches the folder of every path that decides what a file is, and the files themselves: a file that
//! is a mount of its own (a container's bind mount) changes without an event for its folder. Of other files in these
//! folders, which may be busy logs, nothing is passed on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::debounce::Change;
use super::links::LinkChain;
use crate::config::FileContents;

/// How many events may wait. Further ones are counted as one change.
const QUEUE: usize = 1024;

/// How long the watching thread lets events gather when one does not matter. The system joins those of a log that is written
/// to all the time: four thousand lines a second wake the thread some hundred times. A change that matters waits as long.
const GATHER: Duration = Duration::from_millis(50);

/// For how long the thread then takes events as they come: enough for all that have gathered.
const AWAKE: Duration = Duration::from_millis(1);

/// Tells when the files of a configuration change.
#[derive(Debug)]
pub(super) struct Watcher {
    /// Never read; the watch ends when it is dropped.
    inner: RecommendedWatcher,
    changes: mpsc::Receiver<Event>,
    /// Set when there was no room for an event.
    lost: Arc<AtomicBool>,
    /// The paths that matter. Only events of these are in the queue.
    paths: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// The files as the configuration names them.
    files: Vec<PathBuf>,
    /// What is watched, with its identity: a folder of the same name may be another one by now.
    watched: BTreeMap<PathBuf, (u64, u64)>,
}

impl Watcher {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// When the system provides no watch.
    pub(super) fn new() -> notify::Result<Self> {
        let (sender, changes) = mpsc::channel(QUEUE);
        let lost = Arc::new(AtomicBool::new(false));
        let paths = Arc::<Mutex<BTreeSet<PathBuf>>>::default();
        let (overflow, wanted) = (Arc::clone(&lost), Arc::clone(&paths));
        let mut woke = None;
        let inner = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.as_ref().is_ok_and(|event| !matters(event, &lock(&wanted))) {
                let_gather(&mut woke);
                return;
            }
            let sent = event.is_ok_and(|event| sender.try_send(event).is_ok());
            if !sent {
                overflow.store(true, Ordering::Release);
            }
        })?;
        Ok(Self { inner, changes, lost, paths, files: Vec::new(), watched: BTreeMap::new() })
    }

    /// Waits for the next change to a path that matters.
    pub(super) async fn next(&mut self) -> Change {
        loop {
            let Some(event) = self.changes.recv().await else {
                // The watcher's thread is gone: no events will come.
                return std::future::pending().await;
            };
            if let Some(change) = self.change(&event) {
                return change;
            }
        }
    }

    /// What `event` means for the paths that matter.
    fn change(&self, event: &Event) -> Option<Change> {
        if event.need_rescan() || self.lost.swap(false, Ordering::AcqRel) {
            return Some(Change::Complete);
        }
        // It may have waited since before these were the paths.
        if !matters(event, &lock(&self.paths)) {
            return None;
        }
        match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Change::Complete),
            EventKind::Modify(ModifyKind::Name(_)) | EventKind::Remove(_) => {
                let there = self.files.iter().all(|file| file.exists());
                Some(if there { Change::Complete } else { Change::Incomplete })
            }
            EventKind::Create(_) if event.paths.iter().any(|path| path.is_symlink()) => {
                Some(Change::Complete)
            }
            EventKind::Create(_) => Some(Change::Incomplete),
            // Some systems do not report when a writer closes. Then a write must do.
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Any) => {
                Some(if cfg!(target_os = "linux") { Change::Writing } else { Change::Complete })
            }
            _ => None,
        }
    }

    /// Watches the way to each of `files`, and nothing else.
    ///
    /// # Errors
    /// When the system refuses a watch. The other files are watched all the same.
    pub(super) fn follow(&mut self, files: &[FileContents]) -> notify::Result<()> {
        let chains: Vec<LinkChain> = files.iter().map(|read| LinkChain::to(&read.path)).collect();
        self.files = files.iter().map(|read| read.path.clone()).collect();
        let paths: BTreeSet<PathBuf> =
            chains.iter().flat_map(|way| way.paths.iter().cloned()).collect();
        lock(&self.paths).clone_from(&paths);
        let folders = paths.iter().filter_map(|path| path.parent()).map(Path::to_owned);
        let ends = chains.into_iter().map(|way| way.end);
        let wanted: BTreeMap<PathBuf, (u64, u64)> = folders
            .chain(ends)
            .filter_map(|path| identity(&path).map(|which| (path, which)))
            .collect();
        let old = std::mem::take(&mut self.watched);
        for (gone, _) in old.iter().filter(|(path, which)| wanted.get(*path) != Some(*which)) {
            // A removed path has no watch left to remove.
            self.inner.unwatch(gone).ok();
        }
        let mut result = Ok(());
        for (path, which) in wanted {
            if old.get(&path) != Some(&which)
                && let Err(error) = self.inner.watch(&path, RecursiveMode::NonRecursive)
            {
                result = Err(error);
                continue;
            }
            self.watched.insert(path, which);
        }
        result
    }
}

/// Whether `event` is of one of these `paths`, or says that events were lost.
fn matters(event: &Event, paths: &BTreeSet<PathBuf>) -> bool {
    event.need_rescan() || event.paths.iter().any(|path| paths.contains(path))
}

/// Lets further events gather, unless the thread `woke` from that just now.
#[expect(clippy::disallowed_methods, reason = "a thread that only watches")]
fn let_gather(woke: &mut Option<Instant>) {
    if woke.is_none_or(|woke| woke.elapsed() >= AWAKE) {
        std::thread::sleep(GATHER);
        *woke = Some(Instant::now());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The identity of what is at a path: device and inode number.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let which = |metadata: Metadata| (metadata.dev(), metadata.ino());
    path.metadata().map(which).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;

    use super::*;
    use crate::reload::testing::Folder;

    /// Two logs in the folder, so that the system does not join their events, and nobody who takes them.
    #[tokio::test]
    async fn a_busy_neighbour_is_not_heard() {
        let folder = Folder::new("neighbour");
        let file = folder.at("c.yaml");
        fs::write(&file, "1").unwrap();
        let mut watcher = Watcher::new().unwrap();
        watcher.follow(&[FileContents { path: file.clone(), text: None }]).unwrap();
        let mut logs = ["a.log", "b.log"].map(|name| File::create(folder.at(name)).unwrap());
        for _ in 0..2 * QUEUE {
            for log in &mut logs {
                log.write_all(b"a line\n").unwrap();
            }
        }
        drop(logs);
        fs::rename(folder.at("b.log"), folder.at("b.log.1")).unwrap();
        fs::write(&file, "2").unwrap();
        assert_eq!(watcher.next().await, Change::Writing);
        while watcher.next().await != Change::Complete {}
        assert!(!watcher.lost.load(Ordering::Acquire));
        // The same again, from the watch on the file itself.
        while let Ok(event) = watcher.changes.try_recv() {
            assert_eq!(event.paths, std::slice::from_ref(&file));
        }
    }

    #[test]
    fn events_that_do_not_matter_gather() {
        let began = Instant::now();
        let mut woke = None;
        let_gather(&mut woke);
        let first = woke.unwrap();
        assert!(first - began >= GATHER);
        // What has gathered is taken at once.
        let just_now = Some(first + Duration::from_hours(1));
        woke = just_now;
        let_gather(&mut woke);
        assert_eq!(woke, just_now);
    }
}
