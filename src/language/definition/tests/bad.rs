//! A case for each error.

use super::*;

mod arguments;
mod calls;
mod graph;
mod middleware;
mod values;

/// The messages for a definition that is refused at load. At run time it is a failure instead.
fn load_only(text: &str) -> String {
    assert!(compiled(text, Strictness::Runtime).is_ok(), "left to run time: {text}");
    refused(text)
}
