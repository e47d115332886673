//! The static table (RFC 7541, Appendix A), both ways, and which names are worth a place in the other table.

use super::{ENTRY_OVERHEAD, Field, Malformed, Name};
use http::header::{self, HeaderName, HeaderValue};

/// An entry of a table that blocks refer to.
#[derive(Debug)]
pub(super) struct Entry {
    /// The name, or why it is none.
    pub(super) name: Result<Name, Malformed>,
    /// The value, unless it is none.
    pub(super) value: Option<HeaderValue>,
    /// How long the name is, in octets.
    pub(super) name_length: usize,
    /// What the entry counts, in octets (RFC 7541 §4.1).
    pub(super) size: usize,
}

impl Entry {
    /// The field, or why it is malformed.
    #[inline]
    pub(super) fn field(&self) -> Result<Field, Malformed> {
        match (&self.name, &self.value) {
            (Ok(name), Some(value)) => Ok(Field { name: name.clone(), value: value.clone() }),
            (Err(malformed), _) => Err(*malformed),
            (Ok(_), None) => Err(Malformed::BadValue),
        }
    }

    /// An entry of the static table.
    const fn known(name: Name, name_length: usize, value: &'static str) -> Self {
        Self {
            name: Ok(name),
            value: Some(HeaderValue::from_static(value)),
            name_length,
            size: name_length + value.len() + ENTRY_OVERHEAD,
        }
    }
}

/// An entry of a regular field.
const fn field(name: &'static str, value: &'static str) -> Entry {
    Entry::known(Name::Field(HeaderName::from_static(name)), name.len(), value)
}

/// How many entries the static table has. The dynamic table's follow it.
pub(super) const COUNT: usize = TABLE.len();

/// The static table, from index 1.
pub(super) static TABLE: [Entry; 61] = [
    Entry::known(Name::Authority, 10, ""),
    Entry::known(Name::Method, 7, "GET"),
    Entry::known(Name::Method, 7, "POST"),
    Entry::known(Name::Path, 5, "/"),
    Entry::known(Name::Path, 5, "/index.html"),
    Entry::known(Name::Scheme, 7, "http"),
    Entry::known(Name::Scheme, 7, "https"),
    Entry::known(Name::Status, 7, "200"),
    Entry::known(Name::Status, 7, "204"),
    Entry::known(Name::Status, 7, "206"),
    Entry::known(Name::Status, 7, "304"),
    Entry::known(Name::Status, 7, "400"),
    Entry::known(Name::Status, 7, "404"),
    Entry::known(Name::Status, 7, "500"),
    field("accept-charset", ""),
    field("accept-encoding", "gzip, deflate"),
    field("accept-language", ""),
    field("accept-ranges", ""),
    field("accept", ""),
    field("access-control-allow-origin", ""),
    field("age", ""),
    field("allow", ""),
    field("authorization", ""),
    field("cache-control", ""),
    field("content-disposition", ""),
    field("content-encoding", ""),
    field("content-language", ""),
    field("content-length", ""),
    field("content-location", ""),
    field("content-range", ""),
    field("content-type", ""),
    field("cookie", ""),
    field("date", ""),
    field("etag", ""),
    field("expect", ""),
    field("expires", ""),
    field("from", ""),
    field("host", ""),
    field("if-match", ""),
    field("if-modified-since", ""),
    field("if-none-match", ""),
    field("if-range", ""),
    field("if-unmodified-since", ""),
    field("last-modified", ""),
    field("link", ""),
    field("location", ""),
    field("max-forwards", ""),
    field("proxy-authenticate", ""),
    field("proxy-authorization", ""),
    field("range", ""),
    field("referer", ""),
    field("refresh", ""),
    field("retry-after", ""),
    field("server", ""),
    field("set-cookie", ""),
    field("strict-transport-security", ""),
    field("transfer-encoding", ""),
    field("user-agent", ""),
    field("vary", ""),
    field("via", ""),
    field("www-authenticate", ""),
];

/// The first indexes of names that the encoder writes without a look at [`TABLE`].
pub(super) const AUTHORITY: u8 = 1;
pub(super) const METHOD: u8 = 2;
pub(super) const PATH: u8 = 4;
pub(super) const SCHEME: u8 = 6;
pub(super) const STATUS: u8 = 8;
pub(super) const ACCEPT_ENCODING: u8 = 16;
pub(super) const COOKIE: u8 = 32;

/// What the encoder does with a field that is in no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// It may enter the dynamic table.
    Index,
    /// It changes with each message, so it stays out.
    Literal,
    /// It is a secret, which no table on the way may keep (RFC 7541 §7.1.3).
    Never,
}

/// The index of a name in [`TABLE`], or 0, and the policy for its fields.
pub(super) fn of_name(name: &HeaderName) -> (u8, Policy) {
    use Policy::{Index, Literal, Never};
    match *name {
        header::ACCEPT_CHARSET => (15, Index),
        header::ACCEPT_ENCODING => (ACCEPT_ENCODING, Index),
        header::ACCEPT_LANGUAGE => (17, Index),
        header::ACCEPT_RANGES => (18, Index),
        header::ACCEPT => (19, Index),
        header::ACCESS_CONTROL_ALLOW_ORIGIN => (20, Index),
        header::AGE => (21, Literal),
        header::ALLOW => (22, Index),
        header::AUTHORIZATION => (23, Never),
        header::CACHE_CONTROL => (24, Index),
        header::CONTENT_DISPOSITION => (25, Index),
        header::CONTENT_ENCODING => (26, Index),
        header::CONTENT_LANGUAGE => (27, Index),
        header::CONTENT_LENGTH => (28, Literal),
        header::CONTENT_LOCATION => (29, Literal),
        header::CONTENT_RANGE => (30, Literal),
        header::CONTENT_TYPE => (31, Index),
        header::COOKIE => (COOKIE, Literal),
        header::DATE => (33, Index),
        header::ETAG => (34, Literal),
        header::EXPECT => (35, Index),
        header::EXPIRES => (36, Index),
        header::FROM => (37, Index),
        header::HOST => (38, Index),
        header::IF_MATCH => (39, Literal),
        header::IF_MODIFIED_SINCE => (40, Literal),
        header::IF_NONE_MATCH => (41, Literal),
        header::IF_RANGE => (42, Literal),
        header::IF_UNMODIFIED_SINCE => (43, Literal),
        header::LAST_MODIFIED => (44, Index),
        header::LINK => (45, Index),
        header::LOCATION => (46, Literal),
        header::MAX_FORWARDS => (47, Index),
        header::PROXY_AUTHENTICATE => (48, Index),
        header::PROXY_AUTHORIZATION => (49, Never),
        header::RANGE => (50, Literal),
        header::REFERER => (51, Index),
        header::REFRESH => (52, Index),
        header::RETRY_AFTER => (53, Index),
        header::SERVER => (54, Index),
        header::SET_COOKIE => (55, Literal),
        header::STRICT_TRANSPORT_SECURITY => (56, Index),
        header::TRANSFER_ENCODING => (57, Index),
        header::USER_AGENT => (58, Index),
        header::VARY => (59, Index),
        header::VIA => (60, Index),
        header::WWW_AUTHENTICATE => (61, Index),
        _ => (0, Index),
    }
}
