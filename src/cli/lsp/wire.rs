//! Messages as they are on the wire: a head with the length, then JSON.

use std::io::{self, BufRead, Read as _, Write};

use serde_json::Value as Json;

use crate::source::MAX_BYTES;

/// The longest head, in bytes.
const HEAD: u64 = 4 * 1024;

/// What an editor has sent.
#[derive(Debug)]
pub(super) enum Incoming {
    Message(Json),
    /// This is no JSON, for this reason.
    Nonsense(String),
}

/// The next message; `None` at the end.
///
/// # Errors
/// When there is no head, or the message is longer than a file may be.
pub(super) fn receive(input: &mut impl BufRead) -> io::Result<Option<Incoming>> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut length = None;
    let mut head = input.take(HEAD);
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return if length.is_none() && head.limit() == HEAD {
                Ok(None)
            } else {
                Err(invalid("a head has no end"))
            };
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse::<usize>().ok();
        }
    }
    let length = length.ok_or_else(|| invalid("a message without Content-Length"))?;
    // JSON may take six bytes for one of a text.
    if length > MAX_BYTES.saturating_mul(6) {
        return Err(invalid("a message is too long"));
    }
    let mut body = Vec::new();
    let read = input.take(length as u64).read_to_end(&mut body)?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(match serde_json::from_slice(&body) {
        Ok(message) => Incoming::Message(message),
        Err(error) => Incoming::Nonsense(error.to_string()),
    }))
}

/// Writes a message.
pub(super) fn send(out: &mut impl Write, message: &Json) -> io::Result<()> {
    let body = message.to_string();
    write!(out, "Content-Length: {}\r\n\r\n{body}", body.len())?;
    out.flush()
}
