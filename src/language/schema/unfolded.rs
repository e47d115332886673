//! How large a schema is with the target of each reference in its place.
//!
//! The validator follows each reference each time. Thirty schemas, each of which names the next one twice, would
//! keep it busy for hours.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::targets::{Place, Targets, reference};

/// How many schemas a parameter schema may stand for.
pub(super) const MOST: usize = 100_000;

/// How many schemas may name one another in a row.
const DEEPEST: usize = 100;

/// What a schema stands for.
pub(super) struct Unfolded {
    /// The number of schemas, and of values in an `enum`.
    pub(super) size: usize,
    /// Whether a schema within it names one around it, so that the depth of a value decides how often it is used.
    pub(super) recursive: bool,
}

/// What `root` stands for.
pub(super) fn unfolded(root: &Json) -> Unfolded {
    let targets = Targets::of(root);
    let mut unfolding = Unfolding { targets, sizes: HashMap::new(), depth: 0, recursive: false };
    let size = unfolding.size(Place::root(root));
    Unfolded { size, recursive: unfolding.recursive }
}

struct Unfolding<'a> {
    targets: Targets<'a>,
    /// The sizes of the targets that were met, by their addresses; `None` while one is being measured.
    sizes: HashMap<*const Json, Option<usize>>,
    depth: usize,
    recursive: bool,
}

impl<'a> Unfolding<'a> {
    fn size(&mut self, place: Place<'a>) -> usize {
        match place.schema {
            Json::Array(items) => {
                items.iter().fold(0, |sum, item| sum.saturating_add(self.size(place.part(item))))
            }
            Json::Object(members) => members.iter().fold(1, |sum, (key, value)| {
                let more = match (reference(key, value), value) {
                    (Some(name), _) => self.targets(name, place),
                    (None, Json::Array(options)) if key == "enum" => options.len(),
                    (None, _) => self.size(place.part(value)),
                };
                sum.saturating_add(more)
            }),
            _ => 0,
        }
    }

    fn targets(&mut self, name: &str, from: Place<'a>) -> usize {
        let found = self.targets.named(name, from);
        found.into_iter().fold(0, |sum, target| sum.saturating_add(self.target(target)))
    }

    /// The size of a reference's target. One that is around the reference counts as nothing: the validator comes
    /// to it again only for a deeper part of the value.
    fn target(&mut self, target: Place<'a>) -> usize {
        let address = std::ptr::from_ref(target.schema);
        if let Some(known) = self.sizes.get(&address) {
            self.recursive |= known.is_none();
            return known.unwrap_or(0);
        }
        if self.depth == DEEPEST {
            return usize::MAX;
        }
        self.sizes.insert(address, None);
        self.depth += 1;
        let size = self.size(target);
        self.depth -= 1;
        self.sizes.insert(address, Some(size));
        size
    }
}
