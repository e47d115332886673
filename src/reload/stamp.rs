//! What is looked at where nobody tells of changes: network file systems, some containers' mounts, and a
//! system that has no watch left to give.

use std::os::unix::fs::MetadataExt;

use crate::config::Read;

/// What tells one state of some files from another, without reading them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp(Vec<Option<One>>);

/// Of one file: which it is, its size, and when it was last changed, to the nanosecond.
#[derive(Clone, Debug, PartialEq, Eq)]
struct One {
    which: (u64, u64),
    size: u64,
    changed: [(i64, i64); 2],
}

impl Stamp {
    /// The state that `files` are in now.
    pub(super) fn of(files: &[Read]) -> Self {
        let one = |read: &Read| {
            let metadata = read.path.metadata().ok()?;
            Some(One {
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
        let read = [Read { path: folder.at("c.yaml"), text: None }];
        let missing = Stamp::of(&read);
        assert_eq!(missing, Stamp::of(&read));
        fs::write(folder.at("c.yaml"), "1").unwrap();
        let first = Stamp::of(&read);
        assert_ne!(first, missing);
        assert_eq!(first, Stamp::of(&read));
        fs::write(folder.at("c.yaml"), "12").unwrap();
        assert_ne!(first, Stamp::of(&read));
        // Another file of the same size in its place.
        let second = Stamp::of(&read);
        fs::write(folder.at("c.yaml~"), "34").unwrap();
        fs::rename(folder.at("c.yaml~"), folder.at("c.yaml")).unwrap();
        assert_ne!(second, Stamp::of(&read));
    }
}
