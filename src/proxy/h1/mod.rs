//! HTTP/1.1 as bytes (RFC 9112), for both clients and upstreams.
//!
//! Both sides read and write messages of the same form, so the code for that is shared. Reading: bytes are
//! collected ([`read_buffer`]), a head's fields are checked for the message's framing ([`fields`], [`names`]; most heads are read
//! by [`plain`] and [`known_lines`] in less), and the body is decoded ([`decode`]). Writing: a body is framed ([`framing`]), polled ([`body_writer`]) and written
//! ([`write_buffer`]). [`client_connection`] is what a client's connection shares with the reader of its request's body. What
//! differs is in [`client`](super::client) and [`upstream::h1`](super::upstream).

mod body_writer;
mod client_connection;
mod decode;
mod error;
mod fields;
mod framing;
mod known_lines;
mod names;
mod plain;
mod read_buffer;
mod spare_maps;
mod write_buffer;

pub(crate) use self::body_writer::{BodyWriteError, BodyWriter};
pub(crate) use self::client_connection::{ClientConnection, ClientIo, DropReason};
pub(crate) use self::decode::{Decoded, Decoder};
pub(crate) use self::error::{Error, Malformed};
pub(crate) use self::fields::{FieldRules, HeadFields, number, read};
pub(crate) use self::framing::{Framing, WrongLength, field, line, status_line};
pub(crate) use self::plain::{PlainFields, first_line, has_line, plain_fields};
pub(crate) use self::read_buffer::ReadBuffer;
pub(crate) use self::spare_maps::give_back;
pub(crate) use self::write_buffer::WriteBuffer;
