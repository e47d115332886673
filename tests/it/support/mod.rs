//! Scripted peers and what the tests share.

/// A call provider that plays a script.
pub mod script;
