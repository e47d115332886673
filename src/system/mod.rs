//! What the operating system lends: files and descriptors. Beneath everything else.

pub mod descriptors;
pub mod file;
