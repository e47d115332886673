//! Clients: how they connect, and the protocols that they speak.

pub(crate) mod connection;
mod http1;
mod http2;
pub(crate) mod listener;
mod tunnel;
