//! The proxy's own providers. To add one, add a folder here with its document, and its line where a route's
//! catalog is built (`runtime`).

pub(crate) mod http;
