//! Clients: where they connect, and what is spoken with them.

pub(crate) mod connection;
mod conversation;
pub(crate) mod listener;
mod multiplexed;
mod tunnel;
