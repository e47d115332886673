//! The schemas that the references of a schema name: by pointer, by anchor and by `$id`.

use std::collections::HashMap;

use serde_json::Value as Json;

/// A part of a schema, and the resource in which it stands: the nearest schema around it that has an `$id`, or the whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) schema: &'a Json,
    base: &'a Json,
}

/// All that the references within one schema may name.
#[derive(Debug)]
pub(super) struct Targets<'a> {
    /// By anchor. Resources may use the same one, and `$dynamicRef` chooses among them while a value is checked.
    anchors: HashMap<&'a str, Vec<Place<'a>>>,
    /// The resources within the schema, by `$id`.
    resources: Vec<(&'a str, &'a Json)>,
}

impl<'a> Place<'a> {
    pub(super) const fn root(schema: &'a Json) -> Self {
        Self { schema, base: schema }
    }

    /// A part of this schema.
    pub(super) fn part(self, schema: &'a Json) -> Self {
        Self { schema, base: if names_itself(schema) { schema } else { self.base } }
    }

    /// The part at a JSON Pointer, whose characters may be escaped as in a URI.
    fn at(self, pointer: &str) -> Option<Self> {
        let pointer = percent_decoded(pointer);
        pointer.split('/').skip(1).try_fold(self, |at, token| {
            let token = token.replace("~1", "/").replace("~0", "~");
            Some(at.part(match at.schema {
                Json::Array(items) => items.get(token.parse::<usize>().ok()?)?,
                schema => schema.get(&token)?,
            }))
        })
    }
}

impl<'a> Targets<'a> {
    pub(super) fn of(root: &'a Json) -> Self {
        let mut targets = Self { anchors: HashMap::new(), resources: Vec::new() };
        targets.collect(Place::root(root));
        targets
    }

    fn collect(&mut self, place: Place<'a>) {
        match place.schema {
            Json::Array(items) => items.iter().for_each(|item| self.collect(place.part(item))),
            Json::Object(members) => {
                for (key, value) in members {
                    match (key.as_str(), value.as_str()) {
                        ("$anchor" | "$dynamicAnchor", Some(name)) => {
                            self.anchors.entry(name).or_default().push(place);
                        }
                        ("$id", Some(id)) => self.resources.push((id, place.schema)),
                        _ => self.collect(place.part(value)),
                    }
                }
            }
            _ => {}
        }
    }

    /// What `reference`, which stands at `from`, names. It is nothing if nobody here has that name.
    pub(super) fn named(&self, reference: &str, from: Place<'a>) -> Vec<Place<'a>> {
        let (resource, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let is_meant = |id: &str| {
            let id = id.trim_end_matches('#');
            id == resource
                || id.ends_with(&format!("/{resource}"))
                || resource.ends_with(&format!("/{id}"))
        };
        let bases: Vec<&Json> = if resource.is_empty() {
            vec![from.base]
        } else {
            let found = self.resources.iter().filter(|(id, _)| is_meant(id));
            found.map(|(_, schema)| *schema).collect()
        };
        if fragment.is_empty() || fragment.starts_with('/') {
            return bases.into_iter().filter_map(|base| Place::root(base).at(fragment)).collect();
        }
        self.anchors.get(fragment).cloned().unwrap_or_default()
    }
}

/// The reference in a member of a schema, if it is one.
pub(super) fn reference<'a>(key: &str, value: &'a Json) -> Option<&'a str> {
    value.as_str().filter(|_| matches!(key, "$ref" | "$dynamicRef"))
}

/// Whether there is a reference in `schema`.
pub(super) fn refers(schema: &Json) -> bool {
    match schema {
        Json::Array(items) => items.iter().any(refers),
        Json::Object(members) => {
            members.iter().any(|(key, value)| reference(key, value).is_some() || refers(value))
        }
        _ => false,
    }
}

fn names_itself(schema: &Json) -> bool {
    schema.get("$id").is_some_and(Json::is_string)
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let code = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        let decoded = code.filter(|_| *first == b'%');
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
