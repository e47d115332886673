//! Connections with the `h2` crate at the other end.

mod bounds;
mod differential;
mod exchanges;
mod frames;
mod raw;
