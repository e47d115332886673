//! A client's request, from its head to its record.

pub(crate) mod exchange;
pub(crate) mod flight;
pub(crate) mod head;
pub(crate) mod interim;
pub(crate) mod recording;
mod trace;
pub(crate) mod upload;
