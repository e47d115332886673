//! Compares a Result with the expected one.
//!
//! The rule of the corpus: the value of a success must be equal as a whole. Of a failure, each expected
//! member must be present and equal; an expected `null` also matches an absent member. The same rule holds
//! for `previous`, and for the Results in the `details` of a `Gather`'s failure.

use std::fmt;

use serde_json::{Map, Value as Json};

use crate::language::code::system::GATHER_COMPLETION_UNMET;

/// A place where the Result is not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The place, as a JSON pointer (RFC 6901).
    pub pointer: String,
    /// What was expected there.
    pub expected: String,
    /// What is there.
    pub got: String,
}

struct Judge {
    pointer: String,
    found: Vec<Difference>,
}

/// The places where the Result `got` is not as `expected`.
pub fn differences(expected: &Json, got: &Json) -> Vec<Difference> {
    let mut judge = Judge { pointer: String::new(), found: Vec::new() };
    judge.result(expected, got);
    judge.found
}

impl Judge {
    fn result(&mut self, expected: &Json, got: &Json) {
        let (Json::Object(wanted), Json::Object(_)) = (expected, got) else {
            return self.value(expected, got);
        };
        for (name, expected) in wanted {
            let got = got.get(name);
            self.at(name, |judge| match (name.as_str(), got) {
                (_, None) if expected.is_null() => {}
                (_, None) => judge.differ(Some(expected), None),
                ("previous", Some(got)) => judge.result(expected, got),
                ("details", Some(got)) if unmet(wanted) => judge.evidence(expected, got),
                (_, Some(got)) => judge.value(expected, got),
            });
        }
    }

    /// The `details` of a `Gather` whose completion was not met: `failures` lists Results.
    fn evidence(&mut self, expected: &Json, got: &Json) {
        self.members(expected, got, |judge, name, expected, got| match name {
            "failures" => judge.items(expected, got, |judge, expected, got| {
                judge.members(expected, got, |judge, name, expected, got| match name {
                    "result" => judge.result(expected, got),
                    _ => judge.value(expected, got),
                });
            }),
            _ => judge.value(expected, got),
        });
    }

    /// Deep equality in the data model: numbers by value, members in any order.
    fn value(&mut self, expected: &Json, got: &Json) {
        match (expected, got) {
            (Json::Number(a), Json::Number(b)) if a.as_f64() == b.as_f64() => {}
            (Json::Array(_), Json::Array(_)) => self.items(expected, got, Self::value),
            (Json::Object(_), Json::Object(_)) => {
                self.members(expected, got, |judge, _, expected, got| {
                    judge.value(expected, got);
                });
            }
            _ if expected == got => {}
            _ => self.differ(Some(expected), Some(got)),
        }
    }

    /// Compares each member with `each`. Both sides must have the same members.
    fn members(
        &mut self,
        expected: &Json,
        got: &Json,
        each: impl Fn(&mut Self, &str, &Json, &Json),
    ) {
        let (Json::Object(wanted), Json::Object(there)) = (expected, got) else {
            return self.value(expected, got);
        };
        for (name, expected) in wanted {
            self.at(name, |judge| match there.get(name) {
                Some(got) => each(judge, name, expected, got),
                None => judge.differ(Some(expected), None),
            });
        }
        for (name, got) in there.iter().filter(|(name, _)| !wanted.contains_key(*name)) {
            self.at(name, |judge| judge.differ(None, Some(got)));
        }
    }

    /// Compares each element with `each`. Both sides must have equally many.
    fn items(&mut self, expected: &Json, got: &Json, each: impl Fn(&mut Self, &Json, &Json)) {
        let (Json::Array(wanted), Json::Array(there)) = (expected, got) else {
            return self.value(expected, got);
        };
        for index in 0..wanted.len().max(there.len()) {
            let pair = (wanted.get(index), there.get(index));
            self.at(&index.to_string(), |judge| match pair {
                (Some(expected), Some(got)) => each(judge, expected, got),
                (expected, got) => judge.differ(expected, got),
            });
        }
    }

    /// Calls `within` for the member or element of this name.
    fn at(&mut self, name: &str, within: impl FnOnce(&mut Self)) {
        let length = self.pointer.len();
        self.pointer.push('/');
        self.pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        within(self);
        self.pointer.truncate(length);
    }

    fn differ(&mut self, expected: Option<&Json>, got: Option<&Json>) {
        let shown = |value: Option<&Json>| value.map_or_else(|| "nothing".into(), Json::to_string);
        self.found.push(Difference {
            pointer: self.pointer.clone(),
            expected: shown(expected),
            got: shown(got),
        });
    }
}

/// Whether this is the failure of a `Gather` whose completion was not met.
fn unmet(result: &Map<String, Json>) -> bool {
    result.get("code").and_then(Json::as_str) == Some(GATHER_COMPLETION_UNMET)
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pointer, expected, got } = self;
        if !pointer.is_empty() {
            writeln!(f, "  at {pointer}")?;
        }
        write!(f, "  expected {expected}\n  got      {got}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Where they differ, sorted: the order of members has no meaning.
    fn pointers(expected: &Json, got: &Json) -> Vec<String> {
        let found = differences(expected, got).into_iter();
        let mut pointers: Vec<_> = found.map(|difference| difference.pointer).collect();
        pointers.sort();
        pointers
    }

    fn same(expected: &Json, got: &Json) {
        assert_eq!(differences(expected, got), []);
    }

    #[test]
    fn a_success_is_equal_whole_and_numbers_by_value() {
        let success = |value: Json| json!({ "type": "success", "value": value });
        same(&success(json!({ "a": 5, "b": [1.0] })), &success(json!({ "b": [1], "a": 5.0 })));
        assert_eq!(
            pointers(
                &success(json!({ "a": 5, "b": [1, 2], "c": null, "x/y~": 1 })),
                &success(json!({ "a": 6, "b": [1], "d": 1, "x/y~": "1" })),
            ),
            ["/value/a", "/value/b/1", "/value/c", "/value/d", "/value/x~1y~0"]
        );
        assert_eq!(
            pointers(&success(json!(1)), &json!({ "type": "error", "code": "A" })),
            ["/type", "/value"]
        );
    }

    #[test]
    fn a_failure_must_have_what_is_expected() {
        let got = json!({
            "type": "error", "code": "A", "message": "m", "details": { "x": 1 },
            "previous": { "type": "error", "code": "B", "message": "n" },
        });
        same(&json!({ "type": "error", "code": "A" }), &got);
        same(
            &json!({ "type": "error", "code": "A", "retryable": null, "previous": { "code": "B" } }),
            &got,
        );
        assert_eq!(
            pointers(
                &json!({
                    "type": "error", "code": "A", "message": null, "retryable": false, "details": {},
                    "previous": { "code": "C", "previous": { "code": "D" } },
                }),
                &got
            ),
            ["/details/x", "/message", "/previous/code", "/previous/previous", "/retryable"]
        );
        assert_eq!(pointers(&json!({ "previous": null }), &got), ["/previous"]);
    }

    #[test]
    fn the_evidence_of_a_gather_is_made_of_results() {
        let unmet = |failures: Json, count: u32| {
            json!({
                "type": "error", "code": GATHER_COMPLETION_UNMET,
                "details": { "failures": failures, "failureCount": count },
            })
        };
        let got = unmet(
            json!([{ "index": 1, "result": { "type": "error", "code": "A", "message": "m" } }]),
            1,
        );
        same(&unmet(json!([{ "index": 1, "result": { "type": "error", "code": "A" } }]), 1), &got);
        assert_eq!(
            pointers(
                &unmet(json!([{ "index": 2, "result": { "type": "error", "code": "B" } }, {}]), 2),
                &got
            ),
            [
                "/details/failureCount",
                "/details/failures/0/index",
                "/details/failures/0/result/code",
                "/details/failures/1"
            ]
        );
        // In other failures, `failures` is a member like any other.
        let other = |result: Json| json!({ "code": "A", "details": { "failures": [{ "result": result }] } });
        assert_eq!(
            pointers(&other(json!({})), &other(json!({ "message": "m" }))),
            ["/details/failures/0/result/message"]
        );
    }

    #[test]
    fn a_difference_names_its_place_and_both_sides() {
        let found = differences(
            &json!({ "type": "success", "value": [1, "a"] }),
            &json!({ "type": "success", "value": [1] }),
        );
        assert_eq!(found[0].to_string(), "  at /value/1\n  expected \"a\"\n  got      nothing");
    }
}
