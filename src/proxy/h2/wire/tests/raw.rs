//! Frames as bytes.

use std::time::Duration;

use crate::proxy::h2::wire::frame::{HEAD, Head, number_at, put_head};

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    /// The number at this place of its payload.
    pub(super) fn number(&self, at: usize) -> u32 {
        number_at(&self.payload, at).unwrap()
    }
}

/// A frame as bytes.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = bytes::BytesMut::new();
    put_head(&mut out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
    out.to_vec()
}

/// The frames in these bytes.
pub(super) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut all = Vec::new();
    while let Some(head) = bytes.first_chunk().map(Head::parse) {
        let Some(payload) = bytes.get(HEAD..HEAD + head.length) else {
            break;
        };
        let Head { kind, flags, stream, .. } = head;
        all.push(Frame { kind, flags, stream, payload: payload.to_vec() });
        bytes = &bytes[HEAD + head.length..];
    }
    all
}

/// Settings as a payload.
pub(super) fn settings(all: &[(u16, u32)]) -> Vec<u8> {
    let one = |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
    all.iter().flat_map(one).collect()
}

/// Fields as a header block: literals that nobody remembers.
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        text(&mut block, name);
        text(&mut block, value);
    }
    block
}

fn text(block: &mut Vec<u8>, text: &str) {
    let mut rest = text.len();
    if rest < 127 {
        block.push(u8::try_from(rest).unwrap());
    } else {
        block.push(127);
        rest -= 127;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128 + 128).unwrap());
            rest /= 128;
        }
        block.push(u8::try_from(rest).unwrap());
    }
    block.extend(text.as_bytes());
}

/// The block of a request, with these further fields.
pub(super) fn head(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let line = [(":method", method), (":scheme", "http"), (":authority", "t"), (":path", path)];
    block(&[&line[..], fields].concat())
}

/// What `done` gives, unless that takes longer than `limit`.
pub(super) async fn within<T>(limit: Duration, done: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = done => Some(done),
        () = tokio::time::sleep(limit) => None,
    }
}
