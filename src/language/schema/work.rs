//! How long the validator takes for a value, before it begins.
//!
//! It cannot be stopped. A recursive schema that names itself twice takes twice as long for each level of a value, and a
//! pattern that looks ahead takes the square of a text's length. So a walk beside it counts what it would visit.

use serde_json::{Map, Value as Json};

use super::pattern;
use super::targets::{Place, Targets, reference};

/// How long parts take, in nanoseconds.
const VISIT: u64 = 60;
const OPTION: u64 = 20;
const CHARACTER: u64 = 2;
const BACKTRACKING: u64 = 100_000;
const AGAIN: u64 = 5;

/// How many schemas may apply to one value through one another.
const DEEPEST: usize = 100;

/// How many nanoseconds the validator takes to check `value` against `schema`; `None` if it is more than `most`.
pub(super) fn work(schema: &Json, value: &Json, most: u64) -> Option<u64> {
    let mut walk = Walk { targets: Targets::of(schema), left: most };
    walk.apply(Place::root(schema), value, 0)?;
    Some(most - walk.left)
}

/// The number of values in `json`.
pub(super) fn size(json: &Json) -> u64 {
    match json {
        Json::Array(items) => items.iter().fold(1, |sum, item| sum.saturating_add(size(item))),
        Json::Object(members) => {
            members.values().fold(1, |sum, value| sum.saturating_add(size(value)))
        }
        _ => 1,
    }
}

struct Walk<'a> {
    targets: Targets<'a>,
    left: u64,
}

impl<'a> Walk<'a> {
    fn take(&mut self, work: u64) -> Option<()> {
        self.left = self.left.checked_sub(work)?;
        Some(())
    }

    /// Applies the schema at `place` to `value`. `depth` counts the schemas around it that apply to the same value.
    fn apply(&mut self, place: Place<'a>, value: &Json, depth: usize) -> Option<()> {
        self.take(VISIT)?;
        let Json::Object(keywords) = place.schema else {
            return Some(());
        };
        if depth == DEEPEST {
            return None;
        }
        for (key, written) in keywords {
            if let Some(name) = reference(key, written) {
                for target in self.targets.named(name, place) {
                    self.apply(target, value, depth + 1)?;
                }
                continue;
            }
            self.keyword(place, key, written, value, depth)?;
        }
        match value {
            Json::Object(members) => self.members(place, keywords, members),
            Json::Array(items) => self.items(place, keywords, items),
            _ => Some(()),
        }
    }

    /// A keyword that applies to the value itself.
    fn keyword(
        &mut self,
        place: Place<'a>,
        key: &str,
        written: &'a Json,
        value: &Json,
        depth: usize,
    ) -> Option<()> {
        match (key, written) {
            ("allOf" | "anyOf" | "oneOf", Json::Array(parts)) => {
                parts.iter().try_for_each(|part| self.apply(place.part(part), value, depth + 1))
            }
            ("not" | "if" | "then" | "else", part) => {
                self.apply(place.part(part), value, depth + 1)
            }
            ("dependentSchemas", Json::Object(parts)) => parts
                .iter()
                .filter(|(name, _)| value.get(name).is_some())
                .try_for_each(|(_, part)| self.apply(place.part(part), value, depth + 1)),
            ("enum", Json::Array(options)) => {
                self.take(OPTION.saturating_mul(options.len() as u64).saturating_mul(size(value)))
            }
            ("pattern", Json::String(pattern)) => match value {
                Json::String(text) => self.pattern(pattern, text),
                _ => Some(()),
            },
            _ => Some(()),
        }
    }

    /// The keywords that apply to members.
    fn members(
        &mut self,
        place: Place<'a>,
        keywords: &'a Map<String, Json>,
        members: &Map<String, Json>,
    ) -> Option<()> {
        let declared = keywords.get("properties").and_then(Json::as_object);
        let patterns = keywords.get("patternProperties").and_then(Json::as_object);
        let others = ["additionalProperties", "unevaluatedProperties"].map(|key| keywords.get(key));
        for (name, value) in members {
            let known = declared.and_then(|declared| declared.get(name));
            if let Some(part) = known {
                self.apply(place.part(part), value, 0)?;
            }
            for (pattern, part) in patterns.into_iter().flatten() {
                self.pattern(pattern, name)?;
                self.apply(place.part(part), value, 0)?;
            }
            for part in others.into_iter().flatten().filter(|_| known.is_none()) {
                self.apply(place.part(part), value, 0)?;
            }
        }
        let each = |key: &str| {
            let part = keywords.get(key)?;
            Some(size(part).saturating_mul(members.len() as u64))
        };
        self.take(VISIT.saturating_mul(each("propertyNames").unwrap_or(0)))?;
        // Whether a member was looked at is asked of all that applies.
        let all = keywords.get("unevaluatedProperties").map(|_| size(place.schema));
        self.take(OPTION.saturating_mul(all.unwrap_or(0)).saturating_mul(members.len() as u64))
    }

    /// The keywords that apply to items.
    fn items(
        &mut self,
        place: Place<'a>,
        keywords: &'a Map<String, Json>,
        items: &[Json],
    ) -> Option<()> {
        let first =
            keywords.get("prefixItems").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        for (part, value) in first.iter().zip(items) {
            self.apply(place.part(part), value, 0)?;
        }
        let rest = items.get(first.len()..).unwrap_or_default();
        for (key, items) in [("items", rest), ("contains", items), ("unevaluatedItems", items)] {
            if let Some(part) = keywords.get(key) {
                items.iter().try_for_each(|value| self.apply(place.part(part), value, 0))?;
            }
        }
        let all = keywords.get("unevaluatedItems").map(|_| size(place.schema));
        self.take(OPTION.saturating_mul(all.unwrap_or(0)).saturating_mul(items.len() as u64))
    }

    fn pattern(&mut self, pattern: &str, text: &str) -> Option<()> {
        let length = text.len() as u64;
        self.take(if pattern::backtracks(pattern) {
            length.saturating_mul(length).saturating_mul(AGAIN).saturating_add(BACKTRACKING)
        } else {
            length.saturating_mul(CHARACTER).saturating_add(VISIT)
        })
    }
}

#[cfg(test)]
mod tests;
