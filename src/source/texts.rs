//! The strings of one file, each kept once.
//!
//! A file repeats itself: ten thousand routes have the same dozen keys, and most of them the same few
//! values.

use std::collections::HashSet;
use std::sync::Arc;

/// What was kept so far.
#[derive(Debug, Default)]
pub(super) struct Texts(HashSet<Arc<str>>);

impl Texts {
    /// `text`, in the one allocation that all of its like share.
    pub(super) fn keep(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let kept = Arc::from(text);
        self.0.insert(Arc::clone(&kept));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one() {
        let mut texts = Texts::default();
        let (a, b, c) = (texts.keep("a"), texts.keep("a"), texts.keep("b"));
        assert!(Arc::ptr_eq(&a, &b));
        assert_eq!((&*a, &*c), ("a", "b"));
    }
}
