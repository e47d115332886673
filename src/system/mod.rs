//! What the operating system lends: files, descriptors and sockets. Beneath everything else.

pub mod descriptors;
pub mod file;
pub mod inherited;
pub mod passing;
