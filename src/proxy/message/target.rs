//! The request target and the authority, checked before anything is matched on them.
//!
//! A target is graphic ASCII without a fragment, whoever wrote it. Such a target is sent on as it came, byte for byte:
//! some services rely on characters that are not allowed in a URI (`"`, `<`, `>`, a backtick).

use std::borrow::Cow;
use std::net::Ipv6Addr;
use std::sync::Arc;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Version, header};

/// The longest target that the HTTP library can represent, in bytes.
pub(crate) const LONGEST: usize = u16::MAX as usize - 1;

/// The path and the query of a request, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// One that the HTTP library supports. Nearly all are.
    Usual(PathAndQuery),
    /// One with characters that are not allowed in a URI.
    Raw {
        text: Arc<str>,
        /// The length of the path.
        path: usize,
    },
}

/// What precedes the path of a target in absolute form; in HTTP/2, `:scheme` and `:authority`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Absolute {
    pub(crate) scheme: Option<Scheme>,
    pub(crate) authority: Option<Authority>,
}

/// A valid authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestAuthority<'a> {
    /// As it was sent.
    pub(crate) text: &'a str,
    /// The host without its port, and without a dot at its end: `a.test.` is `a.test` (RFC 3986 §3.2.2).
    pub(crate) host: &'a str,
}

/// Why a target or an authority is refused. Always answered 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    /// `.` or `..` as a segment.
    #[error("the path contains a dot segment; send the path that it stands for")]
    DotSegment,
    /// Neither a path, nor a whole URI, nor `*` (RFC 9112 §3.2).
    #[error("the target is neither a path nor a whole http URI")]
    Form,
    /// A URI of another scheme.
    #[error("the target's scheme is neither http nor https")]
    Scheme,
    /// An encoded NUL.
    #[error("the path contains %00, which no path needs")]
    Nul,
    /// A control character, a space, or a byte beyond ASCII (RFC 9112 §3.2).
    #[error(
        "the target contains a control character, a space or a byte beyond ASCII; percent-encode it"
    )]
    Character,
    /// A fragment, which is only for the client itself (RFC 9110 §4.2.5).
    #[error("the target contains `#`; do not send a fragment, and percent-encode any other `#`")]
    Fragment,
    /// Longer than [`LONGEST`].
    #[error("the target is over {LONGEST} bytes")]
    TooLong,
    /// `paths.encodedSlashes: refuse`.
    #[error(
        "the path contains an encoded slash or a backslash, which are refused here (paths.encodedSlashes)"
    )]
    EncodedSlash,
    /// `paths.parameters: refuse`.
    #[error("the path contains `;`, which is refused here (paths.parameters)")]
    Parameters,
    /// No `Host` (RFC 9112 §3.2).
    #[error("the request has no Host field")]
    NoHost,
    /// More than one `Host`.
    #[error("the request has more than one Host field")]
    TwoHosts,
    /// Not `host` or `host:port`.
    #[error("the Host field or the target's authority is not `host` or `host:port`")]
    BadHost,
    /// `Host` and `:authority` differ (RFC 9113 §8.3.1).
    #[error("the Host field names another host than :authority")]
    TwoAuthorities,
    /// `user@host`.
    #[error("the target carries user information, which a request must not")]
    UserInfo,
}

impl Target {
    /// Parses the target of a request line (RFC 9112 §3.2). The authority form, which CONNECT uses, has no path.
    pub(crate) fn read(bytes: &Bytes) -> Result<(Absolute, Self), TargetError> {
        if bytes.starts_with(b"/") || **bytes == *b"*" {
            return Ok((Absolute::default(), Self::of_bytes(bytes)?));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| TargetError::Character)?;
        check_characters(text)?;
        let Some((scheme, rest)) = text.split_once("://") else {
            let authority = Some(text.parse().map_err(|_| TargetError::Form)?);
            return Ok((Absolute { scheme: None, authority }, Self::from(None)));
        };
        let scheme = Some(match scheme {
            scheme if scheme.eq_ignore_ascii_case("http") => Scheme::HTTP,
            scheme if scheme.eq_ignore_ascii_case("https") => Scheme::HTTPS,
            _ => return Err(TargetError::Scheme),
        });
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let authority = Some(authority.parse().map_err(|_| TargetError::BadHost)?);
        let target = match path {
            path if path.starts_with('/') => Self::of_text(path.to_owned())?,
            query => Self::of_text(format!("/{query}"))?,
        };
        Ok((Absolute { scheme, authority }, target))
    }

    fn of_bytes(bytes: &Bytes) -> Result<Self, TargetError> {
        let size = bytes.len();
        if !bytes.is_ascii() {
            return Err(TargetError::Character);
        }
        match PathAndQuery::from_maybe_shared(bytes.clone()) {
            // The library removes a fragment.
            Ok(usual) if usual.as_str().len() == size => Ok(Self::Usual(usual)),
            Ok(_) => Err(TargetError::Fragment),
            Err(_) => Self::raw(std::str::from_utf8(bytes).unwrap_or_default()),
        }
    }

    /// A path, and a query if there is one.
    pub(crate) fn of_text(text: String) -> Result<Self, TargetError> {
        Self::of_bytes(&text.into())
    }

    fn raw(text: &str) -> Result<Self, TargetError> {
        check_characters(text)?;
        if text.len() > LONGEST {
            return Err(TargetError::TooLong);
        }
        let path = text.find('?').unwrap_or(text.len());
        Ok(Self::Raw { text: text.into(), path })
    }

    /// The whole target.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Usual(usual) => usual.as_str(),
            Self::Raw { text, .. } => text,
        }
    }

    /// The path.
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Usual(usual) => usual.path(),
            Self::Raw { text, path } => text.get(..*path).unwrap_or_default(),
        }
    }

    /// The query, without the question mark.
    pub(crate) fn query(&self) -> Option<&str> {
        match self {
            Self::Usual(usual) => usual.query(),
            Self::Raw { text, path } => text.get(*path..)?.strip_prefix('?'),
        }
    }

    /// The target as the HTTP library represents it, if it can.
    pub(crate) const fn usual(&self) -> Option<&PathAndQuery> {
        match self {
            Self::Usual(usual) => Some(usual),
            Self::Raw { .. } => None,
        }
    }
}

/// A target that the HTTP library has read: that of an HTTP/2 request.
impl From<Option<PathAndQuery>> for Target {
    fn from(read: Option<PathAndQuery>) -> Self {
        read.map_or_else(|| Self::Raw { text: "".into(), path: 0 }, Self::Usual)
    }
}

/// Checks that a target, or a part of one, contains only characters that are allowed.
pub(crate) fn check_characters(text: &str) -> Result<(), TargetError> {
    if text.contains('#') {
        return Err(TargetError::Fragment);
    }
    let graphic = text.bytes().all(|byte| byte.is_ascii_graphic());
    if graphic { Ok(()) } else { Err(TargetError::Character) }
}

/// Checks the form of the target: a path, or `*` with OPTIONS; both also in a whole URI.
pub(crate) fn check_form(
    absolute: &Absolute,
    target: &Target,
    method: &Method,
) -> Result<(), TargetError> {
    if let Some(scheme) = &absolute.scheme
        && *scheme != Scheme::HTTP
        && *scheme != Scheme::HTTPS
    {
        return Err(TargetError::Scheme);
    }
    // Not its path: the library says that this is `/` if there is only a query.
    let text = target.as_str();
    if text.starts_with('/') || text == "*" && *method == Method::OPTIONS {
        return Ok(());
    }
    Err(TargetError::Form)
}

/// The authority that the request is for: the target's if it is in absolute form, otherwise the `Host` field's
/// (RFC 9112 §3.2.2: with the absolute form, a proxy ignores Host). Empty for an HTTP/1.0 request without one.
pub(crate) fn authority<'a>(
    absolute: &'a Absolute,
    version: Version,
    headers: &'a HeaderMap,
) -> Result<RequestAuthority<'a>, TargetError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(TargetError::TwoHosts);
    }
    if let Some(authority) = &absolute.authority {
        if authority.as_str().contains('@') {
            return Err(TargetError::UserInfo);
        }
        if version == Version::HTTP_2
            && host.is_some_and(|host| !same(host.as_bytes(), authority.as_str()))
        {
            return Err(TargetError::TwoAuthorities);
        }
        return check_authority(authority.as_str());
    }
    let Some(host) = host else {
        let excused = version < Version::HTTP_11;
        return if excused {
            Ok(RequestAuthority { text: "", host: "" })
        } else {
            Err(TargetError::NoHost)
        };
    };
    check_authority(host.to_str().map_err(|_| TargetError::BadHost)?)
}

fn same(host: &[u8], authority: &str) -> bool {
    host.eq_ignore_ascii_case(authority.as_bytes())
}

/// Whether a host may contain a character unescaped (RFC 3986 §3.2.2).
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b';'
                | b'='
        )
}

/// The host of an authority that is written as nearly all are: a name, and perhaps a port of at most four digits.
fn plain_host(authority: &str) -> Option<&str> {
    let end = authority.bytes().position(|byte| !is_plain(byte)).unwrap_or(authority.len());
    let (host, port) = authority.split_at_checked(end)?;
    let good_port = match port.as_bytes() {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 4 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    (good_port && !host.is_empty() && !host.ends_with('.')).then_some(host)
}

/// Checks that an authority is `host` or `host:port`. An escape is refused: servers that decode it and servers that do
/// not would serve different hosts.
pub(crate) fn check_authority(authority: &str) -> Result<RequestAuthority<'_>, TargetError> {
    if let Some(host) = plain_host(authority) {
        return Ok(RequestAuthority { text: authority, host });
    }
    let (host, port) = split(authority).ok_or(TargetError::BadHost)?;
    let name = host.strip_suffix('.').unwrap_or(host);
    let good_host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok()),
        None => !name.is_empty() && !name.ends_with('.') && name.bytes().all(is_plain),
    };
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let good_port = port.is_empty() || (digits && port.parse::<u16>().is_ok());
    if good_host && good_port {
        Ok(RequestAuthority { text: authority, host: name })
    } else {
        Err(TargetError::BadHost)
    }
}

impl RequestAuthority<'_> {
    /// Whether the host ends in a dot.
    pub(crate) fn has_dot(&self) -> bool {
        self.text.strip_prefix(self.host).is_some_and(|rest| rest.starts_with('.'))
    }

    /// The authority, without a dot at the end of the host.
    pub(crate) fn plain(&self) -> Cow<'_, str> {
        match self.text.strip_prefix(self.host).and_then(|rest| rest.strip_prefix('.')) {
            Some(port) => Cow::Owned(format!("{}{port}", self.host)),
            None => Cow::Borrowed(self.text),
        }
    }
}

/// The form in which equal hosts are equal: in lower case, and an IPv6 address in its shortest form.
pub(crate) fn canonical_host(host: &str) -> Cow<'_, str> {
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = inner.and_then(|inner| inner.parse::<Ipv6Addr>().ok()) {
        Cow::Owned(format!("[{address}]"))
    } else if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// The host, with its brackets, and the port, which is empty if there is none.
fn split(authority: &str) -> Option<(&str, &str)> {
    if authority.starts_with('[') {
        let (host, rest) = authority.split_at_checked(authority.find(']')? + 1)?;
        let port = if rest.is_empty() { "" } else { rest.strip_prefix(':')? };
        return Some((host, port));
    }
    // Authorities are short, so a search function for long texts would cost more than this.
    match authority.bytes().position(|byte| byte == b':') {
        Some(colon) => Some((authority.get(..colon)?, authority.get(colon + 1..)?)),
        None => Some((authority, "")),
    }
}

#[cfg(test)]
mod tests;
