//! The heads of messages, read, checked and changed. Nothing here knows a connection or waits.

pub(crate) mod forwarded;
pub(crate) mod headers;
pub(crate) mod id;
pub(crate) mod media;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod refusal;
pub(crate) mod refused_head;
pub(crate) mod shape;
pub(crate) mod target;
pub(crate) mod trailers;
pub(crate) mod upgrade;
