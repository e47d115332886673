//! Which request it is: its key, and a fingerprint by which another one under the same key is told from it.

use http::HeaderName;
use sha2::{Digest as _, Sha256};

use super::memory::Digest;
use crate::language::value::Value;
use crate::proxy::request::exchange::Exchange;
use crate::proxy::request::upload::Upload;

/// The field that has the key unless the entry says otherwise.
static FIELD: HeaderName = HeaderName::from_static("idempotency-key");

/// The key that the request has by itself.
pub(super) fn own_key(input: &Value) -> Option<String> {
    let Some(exchange) = input.as_native::<Exchange>() else {
        let headers = input.get("headers")?;
        return headers.get(FIELD.as_str())?.as_str().map(str::to_owned);
    };
    let key = exchange.headers.get(&FIELD)?;
    Some(String::from_utf8_lossy(key.as_bytes()).into_owned())
}

/// The fingerprint of what an entry received: of a client's request its method, path, query and body, of anything else its
/// value. A body that is larger than what may be kept (`buffer.replay`) counts with its declared length only.
pub(super) fn fingerprint(input: &Value) -> Digest {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    };
    let Some(exchange) = input.as_native::<Exchange>() else {
        add(input.to_string().as_bytes());
        return hash.finalize().into();
    };
    add(exchange.method.as_str().as_bytes());
    add(exchange.target.path().as_bytes());
    add(exchange.target.query().unwrap_or_default().as_bytes());
    match &exchange.upload {
        Upload::None => add(b""),
        Upload::Buffered { bytes, .. } => add(bytes),
        Upload::Stream(_) => {
            let length = exchange.headers.get(http::header::CONTENT_LENGTH);
            add(length.map_or(b"?", http::HeaderValue::as_bytes));
        }
    }
    hash.finalize().into()
}

/// The digest of a key.
pub(super) fn digest(key: &str) -> Digest {
    Sha256::digest(key.as_bytes()).into()
}

/// In hexadecimal digits.
pub(super) fn hex(digest: &Digest) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in digest {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}
