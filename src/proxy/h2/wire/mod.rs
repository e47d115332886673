//! HTTP/2's frames and streams (RFC 9113), for both sides.
//!
//! A connection is an object that its task polls ([`server`], [`client`]), which reads and writes
//! ([`connection`]), and a state that it shares with all handles to its streams ([`state`], [`handle`]): what is received
//! is applied to it frame by frame ([`receive`], [`message`]), and what is sent is appended to one buffer ([`send`], [`out`]).
//! [`lifecycle`] says how streams end, and [`capacity`] how much they may send.
//! A connection and everything that uses it is on one thread, so its lock is never waited for.
//!
//! Everything that the other side can make this side hold or do has a bound ([`guard`]).

mod builder;
mod capacity;
mod client;
mod config;
mod connection;
mod encode;
mod error;
mod frame;
mod guard;
mod handle;
mod head;
mod lifecycle;
mod message;
mod out;
mod receive;
mod send;
mod server;
mod settings;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use self::builder::Builder;
pub(crate) use self::client::{ClientConnection, PingPong, ResponseFuture, SendRequest};
pub(crate) use self::error::{Error, Reason};
pub(crate) use self::handle::{RecvStream, SendStream};
pub(crate) use self::server::{SendResponse, ServerConnection};
