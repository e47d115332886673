//! Where the cases are.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Case, Malformed};

/// The file that makes a directory a case.
const CASE: &str = "case.json";

/// How deep folders of cases are looked into.
const DEPTH: usize = 16;

/// Reads the cases at `dir`, in order: the case that it is, or those in it and in its folders. Folders
/// whose name begins with a dot are passed over, and links to folders are not followed.
///
/// # Errors
/// Everything that makes a file no part of a case; a directory that cannot be read; no case at all.
pub fn find(dir: &Path) -> Result<Vec<Case>, Malformed> {
    let mut found = Found::default();
    found.look(dir, DEPTH);
    let Found { cases, problems } = found;
    if !problems.is_empty() {
        return Err(Malformed(problems));
    }
    if cases.is_empty() {
        let problem = format!(
            "{} holds no case: a case is a directory with {CASE}, definition.json and scenarios/NAME/",
            dir.display()
        );
        return Err(Malformed(vec![problem]));
    }
    Ok(cases)
}

#[derive(Default)]
struct Found {
    cases: Vec<Case>,
    problems: Vec<String>,
}

impl Found {
    fn look(&mut self, dir: &Path, depth: usize) {
        // A case that lacks its `case.json` is a slip, not a folder of cases.
        let is_case = [CASE, "definition.json"].iter().any(|name| dir.join(name).exists());
        if is_case {
            match super::read::case(dir) {
                Ok(case) => self.cases.push(case),
                Err(Malformed(problems)) => self.problems.extend(problems),
            }
            return;
        }
        match folders(dir) {
            Ok(names) if depth > 0 => {
                for path in names.iter().map(|name| dir.join(name)) {
                    self.look(&path, depth - 1);
                }
            }
            Ok(_) => {}
            Err(error) => {
                let problem = format!("{} cannot be read: {error}", dir.display());
                self.problems.push(problem);
            }
        }
    }
}

/// The folders in `dir`, in order.
pub(super) fn folders(dir: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if !hidden && entry.file_type()?.is_dir() {
            names.insert(name.into());
        }
    }
    Ok(names)
}
