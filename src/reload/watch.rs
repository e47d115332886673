//! Hears of changes to the files of a configuration as they happen.
//!
//! Watched are the folders of every path that decides what a file is, and the files themselves: one that
//! is mounted by itself (a container's bind mount) changes without its folder being told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use super::settle::Change;
use super::ways::Way;
use crate::config::Read;

/// How many events may wait. Beyond it they are counted as one change.
const WAITING: usize = 1024;

/// Tells when the files of a configuration change.
#[derive(Debug)]
pub(super) struct Watcher {
    /// Kept for what it does while it lives.
    inner: RecommendedWatcher,
    changes: mpsc::Receiver<Event>,
    /// Set where an event found no room.
    lost: Arc<AtomicBool>,
    /// The paths that matter.
    paths: BTreeSet<PathBuf>,
    /// The files as they are named.
    files: Vec<PathBuf>,
    /// What is watched, and which one it was: a folder of the same name may be another one by now.
    watched: BTreeMap<PathBuf, (u64, u64)>,
}

impl Watcher {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// Where the system gives no watch.
    pub(super) fn new() -> notify::Result<Self> {
        let (sender, changes) = mpsc::channel(WAITING);
        let lost = Arc::new(AtomicBool::new(false));
        let overflow = Arc::clone(&lost);
        let inner = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let sent = event.is_ok_and(|event| sender.try_send(event).is_ok());
            if !sent {
                overflow.store(true, Ordering::Release);
            }
        })?;
        Ok(Self {
            inner,
            changes,
            lost,
            paths: BTreeSet::new(),
            files: Vec::new(),
            watched: BTreeMap::new(),
        })
    }

    /// The next change to a path that matters.
    pub(super) async fn next(&mut self) -> Change {
        loop {
            let Some(event) = self.changes.recv().await else {
                // The watcher's thread is gone, and with it the news.
                return std::future::pending().await;
            };
            if let Some(change) = self.change(&event) {
                return change;
            }
        }
    }

    /// What `event` says of the paths that matter.
    fn change(&self, event: &Event) -> Option<Change> {
        if event.need_rescan() || self.lost.swap(false, Ordering::AcqRel) {
            return Some(Change::Settled);
        }
        let matters = |path: &PathBuf| self.paths.contains(path);
        if !event.paths.iter().any(matters) {
            return None;
        }
        match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Change::Settled),
            EventKind::Modify(ModifyKind::Name(_)) | EventKind::Remove(_) => {
                let there = self.files.iter().all(|file| file.exists());
                Some(if there { Change::Settled } else { Change::Incomplete })
            }
            EventKind::Create(_) if event.paths.iter().any(|path| path.is_symlink()) => {
                Some(Change::Settled)
            }
            EventKind::Create(_) => Some(Change::Incomplete),
            // Where the system does not say when a writer closes, a write is all there is to go by.
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Any) => {
                Some(if cfg!(target_os = "linux") { Change::Writing } else { Change::Settled })
            }
            _ => None,
        }
    }

    /// Watches the way to each of `files`, and nothing else.
    ///
    /// # Errors
    /// Where the system refuses a watch; the others are watched all the same.
    pub(super) fn follow(&mut self, files: &[Read]) -> notify::Result<()> {
        let ways: Vec<Way> = files.iter().map(|read| Way::to(&read.path)).collect();
        self.files = files.iter().map(|read| read.path.clone()).collect();
        self.paths = ways.iter().flat_map(|way| way.paths.iter().cloned()).collect();
        let folders = self.paths.iter().filter_map(|path| path.parent()).map(Path::to_owned);
        let ends = ways.into_iter().map(|way| way.end);
        let wanted: BTreeMap<PathBuf, (u64, u64)> = folders
            .chain(ends)
            .filter_map(|path| identity(&path).map(|which| (path, which)))
            .collect();
        let old = std::mem::take(&mut self.watched);
        for (gone, _) in old.iter().filter(|(path, which)| wanted.get(*path) != Some(*which)) {
            // One that was removed has no watch left to take away.
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

/// Which file or folder a path leads to: the device and the number on it.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let which = |metadata: Metadata| (metadata.dev(), metadata.ino());
    path.metadata().map(which).ok()
}
