//! Clients: how they connect, and the protocols that they speak.

pub(crate) mod connection;
mod conversation;
pub(crate) mod listener;
mod multiplexed;
mod tunnel;
