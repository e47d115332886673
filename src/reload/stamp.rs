//! Finds changes by looking at file metadata, where no events come: on network file systems, on some
//! container mounts, and when the system has no watches left.

use std::os::unix::fs::MetadataExt;

use crate::config::FileContents;

/// Tells two states of some files apart without reading them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp(Vec<Option<FileStamp>>);

/// The state of one file: its identity, its size, and its last change in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp {
    which: (u64, u64),
    size: u64,
    changed: [(i64, i64); 2],
}

impl Stamp {
    /// The present state of `files`.
    pub(super) fn of(files: &[FileContents]) -> Self {
        let one = |read: &FileContents| {
            let metadata = read.path.metadata().ok()?;
            Some(FileStamp {
                which: (metadata.dev(), metadata.ino()),
                size: metadata.size(),
                changed: [
                    (metadata.mtime(), metadata.mtime_nsec()),
                    (metadata.ctime(), metadata.ctime_nsec()),
                ],
            })
        };
        Self(files.iter().map(one).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reload::testing::Folder;
    use std::fs;

    #[test]
    fn a_stamp_changes_with_the_file_and_only_then() {
        let folder = Folder::new("stamp");
        let read = [FileContents { path: folder.at("c.yaml"), text: None }];
        let missing = Stamp::of(&read);
        assert_eq!(missing, Stamp::of(&read));
        fs::write(folder.at("c.yaml"), "1").unwrap();
        let first = Stamp::of(&read);
        assert_ne!(first, missing);
        assert_eq!(first, Stamp::of(&read));
        fs::write(folder.at("c.yaml"), "12").unwrap();
        assert_ne!(first, Stamp::of(&read));
        // Another file of the same size replaces it.
        let second = Stamp::of(&read);
        fs::write(folder.at("c.yaml~"), "34").unwrap();
        fs::rename(folder.at("c.yaml~"), folder.at("c.yaml")).unwrap();
        assert_ne!(second, Stamp::of(&read));
    }
}
