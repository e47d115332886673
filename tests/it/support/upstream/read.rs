//! A request, as far as it has come.

use super::{Connection, Log};
use tokio::io::AsyncReadExt;

/// The next head; `None` where the connection ended between two requests.
pub(super) async fn read_head(
    stream: &mut impl Connection,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<String>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = buffer.split_off(end + 4);
            let head = String::from_utf8_lossy(&std::mem::replace(buffer, rest)).into_owned();
            return Ok(Some(head));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// Reads the body of the request at `place`, or as much of it as is `enough`.
pub(super) async fn read_body(
    stream: &mut impl Connection,
    buffer: &mut Vec<u8>,
    log: &Log,
    place: usize,
    enough: Option<usize>,
) -> std::io::Result<()> {
    let head = log.requests.lock().unwrap()[place].clone();
    let chunked = !head.field("transfer-encoding").is_empty();
    let length = head.field("content-length").first().map(|text| text.parse::<usize>().unwrap());
    loop {
        let (body, trailers, used, whole) = if chunked {
            decode(buffer)
        } else {
            let wanted = length.unwrap_or(0);
            let used = buffer.len().min(wanted);
            (buffer[..used].to_vec(), Vec::new(), used, used == wanted)
        };
        let size = body.len();
        {
            let mut requests = log.requests.lock().unwrap();
            requests[place].body = body;
            requests[place].trailers = trailers;
            requests[place].whole = whole;
        }
        log.changed.notify_waiters();
        if whole {
            buffer.drain(..used);
            return Ok(());
        }
        if enough.is_some_and(|enough| size >= enough) {
            return Ok(());
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The lines behind the last chunk, and the bytes that they took; `None` where they are not all there.
fn trailers(buffer: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut lines = Vec::new();
    let mut at = 0;
    loop {
        let end = at + buffer[at..].windows(2).position(|two| two == b"\r\n")?;
        if end == at {
            return Some((lines, at + 2));
        }
        lines.push(String::from_utf8_lossy(&buffer[at..end]).into_owned());
        at = end + 2;
    }
}

/// A chunked body as far as it is there: its data, its trailers, the bytes that it took, whether it ended.
fn decode(buffer: &[u8]) -> (Vec<u8>, Vec<String>, usize, bool) {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let Some(line) = buffer[at..].windows(2).position(|two| two == b"\r\n") else {
            return (body, Vec::new(), at, false);
        };
        let size = std::str::from_utf8(&buffer[at..at + line]).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
        let data = at + line + 2;
        if size == 0 {
            return match trailers(&buffer[data..]) {
                Some((trailers, used)) => (body, trailers, data + used, true),
                None => (body, Vec::new(), at, false),
            };
        }
        if buffer.len() < data + size + 2 {
            return (body, Vec::new(), at, false);
        }
        body.extend_from_slice(&buffer[data..data + size]);
        at = data + size + 2;
    }
}
