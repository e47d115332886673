//! Interns the strings of a file: equal strings share one allocation.
//!
//! A file repeats itself: ten thousand routes have the same dozen keys, and mostly the same few values.

use std::collections::HashSet;
use std::sync::Arc;

/// The strings that were seen so far.
#[derive(Debug, Default)]
pub(super) struct Interner(HashSet<Arc<str>>);

impl Interner {
    /// `text`, in an allocation that all equal strings share.
    pub(super) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new = Arc::from(text);
        self.0.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_an_allocation() {
        let mut strings = Interner::default();
        let (a, b, c) = (strings.intern("a"), strings.intern("a"), strings.intern("b"));
        assert!(Arc::ptr_eq(&a, &b));
        assert_eq!((&*a, &*c), ("a", "b"));
    }
}
