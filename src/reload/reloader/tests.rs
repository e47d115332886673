use super::*;
use crate::reload::testing::Folder;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use tokio::sync::mpsc::{Receiver, Sender};

/// Reports each load: its cause, and what the file held.
struct FakeApp {
    file: PathBuf,
    /// Whether the configuration that was loaded is served.
    served: bool,
    /// Whether what kept it from being served may pass.
    may_pass: bool,
    loads: Sender<(Cause, String)>,
}

impl Reload for FakeApp {
    type Loaded = String;
    type Applied = Option<String>;

    fn load(&self) -> (Vec<FileContents>, String) {
        let text = fs::read_to_string(&self.file).ok();
        let read = FileContents { path: self.file.clone(), text: text.as_deref().map(Into::into) };
        (vec![read], text.unwrap_or_default())
    }

    fn unchanged(&self, _: Cause) -> Option<Option<String>> {
        self.served.then(|| Some("the same".into()))
    }

    async fn apply(&self, cause: Cause, loaded: String) -> Option<String> {
        self.loads.send((cause, loaded.clone())).await.unwrap();
        Some(loaded)
    }

    fn may_pass(&self) -> bool {
        self.may_pass
    }

    fn unfinished(&self, _: Cause, _: Duration) -> Option<String> {
        None
    }
}

/// The loads that a reloader of `file` makes while `steps` run. `steps` must await every one of them.
async fn watched<F: Future<Output = ()>>(
    file: PathBuf,
    steps: impl FnOnce(ReloadHandle<Option<String>>, Receiver<(Cause, String)>) -> F,
) {
    reloads(file, true, |_| {}, steps).await;
}

/// The same, for a file that holds "1" and that no watch tells of. `served` says whether it is served already.
async fn looked_at<F: Future<Output = ()>>(
    file: PathBuf,
    served: bool,
    steps: impl FnOnce(ReloadHandle<Option<String>>, Receiver<(Cause, String)>) -> F,
) {
    fs::write(&file, "1").unwrap();
    reloads(file, served, |reloader| reloader.watcher = None, steps).await;
}

async fn reloads<F: Future<Output = ()>>(
    file: PathBuf,
    served: bool,
    change: impl FnOnce(&mut Reloader<Option<String>>),
    steps: impl FnOnce(ReloadHandle<Option<String>>, Receiver<(Cause, String)>) -> F,
) {
    let (loads, told) = mpsc::channel(16);
    let target = FakeApp { file, served, may_pass: !served, loads };
    let (asks, mut reloader) = reloader(target.load().0);
    change(&mut reloader);
    tokio::select! {
        () = reloader.run(&target) => panic!("the reloader ended"),
        () = steps(asks, told) => {}
    }
}

/// The next load. A change of the file must have caused it.
async fn next(told: &mut Receiver<(Cause, String)>) -> String {
    let (cause, text) = told.recv().await.unwrap();
    assert_eq!(cause, Cause::File);
    text
}

/// With the real watcher. Each step awaits the load that it causes, so an extra load would be seen.
#[tokio::test]
async fn each_change_is_loaded_once() {
    let folder = Folder::new("watch");
    let file = folder.at("c.yaml");
    fs::create_dir(folder.at("..t1")).unwrap();
    fs::write(folder.at("..t1/c.yaml"), "1").unwrap();
    symlink("..t1", folder.at("..data")).unwrap();
    symlink("..data/c.yaml", &file).unwrap();
    watched(file.clone(), |asks, mut told| async move {
        // A change made before the watch began is found too.
        fs::write(folder.at("..t1/c.yaml"), "1b").unwrap();
        assert_eq!(next(&mut told).await, "1b");
        // Two ConfigMap swaps: to see the second, the watch must have followed the first.
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
        // Written in place; then with the same content, which is no change; then removed and created again.
        fs::write(&file, "5").unwrap();
        assert_eq!(next(&mut told).await, "5");
        fs::write(&file, "5").unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(next(&mut told).await, "");
        fs::write(&file, "6").unwrap();
        assert_eq!(next(&mut told).await, "6");
        // A change loaded by an explicit reload is not loaded a second time.
        fs::write(&file, "7").unwrap();
        assert_eq!(asks.ask(Cause::Admin).await, Some(Some("7".into())));
        assert_eq!(told.recv().await.unwrap(), (Cause::Admin, "7".into()));
        fs::write(&file, "8").unwrap();
        assert_eq!(next(&mut told).await, "8");
        // Whoever asks for what is already served is told so.
        assert_eq!(asks.ask(Cause::Admin).await, Some(Some("the same".into())));
        fs::write(&file, "9").unwrap();
        assert_eq!(next(&mut told).await, "9");
    })
    .await;
}

/// A file that is a mount of its own: it is written through another name, and its folder gets no event.
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

/// A reload asked for in the middle of a write loads the whole file, never a part.
#[tokio::test]
async fn who_asks_waits_for_a_writer() {
    let folder = Folder::new("asked");
    let file = folder.at("c.yaml");
    fs::write(&file, "1").unwrap();
    watched(file.clone(), |asks, mut told| async move {
        let mut writer = File::create(&file).unwrap();
        writer.write_all(b"2").unwrap();
        let finish = async {
            // Longer than a load needs to find out that it must wait.
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

/// Without a watch, in virtual time: a change counts once the file has looked the same twice.
#[tokio::test(start_paused = true)]
async fn where_nobody_tells_of_changes_they_are_looked_for() {
    let folder = Folder::new("looked");
    let file = folder.at("c.yaml");
    looked_at(file.clone(), true, |_asks, mut told| async move {
        let begun = Instant::now();
        sleep(POLL_INTERVAL / 2).await;
        fs::write(&file, "2").unwrap();
        assert_eq!(next(&mut told).await, "2");
        let took = begun.elapsed().as_secs_f64();
        assert!((2.0..2.3).contains(&took), "{took}");
        fs::write(&file, "3").unwrap();
        assert_eq!(next(&mut told).await, "3");
    })
    .await;
}

/// A configuration that could not be served is tried again only when somebody asks.
#[tokio::test(start_paused = true)]
async fn what_is_not_served_is_loaded_again_for_who_asks() {
    let folder = Folder::new("again");
    looked_at(folder.at("c.yaml"), false, |asks, mut told| async move {
        sleep(POLL_INTERVAL * 5).await;
        assert!(told.try_recv().is_err());
        assert_eq!(asks.ask(Cause::Signal).await, Some(Some("1".into())));
        assert_eq!(told.recv().await.unwrap(), (Cause::Signal, "1".into()));
    })
    .await;
}

/// Nothing changes but time: a load that the system refused is made again, less and less often.
#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again() {
    let folder = Folder::new("passes");
    looked_at(folder.at("c.yaml"), false, |asks, mut told| async move {
        asks.ask(Cause::Signal).await.unwrap();
        told.recv().await.unwrap();
        let mut last = Instant::now();
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(told.recv().await.unwrap(), (Cause::Again, "1".into()));
            assert_eq!(last.elapsed().as_secs(), wait);
            last = Instant::now();
        }
        // Whoever asks begins anew.
        asks.ask(Cause::Admin).await.unwrap();
        assert_eq!(told.recv().await.unwrap().0, Cause::Admin);
        last = Instant::now();
        assert_eq!(told.recv().await.unwrap().0, Cause::Again);
        assert_eq!(last.elapsed().as_secs(), 1);
    })
    .await;
}

/// A writer that never closes: whoever asks is told, and nothing is loaded.
#[tokio::test(start_paused = true)]
async fn who_asks_does_not_wait_for_ever() {
    let folder = Folder::new("unfinished");
    let file = folder.at("c.yaml");
    fs::write(&file, "1").unwrap();
    let (loads, mut told) = mpsc::channel(16);
    let target = FakeApp { file, served: true, may_pass: false, loads };
    let (asks, mut reloader) = reloader(target.load().0);
    reloader.watcher = None;
    reloader.debounce.on(Change::Writing, Instant::now());
    let begun = Instant::now();
    let steps = async {
        assert_eq!(asks.ask(Cause::Admin).await, Some(None));
        assert_eq!(begun.elapsed(), WRITER_TIMEOUT);
    };
    tokio::select! {
        () = reloader.run(&target) => panic!("the reloader ended"),
        () = steps => {}
    }
    assert!(told.try_recv().is_err());
    assert_eq!(asks.ask(Cause::Admin).await, None, "the reloader is gone");
}
