//! HTTP/1.1 as bytes (RFC 9112), the same towards clients and towards upstreams.
//!
//! Both sides read and write messages of one form, so what does that is here once: bytes that come are gathered
//! ([`inbox`]), a head's fields are read and heard for what frames the message ([`fields`]), its body is decoded
//! ([`decode`]); the other way a body is framed ([`framing`]), polled ([`sending`]) and written ([`outbox`]). What a
//! side has of its own is beside it: the conversation with a [`client`](super::client),
//! [`upstream::h1`](super::upstream) with an upstream. What the conversation and the body of its request read together is
//! [`talk`].

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

/// How large an answer's head, and any trailer section, may be, in bytes.
pub(crate) const SIZE: usize = 64 * 1024;
/// How many fields they may have.
pub(crate) const FIELDS: usize = 100;
