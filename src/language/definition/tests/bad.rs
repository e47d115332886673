//! One case for each thing that is refused.

use super::*;

mod arguments;
mod calls;
mod graph;
mod middleware;
mod values;

/// What is refused at load, and at run time fails with a failure of its own instead.
fn load_only(text: &str) -> String {
    assert!(compiled(text, Strictness::Runtime).is_ok(), "left to run time: {text}");
    refused(text)
}
