//! HTTP/1.1 as bytes (RFC 9112), for both clients and upstreams.
//!
//! Both sides read and write messages of the same form, so the code for that is shared. Reading: bytes are
//! collected ([`inbox`]), a head's fields are checked for the message's framing ([`fields`]), and the body is
//! decoded ([`decode`]). Writing: a body is framed ([`framing`]), polled ([`sending`]) and written
//! ([`outbox`]). [`talk`] is what a client's connection shares with the reader of its request's body. What
//! differs is in [`client`](super::client) and [`upstream::h1`](super::upstream).

mod decode;
mod error;
mod fields;
mod framing;
mod inbox;
mod outbox;
mod sending;
mod talk;

pub(crate) use self::decode::{Decoded, Decoder};
pub(crate) use self::error::{Error, Malformed};
pub(crate) use self::fields::{Said, number, read};
pub(crate) use self::framing::{Framing, WrongLength, field, line};
pub(crate) use self::inbox::Inbox;
pub(crate) use self::outbox::Outbox;
pub(crate) use self::sending::{Sending, Unsendable};
pub(crate) use self::talk::{Dropped, Talk, Wire};

/// The largest head of a response, and the largest trailer section, in bytes.
pub(crate) const SIZE: usize = 64 * 1024;
/// The most fields that these may have.
pub(crate) const FIELDS: usize = 100;
