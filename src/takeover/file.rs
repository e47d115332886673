//! The file of the Unix socket at which the processes meet.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use super::TakeoverError;

/// A listening Unix socket whose file is removed when it is dropped.
///
/// It is made beside its place, and moved there once this process serves. Until then the place is the old process's, and
/// stays so if this process fails.
#[derive(Debug)]
pub(crate) struct SocketFile {
    listener: UnixListener,
    /// Where it is to be.
    path: PathBuf,
    /// Where it is now. `None` if it is not ours to remove.
    now: Option<PathBuf>,
    /// Which file it is: another process may put its own in this place.
    number: (u64, u64),
}

impl SocketFile {
    /// Makes it, and nobody knows of it yet. Must be called within a runtime.
    ///
    /// # Errors
    /// When there can be no socket at `path`.
    pub(crate) fn create(path: &Path) -> Result<Self, TakeoverError> {
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}", std::process::id()));
        let draft = PathBuf::from(draft);
        // A dead process with the same number may have left it.
        if fs::symlink_metadata(&draft).is_ok_and(|there| there.file_type().is_socket()) {
            fs::remove_file(&draft).map_err(|error| wrong(&draft, "cannot be removed", &error))?;
        }
        let listener = UnixListener::bind(&draft).map_err(|error| {
            wrong(&draft, "cannot be created; its folder must be there and writable", &error)
        })?;
        let made = fs::set_permissions(&draft, Permissions::from_mode(0o600))
            .and_then(|()| fs::symlink_metadata(&draft));
        let made = made.map_err(|error| wrong(&draft, "cannot be made private", &error))?;
        Ok(Self { listener, path: path.to_owned(), now: Some(draft), number: number(&made) })
    }

    /// Moves it to its place.
    ///
    /// # Errors
    /// When it cannot be moved there.
    pub(crate) fn publish(&mut self) -> Result<(), TakeoverError> {
        if let Some(now) = &mut self.now {
            fs::rename(&*now, &self.path)
                .map_err(|error| wrong(&self.path, "cannot be put there", &error))?;
            now.clone_from(&self.path);
        }
        Ok(())
    }

    /// The place is another process's from now on.
    pub(super) fn leave(&mut self) {
        self.now = None;
    }

    /// The next process that comes.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = |path: &PathBuf| {
            fs::symlink_metadata(path).is_ok_and(|there| number(&there) == self.number)
        };
        if let Some(path) = self.now.take_if(|path| ours(path))
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "A socket's file stays behind.");
        }
    }
}

/// A connection to the process behind `path`, if there is one. A file that a dead process has left behind is like none.
pub(super) async fn connect(path: &Path) -> Result<Option<UnixStream>, TakeoverError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // Connecting would say the same of it as of a socket that nobody listens on.
        Ok(there) if !there.file_type().is_socket() => {
            let problem = "is not a socket; wanted: a place where there is a socket or nothing";
            return Err(TakeoverError(format!("{} {problem}", path.display())));
        }
        _ => {}
    }
    match UnixStream::connect(path).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "A dead process has left the socket: it is replaced.");
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(path, "cannot be connected to", &error)),
    }
}

fn number(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

fn wrong(path: &Path, what: &str, error: &io::Error) -> TakeoverError {
    TakeoverError(format!("the socket {} {what}: {error}", path.display()))
}
