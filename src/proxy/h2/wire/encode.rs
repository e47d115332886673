//! Header blocks that are sent.

use bytes::BytesMut;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, Method, StatusCode, Uri, request};

use super::frame::{END_HEADERS, END_STREAM, HEAD, MAX_PAYLOAD, kind, put_head};
use super::state::State;
use crate::proxy::h2::hpack::Encoder;

impl State {
    /// Appends the head of a response.
    pub(super) fn put_response(
        &mut self,
        id: u32,
        status: StatusCode,
        fields: &HeaderMap,
        end: bool,
    ) {
        self.put_block(id, end, |encoder, out| {
            encoder.status(status, out);
            encoder.fields(fields, out);
        });
    }

    /// Appends trailers.
    pub(super) fn put_fields(&mut self, id: u32, fields: &HeaderMap) {
        self.put_block(id, true, |encoder, out| encoder.fields(fields, out));
    }

    /// Appends the head of a request.
    pub(super) fn put_request(&mut self, id: u32, parts: &request::Parts, end: bool) {
        let request::Parts { method, uri, headers, .. } = parts;
        self.put_block(id, end, |encoder, out| {
            encoder.method(method, out);
            if *method != Method::CONNECT {
                let scheme = uri.scheme().unwrap_or(&Scheme::HTTP);
                encoder.scheme(scheme.as_str().as_bytes(), out);
            }
            if let Some(authority) = uri.authority() {
                encoder.authority(authority.as_str().as_bytes(), out);
            }
            if *method != Method::CONNECT {
                encoder.path(path(method, uri).as_bytes(), out);
            }
            encoder.fields(headers, out);
        });
    }

    /// Appends a header block, in as many frames as it takes.
    fn put_block(&mut self, id: u32, end: bool, write: impl FnOnce(&mut Encoder, &mut BytesMut)) {
        let out = self.out.buffer();
        let at = out.len();
        let flags = if end { END_STREAM } else { 0 };
        put_head(out, 0, kind::HEADERS, flags | END_HEADERS, id);
        self.encoder.begin(out);
        write(&mut self.encoder, out);
        let length = out.len() - at - HEAD;
        if length <= MAX_PAYLOAD {
            let [.., l0, l1, l2] = length.to_be_bytes();
            if let Some(place) = out.get_mut(at..at + 3) {
                place.copy_from_slice(&[l0, l1, l2]);
            }
            return;
        }
        let block = out.get(at + HEAD..).unwrap_or_default().to_vec();
        out.truncate(at);
        let mut pieces = block.chunks(MAX_PAYLOAD).peekable();
        let mut frame = (kind::HEADERS, flags);
        while let Some(piece) = pieces.next() {
            let last = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            put_head(out, piece.len(), frame.0, frame.1 | last, id);
            out.extend_from_slice(piece);
            frame = (kind::CONTINUATION, 0);
        }
    }
}

/// The `:path` of a request (RFC 9113 §8.3.1).
fn path<'a>(method: &Method, uri: &'a Uri) -> &'a str {
    match uri.path_and_query().map(PathAndQuery::as_str) {
        Some(path) if !path.is_empty() => path,
        _ if *method == Method::OPTIONS => "*",
        _ => "/",
    }
}
