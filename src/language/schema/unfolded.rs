//! How large a schema is with the target of each `$ref` in its place.
//!
//! The validator follows each `$ref` each time. Thirty schemas, each of which names the next one twice, would
//! keep it busy for hours.

use std::collections::HashMap;

use serde_json::Value as Json;

/// How many schemas a parameter schema may stand for.
pub(super) const MOST: usize = 100_000;

/// How many schemas may name one another in a row.
const DEEPEST: usize = 100;

/// Whether `root` stands for at most [`MOST`] schemas.
pub(super) fn is_small(root: &Json) -> bool {
    let mut unfolding = Unfolding { root, sizes: HashMap::new(), depth: 0 };
    unfolding.size(root) <= MOST
}

struct Unfolding<'a> {
    root: &'a Json,
    /// The sizes of the targets that were met; `None` while one is being measured.
    sizes: HashMap<&'a str, Option<usize>>,
    depth: usize,
}

impl<'a> Unfolding<'a> {
    fn size(&mut self, part: &'a Json) -> usize {
        match part {
            Json::Array(items) => {
                items.iter().fold(0, |sum, item| sum.saturating_add(self.size(item)))
            }
            Json::Object(members) => members.iter().fold(1, |sum, (key, value)| {
                let target = value.as_str().filter(|_| key == "$ref");
                sum.saturating_add(match target.and_then(|target| target.strip_prefix('#')) {
                    Some(pointer) => self.target(pointer),
                    None => self.size(value),
                })
            }),
            _ => 0,
        }
    }

    /// The size of a `$ref`'s target. One that is around the `$ref` counts as nothing: the validator comes
    /// to it again only for a deeper part of the value.
    fn target(&mut self, pointer: &'a str) -> usize {
        if let Some(known) = self.sizes.get(pointer) {
            return known.unwrap_or(0);
        }
        if self.depth == DEEPEST {
            return usize::MAX;
        }
        self.sizes.insert(pointer, None);
        self.depth += 1;
        let size = self.root.pointer(pointer).map_or(0, |target| self.size(target));
        self.depth -= 1;
        self.sizes.insert(pointer, Some(size));
        size
    }
}
