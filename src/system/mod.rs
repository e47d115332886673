//! What the operating system lends: files, descriptors, sockets and address space. Beneath everything else.

pub mod address_space;
pub mod descriptors;
pub mod file;
pub mod inherited;
pub mod passing;
pub mod private;
