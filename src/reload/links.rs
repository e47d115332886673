//! Which paths decide what a file is: the file itself, and every link on the way to it. A `ConfigMap`
//! changes by swapping one of these links, and no event ever happens to the file that was named.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

/// How many links may lie on the way to a file: the limit of Linux.
const MAX_LINKS: usize = 40;

/// The paths that lead to one file.
#[derive(Debug)]
pub(super) struct LinkChain {
    /// The path as named, each link on the way, and the file at the end.
    pub(super) paths: BTreeSet<PathBuf>,
    /// The file at the end, whether it exists or not.
    pub(super) end: PathBuf,
}

impl LinkChain {
    /// The way to `file`.
    pub(super) fn to(file: &Path) -> Self {
        let mut paths = BTreeSet::new();
        let mut at = absolute(file).unwrap_or_else(|_| file.to_owned());
        paths.insert(at.clone());
        for _ in 0..MAX_LINKS {
            let Some((link, target)) = first_link(&at) else {
                break;
            };
            let rest = at.strip_prefix(&link).unwrap_or_else(|_| Path::new("")).to_owned();
            paths.insert(link);
            at = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
        }
        paths.insert(at.clone());
        Self { paths, end: at }
    }
}

/// The first prefix of `path` that is a link, and its target.
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

/// Removes `.` and `..`; the latter only where no link can stand before it.
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
    use crate::reload::testing::Folder;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_way_to_a_config_map_leads_over_its_links() {
        let folder = Folder::new("way");
        fs::create_dir(folder.at("..t1")).unwrap();
        fs::write(folder.at("..t1/c.yaml"), "1").unwrap();
        symlink("..t1", folder.at("..data")).unwrap();
        symlink("..data/c.yaml", folder.at("c.yaml")).unwrap();
        let way = LinkChain::to(&folder.at("c.yaml"));
        let expected = ["c.yaml", "..data", "..t1/c.yaml"].map(|name| folder.at(name));
        assert_eq!(way.paths, BTreeSet::from(expected));
        assert_eq!(way.end, folder.at("..t1/c.yaml"));
        let missing = LinkChain::to(&folder.at("none.yaml"));
        assert_eq!(missing.paths, BTreeSet::from([folder.at("none.yaml")]));
    }

    #[test]
    fn links_in_a_circle_end() {
        let folder = Folder::new("circle");
        symlink("b", folder.at("a")).unwrap();
        symlink("a", folder.at("b")).unwrap();
        assert!(LinkChain::to(&folder.at("a")).paths.contains(&folder.at("b")));
    }
}
