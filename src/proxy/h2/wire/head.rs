//! Header blocks as messages (RFC 9113 §8).

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, Parts, PathAndQuery, Scheme, Uri};
use http::{Method, Request, StatusCode, Version};

use super::error::{Fault, Reason};
use crate::proxy::h2::hpack::{Decoder, Field, Name};

/// What a field counts beside its name and value (RFC 9113 §10.5.1).
const EACH_FIELD: usize = 32;
/// A list of fields that is this many times larger than allowed ends the connection.
const ABUSE: usize = 4;

/// A decoded header block.
#[derive(Debug, Default)]
pub(super) struct Block {
    method: Option<HeaderValue>,
    scheme: Option<HeaderValue>,
    authority: Option<HeaderValue>,
    path: Option<HeaderValue>,
    status: Option<HeaderValue>,
    /// Empty if the list is too large.
    pub(super) fields: HeaderMap,
    /// The size of all fields, as HTTP/2 counts it.
    size: usize,
    /// Whether any field is forbidden, repeated or out of its place.
    pub(super) malformed: bool,
    /// Whether the list is larger than allowed, so that its fields are incomplete.
    pub(super) too_large: bool,
    /// Whether a pseudo-header came that nobody offered (RFC 8441).
    protocol: bool,
}

impl Block {
    /// Decodes a whole block. The fields of a list over `most` bytes are dropped.
    pub(super) fn decode(decoder: &mut Decoder, bytes: &Bytes, most: usize) -> Result<Self, Fault> {
        let mut block = Self::default();
        let whole = decoder.decode(bytes, |field| match field {
            Ok(field) => block.take(field, most),
            Err(_) => block.malformed = true,
        });
        if whole.is_err() {
            return Err(Fault::Connection(Reason::COMPRESSION_ERROR, "fields cannot be decoded"));
        }
        if block.size > most.saturating_mul(ABUSE) {
            let calm = Reason::ENHANCE_YOUR_CALM;
            return Err(Fault::Connection(calm, "header_list_way_too_large"));
        }
        Ok(block)
    }

    fn take(&mut self, Field { name, value }: Field, most: usize) {
        let place = match name {
            Name::Field(name) => return self.regular(name, value, most),
            Name::Method => &mut self.method,
            Name::Scheme => &mut self.scheme,
            Name::Authority => &mut self.authority,
            Name::Path => &mut self.path,
            Name::Status => &mut self.status,
            Name::Protocol => {
                self.protocol = true;
                return;
            }
        };
        self.size += 10 + value.len() + EACH_FIELD;
        self.too_large |= self.size > most;
        // Pseudo-headers come once, and before all fields (RFC 9113 §8.3).
        self.malformed |= !self.fields.is_empty() || place.replace(value).is_some();
    }

    fn regular(&mut self, name: HeaderName, value: HeaderValue, most: usize) {
        self.malformed |= is_forbidden(&name, &value);
        self.size += name.as_str().len() + value.len() + EACH_FIELD;
        self.too_large |= self.size > most;
        if !self.too_large {
            self.too_large = self.fields.try_append(name, value).is_err();
        }
    }

    const fn has_request_fields(&self) -> bool {
        self.method.is_some()
            || self.scheme.is_some()
            || self.authority.is_some()
            || self.path.is_some()
            || self.protocol
    }

    /// Trailers, unless they are malformed (RFC 9113 §8.1). If they are too large, they are incomplete.
    pub(super) fn trailers(self) -> Option<HeaderMap> {
        let has_pseudo = self.has_request_fields() || self.status.is_some();
        (!has_pseudo && !self.malformed).then_some(self.fields)
    }

    /// The status of a response, unless the response is malformed (RFC 9113 §8.3.2).
    pub(super) fn status(&self) -> Option<StatusCode> {
        if self.malformed || self.has_request_fields() {
            return None;
        }
        StatusCode::from_bytes(self.status.as_ref()?.as_bytes()).ok()
    }

    /// The request, unless it is malformed (RFC 9113 §8.3.1, §8.5).
    pub(super) fn request(self) -> Option<Request<()>> {
        if self.malformed || self.protocol || self.status.is_some() {
            return None;
        }
        let method = Method::from_bytes(self.method?.as_bytes()).ok()?;
        let connects = method == Method::CONNECT;
        if self.scheme.is_some() == connects || self.path.is_some() == connects {
            return None;
        }
        let mut parts = Parts::default();
        if let Some(authority) = self.authority {
            parts.authority = Some(Authority::from_maybe_shared(shared(&authority)).ok()?);
        }
        if let Some(scheme) = self.scheme {
            let scheme = Scheme::try_from(scheme.as_bytes()).ok()?;
            // There is no URI of a scheme and a path.
            parts.scheme = parts.authority.is_some().then_some(scheme);
        }
        if let Some(path) = self.path {
            parts.path_and_query = Some(path_and_query(&path)?);
        }
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_parts(parts).ok()?;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.fields;
        Some(request)
    }
}

/// The target in a `:path`. A fragment is no part of it (RFC 9113 §8.3.1).
fn path_and_query(path: &HeaderValue) -> Option<PathAndQuery> {
    let bytes = path.as_bytes();
    if bytes.is_empty() || bytes.contains(&b'#') {
        return None;
    }
    PathAndQuery::from_maybe_shared(shared(path)).ok()
}

/// The bytes of a value.
fn shared(value: &HeaderValue) -> Bytes {
    Bytes::copy_from_slice(value.as_bytes())
}

/// Whether HTTP/2 forbids this field (RFC 9113 §8.2.2).
fn is_forbidden(name: &HeaderName, value: &HeaderValue) -> bool {
    match name.as_str().len() {
        2 => *name == header::TE && value != "trailers",
        7 => *name == header::UPGRADE,
        10 => *name == header::CONNECTION || *name == "keep-alive",
        16 => *name == "proxy-connection",
        17 => *name == header::TRANSFER_ENCODING,
        _ => false,
    }
}

/// Whether HTTP/2 forbids one of these fields.
pub(super) fn has_forbidden(fields: &HeaderMap) -> bool {
    fields.iter().any(|(name, value)| is_forbidden(name, value))
}

/// The length that a head announces: `Err` if it is no number, or several.
pub(super) fn content_length(fields: &HeaderMap) -> Result<Option<u64>, ()> {
    let mut length = None;
    for value in fields.get_all(header::CONTENT_LENGTH) {
        let told = number(value.as_bytes()).ok_or(())?;
        if length.replace(told).is_some_and(|length| length != told) {
            return Err(());
        }
    }
    Ok(length)
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(fields: &[(&str, &str)], most: usize) -> Block {
        let mut bytes = Vec::new();
        for (name, value) in fields {
            bytes.extend([0, u8::try_from(name.len()).unwrap()]);
            bytes.extend(name.bytes());
            bytes.push(u8::try_from(value.len()).unwrap());
            bytes.extend(value.bytes());
        }
        Block::decode(&mut Decoder::new(4096), &bytes.into(), most).unwrap()
    }

    fn request(changes: &[(&str, &str)]) -> Option<Request<()>> {
        let line =
            [(":method", "GET"), (":scheme", "http"), (":authority", "t"), (":path", "/a?b")];
        let kept = line.iter().filter(|(name, _)| !changes.iter().any(|(other, _)| other == name));
        let added = changes.iter().filter(|(_, value)| *value != "-");
        let (pseudo, fields): (Vec<_>, Vec<_>) =
            kept.chain(added).copied().partition(|(name, _)| name.starts_with(':'));
        block(&[pseudo, fields].concat(), 1000).request()
    }

    #[test]
    fn a_request_is_read() {
        let read = request(&[("x", "1"), ("te", "trailers")]).unwrap();
        assert_eq!(
            (read.method(), read.uri().to_string().as_str()),
            (&Method::GET, "http://t/a?b")
        );
        assert_eq!((read.version(), read.headers().len()), (Version::HTTP_2, 2));
        assert!(request(&[(":authority", "-"), ("host", "t")]).is_some());
        let connect = [(":method", "CONNECT"), (":scheme", "-"), (":path", "-")];
        assert_eq!(request(&connect).unwrap().uri(), "t");
    }

    #[test]
    fn a_malformed_request_is_refused() {
        let malformed: [&[(&str, &str)]; 21] = [
            &[(":method", "-")],
            &[(":method", "G T")],
            &[(":scheme", "-")],
            &[(":scheme", "ht tp")],
            &[(":path", "-")],
            &[(":path", "")],
            &[(":path", "/a b")],
            &[(":path", "/a#b")],
            &[(":path", "/a?b#")],
            &[(":authority", "")],
            &[(":authority", "a b")],
            &[(":method", "CONNECT")],
            &[(":protocol", "websocket")],
            &[(":status", "200")],
            &[(":other", "1")],
            &[("connection", "close")],
            &[("proxy-connection", "close")],
            &[("keep-alive", "1")],
            &[("upgrade", "x")],
            &[("transfer-encoding", "chunked")],
            &[("te", "gzip")],
        ];
        for changes in malformed {
            assert!(request(changes).is_none(), "{changes:?}");
        }
        let late = [(":method", "GET"), (":scheme", "http"), ("x", "1"), (":path", "/")];
        assert!(block(&late, 1000).request().is_none());
        let twice = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":path", "/")];
        assert!(block(&twice, 1000).request().is_none());
        assert!(block(&[("X-Upper", "1")], 1000).malformed);
    }

    #[test]
    fn a_response_has_a_status_and_no_field_of_a_request() {
        assert_eq!(block(&[(":status", "204"), ("x", "1")], 1000).status().unwrap(), 204);
        let malformed: [&[(&str, &str)]; 4] = [
            &[("x", "1")],
            &[(":status", "20")],
            &[(":status", "200"), (":path", "/")],
            &[("x", "1"), (":status", "200")],
        ];
        for fields in malformed {
            assert!(block(fields, 1000).status().is_none(), "{fields:?}");
        }
    }

    #[test]
    fn trailers_have_no_pseudo_headers() {
        assert!(block(&[("grpc-status", "0")], 1000).trailers().is_some());
        for pseudo in [":status", ":path", ":protocol"] {
            assert!(block(&[(pseudo, "200"), ("grpc-status", "0")], 1000).trailers().is_none());
        }
        assert!(block(&[("connection", "close")], 1000).trailers().is_none());
    }

    #[test]
    fn a_list_that_is_too_large_is_cut_and_one_far_too_large_ends_the_connection() {
        let fields = [("x", "12345678"); 4];
        let cut = block(&fields, 100);
        assert!(cut.too_large && !cut.malformed && cut.fields.len() == 2);
        assert!(!block(&fields, 164).too_large);
        let bytes = [0, 1, b'x', 8, 1, 1, 1, 1, 1, 1, 1, 1].repeat(11);
        assert!(Block::decode(&mut Decoder::new(4096), &bytes.into(), 1000).is_ok());
        let bytes = [0, 1, b'x', 8].into_iter().chain([b'v'; 8]).collect::<Vec<_>>().repeat(11);
        assert!(Block::decode(&mut Decoder::new(4096), &bytes.into(), 100).is_err());
    }

    #[test]
    fn a_length_is_one_number() {
        let length = |values: &[&'static str]| {
            let value =
                |text: &&'static str| (header::CONTENT_LENGTH, HeaderValue::from_static(text));
            content_length(&values.iter().map(value).collect())
        };
        assert_eq!(length(&[]), Ok(None));
        assert_eq!(length(&["5"]), Ok(Some(5)));
        for wrong in
            [&["-1"][..], &["+1"], &[""], &["5, 5"], &["5", "6"], &["99999999999999999999"]]
        {
            assert_eq!(length(wrong), Err(()), "{wrong:?}");
        }
        assert_eq!(
            content_length(&HeaderMap::from_iter([(
                header::CONTENT_LENGTH,
                HeaderValue::from_static("5")
            ),])),
            Ok(Some(5))
        );
    }
}
