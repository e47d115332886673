//! The conversation, with each side scripted in turn. Time is virtual.

use std::cell::RefCell;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;
use tokio::time::Instant;

use super::channel::Channel;
use super::*;
use crate::system::inherited::{ADMIN, LISTENER};

/// A folder of its own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mwl-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("takeover")
    }

    /// The names of what is in it.
    fn files(&self) -> Vec<String> {
        let all = std::fs::read_dir(&self.0).unwrap();
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Two sockets of one listener, and the admin address.
fn sockets() -> Vec<Passed> {
    let bound = || TcpListener::bind(any()).unwrap();
    let shared = bound();
    let listener =
        || Passed { name: LISTENER, configured: any(), listener: shared.try_clone().unwrap() };
    let admin = bound();
    vec![listener(), listener(), Passed { name: ADMIN, configured: any(), listener: admin }]
}

fn giver(path: &Path) -> Giver {
    let mut file = SocketFile::create(path).unwrap();
    file.publish().unwrap();
    Giver::new(file)
}

/// What a giver has counted.
#[derive(Default)]
struct Counted(RefCell<Vec<&'static str>>);

impl Counted {
    /// Gives until `script` has ended, or until the sockets are handed over and it has ended.
    async fn give<T>(&self, path: &Path, script: impl Future<Output = T>) -> T {
        let count = |outcome: Outcome| self.0.borrow_mut().push(outcome.as_str());
        let giving = giver(path).give(|| Ok(sockets()), count);
        let mut giving = std::pin::pin!(giving);
        let mut script = std::pin::pin!(script);
        tokio::select! {
            biased;
            done = &mut script => return done,
            _ = &mut giving => {}
        }
        script.await
    }
}

async fn channel(path: &Path) -> Channel {
    Channel::new(UnixStream::connect(path).await.unwrap())
}

/// Reads to the end, without the descriptors.
async fn rest(channel: &mut Channel) -> Vec<GiverMessage> {
    let mut all = Vec::new();
    while let Ok(Some(message)) = channel.hear().await {
        drop(channel.descriptor());
        all.push(message);
    }
    all
}

fn why(messages: &[GiverMessage]) -> &str {
    match messages {
        [.., GiverMessage::Refused { why }] => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_sockets_are_taken_by_name_and_address_and_the_file_changes_hands() {
    let folder = Folder::new("takeover-whole");
    let path = folder.socket();
    let counted = Counted::default();
    let taken = counted
        .give(&path, async {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let mut next = SocketFile::create(&path).unwrap();
            let (taker, inherited) = take(&path).await.unwrap().unwrap();
            taker.ready().await.unwrap();
            next.publish().unwrap();
            (inherited, next)
        })
        .await;
    let (inherited, next) = taken;
    assert_eq!(*counted.0.borrow(), ["handedOver"]);
    let (listeners, others) = inherited.divided(&[(LISTENER, any())]);
    assert_eq!(listeners.iter().map(|socket| &*socket.name).collect::<Vec<_>>(), [LISTENER; 2]);
    assert_eq!(others.iter().map(|socket| &*socket.name).collect::<Vec<_>>(), [ADMIN]);
    assert_eq!(inherited.share(LISTENER, any()).unwrap().unwrap().sockets.len(), 2);
    // The old process has left the file alone, and the new one takes it away.
    assert_eq!(folder.files(), ["takeover"]);
    drop(next);
    assert_eq!(folder.files(), [""; 0]);
}

#[tokio::test]
async fn where_nobody_is_there_is_nothing_to_take() {
    let folder = Folder::new("takeover-nobody");
    let path = folder.socket();
    assert!(take(&path).await.unwrap().is_none());
    // A dead process has left it.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(take(&path).await.unwrap().is_none());
    drop(giver(&path));
    assert_eq!(folder.files(), [""; 0], "it was replaced, and removed");
    std::fs::write(&path, "precious").unwrap();
    let error = take(&path).await.unwrap_err().to_string();
    assert!(error.contains("is not a socket"), "{error}");
    let error = take(&folder.0.join("missing/takeover")).await;
    assert!(error.unwrap().is_none());
    let error = SocketFile::create(&folder.0.join("missing/takeover")).unwrap_err().to_string();
    assert!(error.contains("its folder must be there"), "{error}");
}

#[tokio::test]
async fn a_file_that_another_process_has_put_there_is_not_removed() {
    let folder = Folder::new("takeover-other");
    let path = folder.socket();
    let first = giver(&path);
    let second = giver(&path);
    drop(first);
    assert_eq!(folder.files(), ["takeover"]);
    drop(second);
    assert_eq!(folder.files(), [""; 0]);
}

#[tokio::test]
async fn who_ends_before_it_is_ready_leaves_the_old_one_serving() {
    let folder = Folder::new("takeover-dies");
    let path = folder.socket();
    let counted = Counted::default();
    counted
        .give(&path, async {
            drop(take(&path).await.unwrap().unwrap());
            drop(channel(&path).await);
            let (taker, _) = take(&path).await.unwrap().unwrap();
            taker.ready().await.unwrap();
        })
        .await;
    assert_eq!(*counted.0.borrow(), ["failed", "failed", "handedOver"]);
}

#[tokio::test]
async fn a_second_one_is_refused_while_the_first_is_at_it() {
    let folder = Folder::new("takeover-two");
    let path = folder.socket();
    let counted = Counted::default();
    counted
        .give(&path, async {
            let (first, _) = take(&path).await.unwrap().unwrap();
            let error = take(&path).await.unwrap_err().to_string();
            assert!(error.contains("another process is taking over"), "{error}");
            first.ready().await.unwrap();
        })
        .await;
    assert_eq!(*counted.0.borrow(), ["refused", "handedOver"]);
}

#[tokio::test(start_paused = true)]
async fn who_is_not_ready_in_time_is_told_so_and_must_stop() {
    let folder = Folder::new("takeover-late");
    let path = folder.socket();
    let counted = Counted::default();
    counted
        .give(&path, async {
            let begun = Instant::now();
            let mut silent = channel(&path).await;
            assert!(why(&rest(&mut silent).await).contains("30s"));
            assert_eq!(begun.elapsed(), PATIENCE);
            let (taker, _) = take(&path).await.unwrap().unwrap();
            tokio::time::sleep(PATIENCE + ANSWER).await;
            let error = taker.ready().await.unwrap_err().to_string();
            assert!(error.contains("it was not ready within 30s"), "{error}");
        })
        .await;
    assert_eq!(*counted.0.borrow(), ["refused", "refused"]);
}

#[tokio::test]
async fn what_the_old_process_does_not_understand_is_refused() {
    let folder = Folder::new("takeover-version");
    let path = folder.socket();
    let counted = Counted::default();
    counted
        .give(&path, async {
            let mut newer = channel(&path).await;
            newer.say(&TakerMessage::Take { protocol: 2 }, None).await.unwrap();
            assert!(why(&rest(&mut newer).await).contains("version 2"));
            let mut hasty = channel(&path).await;
            hasty.say(&TakerMessage::Ready, None).await.unwrap();
            assert!(why(&rest(&mut hasty).await).contains("before it has anything"));
            for nonsense in ["\"nonsense\"".to_owned(), "x".repeat(10_000)] {
                let mut other = channel(&path).await;
                other.say(&nonsense, None).await.unwrap();
                assert_eq!(rest(&mut other).await, []);
            }
        })
        .await;
    assert_eq!(*counted.0.borrow(), ["refused", "refused", "failed", "failed"]);
}

/// What a new process makes of an old one that behaves like this.
async fn taken(path: &Path, old: impl AsyncFnOnce(Channel)) -> Result<(), String> {
    let mut file = SocketFile::create(path).unwrap();
    file.publish().unwrap();
    let new = async {
        let (taker, _) = take(path).await.map_err(|error| error.to_string())?.unwrap();
        taker.ready().await.map_err(|error| error.to_string())
    };
    let old = async { old(Channel::new(file.accept().await.unwrap())).await };
    tokio::join!(new, old).0
}

async fn hand_over(channel: &mut Channel) {
    let asked: TakerMessage = channel.hear().await.unwrap().unwrap();
    assert_eq!(asked, TakerMessage::Take { protocol: PROTOCOL });
    for Passed { name, configured, listener } in sockets() {
        let message = GiverMessage::Socket { name: name.into(), configured };
        channel.say(&message, Some(listener.as_fd())).await.unwrap();
    }
    channel.say(&GiverMessage::All { sockets: 3 }, None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_old_process_that_vanishes_or_hangs_does_not_keep_the_new_one_from_serving() {
    let folder = Folder::new("takeover-vanishes");
    let path = folder.socket();
    let vanishes = async |mut channel: Channel| hand_over(&mut channel).await;
    assert_eq!(taken(&path, vanishes).await, Ok(()));
    let hangs = async |mut channel: Channel| {
        hand_over(&mut channel).await;
        tokio::time::sleep(ANSWER * 2).await;
    };
    assert_eq!(taken(&path, hangs).await, Ok(()));
    let refuses = async |mut channel: Channel| {
        hand_over(&mut channel).await;
        channel.say_at_last(&GiverMessage::Refused { why: "no".into() });
    };
    assert!(taken(&path, refuses).await.unwrap_err().ends_with(": no"));
}

#[tokio::test(start_paused = true)]
async fn a_new_process_without_its_sockets_does_not_start() {
    let folder = Folder::new("takeover-lacks");
    let path = folder.socket();
    let ends = async |channel: Channel| drop(channel);
    let error = taken(&path, ends).await.unwrap_err();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    let silent = async |channel: Channel| {
        tokio::time::sleep(ANSWER * 2).await;
        drop(channel);
    };
    let error = taken(&path, silent).await.unwrap_err();
    assert!(error.contains("it has not answered within 10s"), "{error}");
    let lies = async |channel: Channel| {
        let message = GiverMessage::Socket { name: "listener".into(), configured: any() };
        channel.say(&message, None).await.unwrap();
    };
    assert!(taken(&path, lies).await.unwrap_err().contains("a socket is missing"));
    let lacks = async |channel: Channel| {
        channel.say(&GiverMessage::All { sockets: 1 }, None).await.unwrap();
    };
    assert!(taken(&path, lacks).await.unwrap_err().contains("what it announced"));
}
