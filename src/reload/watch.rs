//! Watches the files of a configuration.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Reload;
use super::settle::{Change, Settle};
use crate::config::Read;

/// How many events may wait. Beyond it they are counted as one change.
const WAITING: usize = 1024;

/// How many links may lie on the way to a file: what Linux follows.
const LINKS: usize = 40;

/// Tells when the files of a configuration change.
#[derive(Debug)]
pub struct Watcher {
    /// Kept for what it does while it lives.
    inner: RecommendedWatcher,
    changes: mpsc::Receiver<Event>,
    /// Set where an event found no room.
    lost: Arc<AtomicBool>,
    /// The paths that matter, and the directories that are watched for them.
    paths: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
    /// The files, and what they held when they were last loaded.
    loaded: Vec<Read>,
}

impl Watcher {
    /// Watches the files that were `loaded` from now on.
    ///
    /// # Errors
    /// Where the system gives no watch.
    pub fn new(loaded: Vec<Read>) -> notify::Result<Self> {
        let (sender, changes) = mpsc::channel(WAITING);
        let lost = Arc::new(AtomicBool::new(false));
        let overflow = Arc::clone(&lost);
        let inner = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let sent = event.is_ok_and(|event| sender.try_send(event).is_ok());
            if !sent {
                overflow.store(true, Ordering::Release);
            }
        })?;
        let mut watcher =
            Self { inner, changes, lost, paths: BTreeSet::new(), folders: BTreeSet::new(), loaded };
        watcher.follow()?;
        Ok(watcher)
    }

    /// Asks `target` to load whenever the files have changed, for ever.
    pub async fn run<R: Reload + ?Sized>(mut self, target: &R) {
        let mut settle = Settle::default();
        // What changed between the load and the watch was told to nobody.
        settle.on(Change::Settled, Instant::now());
        loop {
            let due = async {
                match settle.due() {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                event = self.changes.recv() => match event {
                    Some(event) => {
                        if let Some(change) = self.change(&event) {
                            settle.on(change, Instant::now());
                        }
                    }
                    None => return,
                },
                () = due => {
                    settle.taken();
                    if self.load(target).await {
                        settle.on(Change::Settled, Instant::now());
                    }
                }
            }
        }
    }

    /// Loads, where the files hold something else than before, and follows them to where they are now.
    /// Whether that is elsewhere: then something may have changed there before it was watched.
    async fn load<R: Reload + ?Sized>(&mut self, target: &R) -> bool {
        let changed = |read: &Read| std::fs::read_to_string(&read.path).ok() != read.text;
        if self.loaded.iter().any(changed) {
            self.loaded = target.reload().await;
        }
        let before = self.folders.clone();
        if let Err(error) = self.follow() {
            tracing::warn!(%error, "A folder of the configuration is not watched any more.");
        }
        self.folders != before
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
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(_))
            | EventKind::Remove(_) => Some(Change::Settled),
            EventKind::Create(_) if event.paths.iter().any(|path| path.is_symlink()) => {
                Some(Change::Settled)
            }
            EventKind::Create(_) => Some(Change::Created),
            // Where the system does not say when a writer closes, a write is all there is to go by.
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Any) => {
                Some(if cfg!(target_os = "linux") { Change::Writing } else { Change::Settled })
            }
            _ => None,
        }
    }

    /// Watches the folders of the files and of every link on the way to them, and no others.
    fn follow(&mut self) -> notify::Result<()> {
        let ways = self.loaded.iter().flat_map(|read| way_to(&read.path));
        let paths: BTreeSet<PathBuf> = ways.collect();
        let parents = paths.iter().filter_map(|path| path.parent());
        let folders: BTreeSet<PathBuf> = parents.map(Path::to_owned).collect();
        for gone in self.folders.difference(&folders) {
            // A folder that was removed has no watch left to take away.
            self.inner.unwatch(gone).ok();
        }
        let mut result = Ok(());
        let mut watched = BTreeSet::new();
        for folder in folders {
            // Asked for again each time: a folder of the same name may be another one by now.
            match self.inner.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    watched.insert(folder);
                }
                Err(error) => result = Err(error),
            }
        }
        self.folders = watched;
        self.paths = paths;
        result
    }
}

/// `file`, and every path that decides what it is: each link on the way to it, and its target.
fn way_to(file: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut at = absolute(file).unwrap_or_else(|_| file.to_owned());
    found.insert(at.clone());
    for _ in 0..LINKS {
        let Some((link, target)) = first_link(&at) else {
            break;
        };
        let rest = at.strip_prefix(&link).unwrap_or_else(|_| Path::new("")).to_owned();
        found.insert(link);
        at = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
    }
    found.insert(at);
    found
}

/// The first prefix of `path` that is a link, with what it points at.
fn first_link(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut prefix = PathBuf::new();
    for part in path.components() {
        prefix.push(part);
        if let Ok(target) = std::fs::read_link(&prefix) {
            let folder = prefix.parent().unwrap_or_else(|| Path::new("/"));
            let target = plain(&folder.join(target));
            return Some((prefix, target));
        }
    }
    None
}

fn absolute(path: &Path) -> io::Result<PathBuf> {
    std::path::absolute(path).map(|path| plain(&path))
}

/// Without `.` and `..`, the latter only where no link can stand before it.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if !out.is_symlink() => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tokio::sync::mpsc::Sender;

    /// A folder of the test's own, gone with it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("mwl-proxy-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::remove_dir_all(&path).ok();
            fs::create_dir_all(&path).unwrap();
            Self(path.canonicalize().unwrap())
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    /// Tells what the file held at each load.
    struct Told {
        file: PathBuf,
        loads: Sender<String>,
    }

    impl Told {
        fn read(&self) -> Read {
            Read { path: self.file.clone(), text: fs::read_to_string(&self.file).ok() }
        }
    }

    impl Reload for Told {
        async fn reload(&self) -> Vec<Read> {
            let read = self.read();
            let text = read.text.clone().unwrap_or_default();
            self.loads.send(text).await.unwrap();
            vec![read]
        }
    }

    #[test]
    fn the_way_to_a_config_map_leads_over_its_links() {
        let folder = Folder::new("way");
        fs::create_dir(folder.at("..t1")).unwrap();
        fs::write(folder.at("..t1/c.yaml"), "1").unwrap();
        symlink("..t1", folder.at("..data")).unwrap();
        symlink("..data/c.yaml", folder.at("c.yaml")).unwrap();
        let way = way_to(&folder.at("c.yaml"));
        let expected = ["c.yaml", "..data", "..t1/c.yaml"].map(|name| folder.at(name));
        assert_eq!(way, BTreeSet::from(expected));
        let missing = way_to(&folder.at("none.yaml"));
        assert_eq!(missing, BTreeSet::from([folder.at("none.yaml")]));
    }

    #[test]
    fn links_in_a_circle_end() {
        let folder = Folder::new("circle");
        symlink("b", folder.at("a")).unwrap();
        symlink("a", folder.at("b")).unwrap();
        assert!(way_to(&folder.at("a")).contains(&folder.at("b")));
    }

    /// The real watcher: each step awaits the load that it causes.
    #[tokio::test]
    async fn each_change_is_loaded_once() {
        let folder = Folder::new("watch");
        let file = folder.at("c.yaml");
        fs::create_dir(folder.at("..t1")).unwrap();
        fs::write(folder.at("..t1/c.yaml"), "1").unwrap();
        symlink("..t1", folder.at("..data")).unwrap();
        symlink("..data/c.yaml", &file).unwrap();
        let (loads, mut told) = mpsc::channel(16);
        let target = Told { file: file.clone(), loads };
        let watcher = Watcher::new(vec![target.read()]).unwrap();
        let steps = async {
            // What changed before the watch ran is found too.
            fs::write(folder.at("..t1/c.yaml"), "1b").unwrap();
            assert_eq!(told.recv().await.unwrap(), "1b");
            // A ConfigMap's swap, twice: the second finds the watch that followed the first.
            for version in ["2", "3"] {
                let new = folder.at(&format!("..t{version}"));
                fs::create_dir(&new).unwrap();
                fs::write(new.join("c.yaml"), version).unwrap();
                symlink(&new, folder.at("..data_tmp")).unwrap();
                let old = fs::read_link(folder.at("..data")).unwrap();
                fs::rename(folder.at("..data_tmp"), folder.at("..data")).unwrap();
                fs::remove_dir_all(folder.0.join(old)).unwrap();
                assert_eq!(told.recv().await.unwrap(), version);
            }
            // An editor's rename over the link.
            fs::write(folder.at("c.yaml~"), "4").unwrap();
            fs::rename(folder.at("c.yaml~"), &file).unwrap();
            assert_eq!(told.recv().await.unwrap(), "4");
            // Written in place, in pieces; then the same again, which is no change.
            fs::write(&file, "5").unwrap();
            assert_eq!(told.recv().await.unwrap(), "5");
            fs::write(&file, "5").unwrap();
            fs::remove_file(&file).unwrap();
            assert_eq!(told.recv().await.unwrap(), "");
            fs::write(&file, "6").unwrap();
            assert_eq!(told.recv().await.unwrap(), "6");
        };
        tokio::select! {
            () = watcher.run(&target) => panic!("the watcher ended"),
            () = steps => {}
        }
        assert!(told.try_recv().is_err(), "nothing was loaded twice");
    }
}
