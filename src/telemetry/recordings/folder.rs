//! The folder with the recordings: one file each, so many and so many bytes at most, the oldest of which go.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value as Json, json};

use super::form::Recording;
use crate::system::{file, private};

/// How many recordings are kept.
pub(super) const FILES: usize = 1000;
/// How many bytes their files have together.
pub(super) const BYTES: u64 = 64 * 1024 * 1024;
/// The largest file that is read. A body of 64 KiB is at most six times as long in JSON, and there are two, and two heads.
const LARGEST: usize = 2 * 1024 * 1024;

/// How the name of each file ends.
const ENDING: &str = ".json";
/// `20261129T085200.123456Z`.
const TIME: usize = 23;
/// The digits of a request's id.
const REQUEST: usize = 16;

/// The recordings in a folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// How many files are kept, and how many bytes they have together.
    most: (usize, u64),
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    /// The oldest first.
    kept: VecDeque<Kept>,
    bytes: u64,
}

/// One recording in the list.
#[derive(Clone, Debug)]
struct Kept {
    id: Arc<str>,
    bytes: u64,
    summary: Arc<Json>,
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is none.
    #[error("there is no recording `{0}`: it may have been one of the oldest")]
    Unknown(String),
    /// Something else is in its place.
    #[error("the recording `{0}` cannot be read: {1}")]
    Broken(String, String),
}

impl Folder {
    /// # Errors
    /// When the folder is not fit.
    pub(super) fn open(path: &Path, most: (usize, u64)) -> io::Result<Self> {
        private::prepare(path)?;
        Ok(Self { path: path.to_owned(), most, index: Mutex::default() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Lists what an earlier process has recorded.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(super) fn list_earlier(&self) -> io::Result<()> {
        let mut ids = BTreeSet::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(ENDING));
            ids.extend(id.filter(|id| is_id(id)).map(str::to_owned));
            // Of a folder with a million files, only the latest are of interest.
            if ids.len() > self.most.0
                && let Some(oldest) = ids.pop_first()
            {
                self.remove(&oldest);
            }
        }
        for id in ids {
            match self.read(&id) {
                Ok(recording) => {
                    let bytes = fs::metadata(self.file(&id)).map_or(0, |file| file.len());
                    self.keep(&recording, bytes);
                }
                Err(error) => tracing::warn!(%error, "A recording is left out."),
            }
        }
        Ok(())
    }

    /// Writes a recording, and removes the oldest.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(&self, recording: &Recording) -> io::Result<()> {
        let content = serde_json::to_vec_pretty(recording)?;
        private::write(&self.path, &format!("{}{ENDING}", recording.id), &content)?;
        self.keep(recording, content.len() as u64);
        Ok(())
    }

    fn keep(&self, recording: &Recording, bytes: u64) {
        let one =
            Kept { id: recording.id.as_str().into(), bytes, summary: Arc::new(summary(recording)) };
        let mut index = self.lock();
        index.kept.push_back(one);
        index.bytes += bytes;
        let mut gone = Vec::new();
        while (index.kept.len() > self.most.0 || index.bytes > self.most.1)
            && let Some(oldest) = index.kept.pop_front()
        {
            index.bytes -= oldest.bytes;
            gone.push(oldest.id);
        }
        drop(index);
        for id in gone {
            self.remove(&id);
        }
    }

    fn remove(&self, id: &str) {
        match fs::remove_file(self.file(id)) {
            // Its owner may have done so, or another process that records here.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, id, "An old recording could not be removed.");
            }
            _ => {}
        }
    }

    /// The latest `most` recordings that are `wanted`, newest first, with the number of all and of their bytes.
    pub(super) fn latest(
        &self,
        most: usize,
        wanted: impl Fn(&Json) -> bool,
    ) -> (Vec<Arc<Json>>, usize, u64) {
        let index = self.lock();
        let found = index.kept.iter().rev().map(|kept| &kept.summary);
        let found = found.filter(|summary| wanted(summary)).take(most).cloned().collect();
        (found, index.kept.len(), index.bytes)
    }

    /// # Errors
    /// When there is none of this id, or it cannot be read.
    pub(super) fn read(&self, id: &str) -> Result<Recording, ReadError> {
        if !is_id(id) {
            return Err(ReadError::Unknown(id.to_owned()));
        }
        read(&self.file(id)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReadError::Unknown(id.to_owned()),
            _ => ReadError::Broken(id.to_owned(), error.to_string()),
        })
    }

    fn file(&self, id: &str) -> PathBuf {
        self.path.join(format!("{id}{ENDING}"))
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The recording in a file.
///
/// # Errors
/// When it cannot be read, or is no recording.
pub fn read(path: &Path) -> io::Result<Recording> {
    let text = file::read_text(path, LARGEST)?;
    let recording: Recording = serde_json::from_str(&text)
        .map_err(|error| io::Error::other(format!("it is no recording: {error}")))?;
    if recording.version != super::form::VERSION {
        let version = recording.version;
        return Err(io::Error::other(format!("its form, {version}, is of another mwl-proxy")));
    }
    Ok(recording)
}

/// An id: the time, which sorts; the execution's id as far as it can be in a file's name; and the request's own.
pub(super) fn id(time: &str, execution: &str, request: &str) -> String {
    let seconds = time.split('.').next().unwrap_or_default().trim_end_matches('Z');
    let fraction = time.split('.').nth(1).unwrap_or_default().trim_end_matches('Z');
    let digits: String = seconds.chars().filter(|sign| !matches!(sign, '-' | ':')).collect();
    let plain = |sign: char| {
        if sign.is_ascii_alphanumeric() || sign == '-' { sign } else { '_' }
    };
    let execution: String = execution.chars().take(64).map(plain).collect();
    format!("{digits}.{fraction:0<6.6}Z-{execution}-{request}")
}

/// Whether [`id`] makes such a text. Nothing else is looked for in the folder, read or removed.
fn is_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let Some((time, rest)) = id.split_at_checked(TIME) else {
        return false;
    };
    let Some((execution, request)) = rest.rsplit_once('-') else {
        return false;
    };
    let shaped = time.bytes().enumerate().all(|(place, byte)| match place {
        8 => byte == b'T',
        15 => byte == b'.',
        22 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    });
    let hex = request.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    shaped
        && execution.starts_with('-')
        && execution.len() <= 65
        && execution.bytes().all(plain)
        && request.len() == REQUEST
        && hex
}

/// What the list says of a recording.
fn summary(recording: &Recording) -> Json {
    let Recording { id, request, execution, .. } = recording;
    let of = |member: &str| execution.get(member).cloned().unwrap_or_default();
    let attempts = execution.get("attempts").and_then(Json::as_array).map_or(0, Vec::len);
    let mut summary = json!({
        "id": id,
        "time": of("time"),
        "execution": of("execution"),
        "request": of("request"),
        "route": of("route"),
        "method": request.method,
        "target": request.target,
        "status": of("status"),
        "duration": of("duration"),
        "attempts": attempts,
        "replay": true,
    });
    if let (Some(reason), Json::Object(members)) = (request.obstacle(), &mut summary) {
        members.insert("replay".to_owned(), false.into());
        members.insert("reason".to_owned(), reason.into());
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_are_names_of_files() {
        let of = |time| id(time, "0195-a/../b", "00000000000000ff");
        let all = [
            of("2026-11-29T08:52:00Z"),
            of("2026-11-29T08:52:00.000001Z"),
            of("2026-11-29T08:52:00.1Z"),
            of("2026-11-29T08:52:01.123456789Z"),
        ];
        assert_eq!(all[3], "20261129T085201.123456Z-0195-a____b-00000000000000ff");
        assert!(all.is_sorted() && all.iter().all(|id| is_id(id)), "{all:?}");
        for wrong in ["", "x", "../../etc/passwd", "20261129T085201.123456Z-a-00000000000000fg"] {
            assert!(!is_id(wrong), "{wrong}");
        }
        assert!(!is_id("20261129T085201.123456Z-/-00000000000000ff"));
    }
}
