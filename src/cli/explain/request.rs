//! The request to explain, as written on the command line.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Uri};

use super::argument::ArgumentError;
use crate::proxy::rehearsal::ClientRequest;
use crate::proxy::tls::ClientCertificate;
use crate::source::MAX_BYTES;
use crate::system::file;

/// Fields that are derived from the body.
pub(super) const FRAMING: [HeaderName; 2] = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING];

/// `POST /billing/charge`. A target alone means GET; an absolute one sets the host.
pub(super) fn line(written: &str) -> Result<ClientRequest, ArgumentError> {
    let start = written.len() - written.trim_start().len();
    let text = written.trim();
    let (method, target, at) = match text.split_once(char::is_whitespace) {
        None => (Method::GET, text, start),
        Some((method, rest)) => {
            let target = rest.trim_start();
            (self::method(method, start)?, target, start + text.len() - target.len())
        }
    };
    let (target, host) = self::target(target, at)?;
    let mut headers = HeaderMap::new();
    if let Some(host) = host {
        headers.insert(header::HOST, host);
    }
    Ok(ClientRequest {
        method,
        target,
        headers,
        body: Bytes::new(),
        patience: None::<Duration>,
        certificate: None,
    })
}

fn method(text: &str, offset: usize) -> Result<Method, ArgumentError> {
    let wrong = |message| ArgumentError { offset, message };
    let method = Method::from_bytes(text.as_bytes());
    let method = method.map_err(|_| wrong(format!("`{text}` is no method; `POST`, say")))?;
    let upper = text.to_ascii_uppercase();
    if upper != text {
        return Err(wrong(format!("`{text}` is another method than `{upper}`: case matters")));
    }
    Ok(method)
}

/// The target in origin form, and the host if the target is absolute.
fn target(text: &str, at: usize) -> Result<(Uri, Option<HeaderValue>), ArgumentError> {
    let wrong = |offset, message: String| ArgumentError { offset: at + offset, message };
    let absolute = text.starts_with("http://") || text.starts_with("https://");
    if !(text.starts_with('/') || text == "*" || absolute) {
        let message =
            format!("`{text}` is no target: it begins with `/`, such as `/billing/charge`");
        return Err(wrong(0, message));
    }
    if let Some((place, sign)) =
        text.char_indices().find(|(_, sign)| !sign.is_ascii_graphic() || *sign == '#')
    {
        let message = match sign {
            '#' => "a fragment is never sent".to_owned(),
            _ => format!("a target holds no {sign:?}; percent-encode it"),
        };
        return Err(wrong(place, message));
    }
    let uri: Uri = text.parse().map_err(|error| wrong(0, format!("`{text}`: {error}")))?;
    let host = uri.authority().map(|authority| HeaderValue::try_from(authority.as_str()));
    let host = host.transpose().map_err(|error| wrong(0, format!("`{text}`: {error}")))?;
    // Printed and read again, it has the slash that stands for an empty path (RFC 9112 §3.2.1).
    let origin = uri.path_and_query().map(|origin| PathAndQuery::try_from(origin.to_string()));
    let origin = origin.transpose().map_err(|error| wrong(0, format!("`{text}`: {error}")))?;
    Ok((origin.map(Uri::from).unwrap_or_default(), host))
}

/// `accept: text/plain`.
pub(super) fn field(written: &str) -> Result<(HeaderName, HeaderValue), ArgumentError> {
    let Some((name, value)) = written.split_once(':') else {
        let message = format!("`{written}` is no field; write `name: value`");
        return Err(ArgumentError::at(0, message));
    };
    let offset = name.len() + 1 + (value.len() - value.trim_start().len());
    Ok((self::name(name.trim_end(), 0)?, self::value(value.trim(), offset)?))
}

/// A field's name, unless it is a framing field.
pub(super) fn name(text: &str, offset: usize) -> Result<HeaderName, ArgumentError> {
    let wrong = |message| Err(ArgumentError::at(offset, message));
    match HeaderName::try_from(text) {
        Err(_) => wrong(format!("`{text}` is no name of a header field")),
        Ok(name) if FRAMING.contains(&name) => {
            wrong(format!("`{name}` follows from the body and cannot be written"))
        }
        Ok(name) => Ok(name),
    }
}

/// A field's value.
pub(super) fn value(text: &str, offset: usize) -> Result<HeaderValue, ArgumentError> {
    let wrong = |_| ArgumentError::at(offset, format!("{text:?} is no value of a header field"));
    HeaderValue::try_from(text).map_err(wrong)
}

/// The first certificate in a file of PEM.
pub(super) fn certificate(path: &str) -> Result<Arc<ClientCertificate>, ArgumentError> {
    let wrong = |message| ArgumentError::at(0, format!("{path} {message}"));
    let text = file::read_text(Path::new(path), MAX_BYTES);
    let text = text.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let read = ClientCertificate::read(&text);
    read.map(Arc::new).map_err(|error| wrong(error.to_string()))
}

/// A text, or `@FILE`.
pub(super) fn body(written: &str) -> Result<Bytes, ArgumentError> {
    let Some(path) = written.strip_prefix('@') else {
        return Ok(Bytes::copy_from_slice(written.as_bytes()));
    };
    let wrong = |error| ArgumentError::at(1, format!("{path} cannot be read: {error}"));
    file::read_given(Path::new(path), MAX_BYTES).map(Bytes::from).map_err(wrong)
}
