//! A folder whose files only this user may read, for data of clients.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// How the name of a file begins that is not written to its end.
const DRAFT: &str = ".draft-";

/// Makes the folder, for this user alone, or checks that no other user may write to the one that is there: whoever can
/// replace a file decides what is read from it.
///
/// # Errors
/// When it cannot be made, or is not fit. The error says what to do.
pub fn prepare(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return DirBuilder::new().recursive(true).mode(0o700).create(folder);
    }
    let found = fs::metadata(folder)?;
    if !found.is_dir() {
        return Err(io::Error::other("it is no folder"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user; name one of your own"));
    }
    if found.mode() & 0o022 != 0 {
        return Err(io::Error::other("other users may write to it; `chmod 700` makes it yours"));
    }
    // A process that was stopped may have left half of a file.
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(DRAFT)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes a file in one step: nobody sees half of it, and only this user reads it.
///
/// # Errors
/// When it cannot be written. Then there is none.
pub fn write(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let draft = folder.join(format!("{DRAFT}{name}"));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&draft, folder.join(name)));
    if written.is_err() {
        // What is left of it would be in the way of nobody but is no recording either.
        fs::remove_file(&draft).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    /// A place of its own, removed when dropped.
    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn place(name: &str) -> Place {
        let place = std::env::temp_dir().join(format!("mwl-{name}-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        Place(place)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn nobody_else_reads_what_is_written() {
        let place = place("private");
        let folder = place.0.join("a/b");
        prepare(&folder).unwrap();
        fs::write(folder.join(".draft-old"), "half").unwrap();
        write(&folder, "one", b"1").unwrap();
        prepare(&folder).unwrap();
        assert_eq!((mode(&folder), mode(&folder.join("one"))), (0o700, 0o600));
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["one"]);
    }

    #[test]
    fn a_folder_to_which_others_may_write_is_refused() {
        let place = place("shared");
        fs::set_permissions(&place.0, fs::Permissions::from_mode(0o777)).unwrap();
        let said = prepare(&place.0).unwrap_err().to_string();
        assert_eq!(said, "other users may write to it; `chmod 700` makes it yours");
        let file = place.0.join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(prepare(&file).unwrap_err().to_string(), "it is no folder");
    }
}
