//! HPACK (RFC 7541): the fields of HTTP/2's heads, compressed.
//!
//! [`Decoder`] and [`Encoder`] keep the two tables of one connection. Each must see every block of its direction, in order,
//! to its end. Values that a block holds as they are become slices of it; a value in the table has memory of its own,
//! so that the table never keeps a block.

use http::{HeaderName, HeaderValue};

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod known;
mod sent;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use decoder::Decoder;
pub(crate) use encoder::Encoder;

/// The size that both tables have until something else is agreed on (RFC 9113 §6.5.2), in octets as RFC 7541 §4.1 counts.
pub(crate) const INITIAL_TABLE_SIZE: usize = 4096;

/// What each entry of a table counts besides its text (RFC 7541 §4.1).
const ENTRY_OVERHEAD: usize = 32;

/// A field's name: a pseudo-header (RFC 9113 §8.3) or a regular one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// `:authority`.
    Authority,
    /// `:method`.
    Method,
    /// `:path`.
    Path,
    /// `:protocol` (RFC 8441).
    Protocol,
    /// `:scheme`.
    Scheme,
    /// `:status`.
    Status,
    /// Any other.
    Field(HeaderName),
}

impl Name {
    /// The name as the head writes it.
    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Authority => ":authority",
            Self::Method => ":method",
            Self::Path => ":path",
            Self::Protocol => ":protocol",
            Self::Scheme => ":scheme",
            Self::Status => ":status",
            Self::Field(name) => name.as_str(),
        }
    }
}

/// One field of a head. A clone copies no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name.
    pub name: Name,
    /// Its value. It is sensitive if the other side wrote that nobody may index it (RFC 7541 §6.2.3), and [`Encoder`]
    /// writes so again.
    pub value: HeaderValue,
}

/// Why a message may not have this field. Its block is decoded to the end nevertheless: the next ones need the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// The name has a capital letter, another octet that no name has, or none at all (RFC 9113 §8.2.1).
    UppercaseOrBadName,
    /// The name begins with a colon, but is none of the pseudo-headers.
    UnknownPseudo,
    /// The value has a control octet (RFC 9110 §5.5).
    BadValue,
}

/// The block can't be decoded, so no later one can: the connection must end with `COMPRESSION_ERROR` (RFC 9113 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompressionError;
