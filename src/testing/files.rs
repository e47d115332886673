//! Finds cases in directories.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::read::Reader;
use super::{Case, MalformedCases};

/// The file that every case has.
const CASE: &str = "case.json";

/// How deep folders of cases may nest.
const DEPTH: usize = 16;

/// Reads the cases at `dir`, in order: `dir` itself if it is a case, else those in its folders. Folders whose
/// name begins with a dot are skipped, and links to folders are not followed.
///
/// # Errors
/// Everything that is wrong with the files of the cases; a directory that cannot be read; no case at all.
pub fn find(dir: &Path) -> Result<Vec<Case>, MalformedCases> {
    let mut search = Search::default();
    search.visit(dir, DEPTH);
    let Search { cases, reader } = search;
    if !reader.problems.is_empty() {
        return Err(MalformedCases(reader.problems));
    }
    if cases.is_empty() {
        let problem = format!(
            "{} holds no case: a case is a directory with {CASE}, definition.json and scenarios/NAME/",
            dir.display()
        );
        return Err(MalformedCases(vec![problem]));
    }
    Ok(cases)
}

#[derive(Default)]
struct Search {
    cases: Vec<Case>,
    reader: Reader,
}

impl Search {
    fn visit(&mut self, dir: &Path, depth: usize) {
        // A case without its `case.json` is a mistake, not a folder of cases.
        let is_case = [CASE, "definition.json"].iter().any(|name| dir.join(name).exists());
        if is_case {
            self.cases.extend(self.reader.case(dir));
            return;
        }
        match folders(dir) {
            Ok(names) if depth > 0 => {
                for path in names.iter().map(|name| dir.join(name)) {
                    self.visit(&path, depth - 1);
                }
            }
            Ok(_) => {}
            Err(error) => self.reader.refuse(dir, &format!("cannot be read: {error}")),
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
