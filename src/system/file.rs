//! Reads files that somebody names, none further than a bound. A running proxy reads regular files only: a pipe with no
//! writer would block it, and a device such as `/dev/zero` never ends. A command may wait for a pipe, because its user
//! does, too.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// The text of the regular file at `path`, of at most `most` bytes.
///
/// # Errors
/// When it is not a regular file, is larger, is not UTF-8, or cannot be read.
pub fn read_text(path: &Path, most: usize) -> io::Result<String> {
    text(read(open(path)?, most)?)
}

/// The text of whatever is at `path`, of at most `most` bytes. Waits for the writer of a pipe.
///
/// # Errors
/// When it is larger, is not UTF-8, or cannot be read.
pub fn read_given_text(path: &Path, most: usize) -> io::Result<String> {
    text(read_given(path, most)?)
}

/// The content of whatever is at `path`, of at most `most` bytes. Waits for the writer of a pipe.
///
/// # Errors
/// When it is larger or cannot be read.
pub fn read_given(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    read(File::open(path)?, most)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| invalid(format!("it is not UTF-8: {error}")))
}

fn read(file: File, most: usize) -> io::Result<Vec<u8>> {
    let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(size.min(most));
    // One byte more tells a file that is too large from one that just fits. It may also grow meanwhile.
    file.take(u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(invalid(format!("it has more than {most} bytes, the most that is read")));
    }
    Ok(bytes)
}

/// Opens a regular file. Opening never waits: without `NONBLOCK`, a pipe waits for its writer.
fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    let what = if kind.is_file() {
        return Ok(file);
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(invalid(format!("it is {what}; wanted: a regular file")))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    /// A folder of its own, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mwl-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn refused(path: &Path) -> String {
        read_text(path, 8).unwrap_err().to_string()
    }

    #[test]
    fn a_regular_file_is_read_up_to_the_bound_and_through_links() {
        let folder = Folder::new("regular");
        let (file, link) = (folder.0.join("f"), folder.0.join("l"));
        fs::write(&file, "12345678").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_text(&link, 8).unwrap(), "12345678");
        fs::write(&file, "123456789").unwrap();
        assert_eq!(refused(&link), "it has more than 8 bytes, the most that is read");
        fs::write(&file, [b'a', 0xff]).unwrap();
        assert!(refused(&file).starts_with("it is not UTF-8: invalid utf-8 sequence"));
    }

    /// Each of these would be read for ever.
    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = Folder::new("irregular");
        let fifo = folder.0.join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(refused(&fifo), "it is a pipe; wanted: a regular file");
        assert_eq!(refused(Path::new("/dev/zero")), "it is a device; wanted: a regular file");
        assert_eq!(refused(&folder.0), "it is a directory; wanted: a regular file");
        let endless = read_given(Path::new("/dev/zero"), 8).unwrap_err().to_string();
        assert_eq!(endless, "it has more than 8 bytes, the most that is read");
    }
}
