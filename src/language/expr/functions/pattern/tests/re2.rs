//! What `tests/tools/google_re2.py` asked RE2: which patterns it takes, and what they match.

use super::super::Pattern;

/// The subjects, then a line for each pattern.
const TABLE: &str = include_str!("re2.jsonl");

/// What RE2 takes and is refused here: a single byte of a character, and a code point that no text has.
const REFUSED: [&str; 2] = [r"\C", r"\x{D800}"];

#[test]
fn every_pattern_is_taken_and_matches_as_in_re2() {
    let mut lines = TABLE.lines();
    let subjects: Vec<String> = serde_json::from_str(lines.next().unwrap()).unwrap();
    let mut different = Vec::new();
    let mut taken = 0;
    for line in lines {
        let (pattern, wanted): (String, Option<String>) = serde_json::from_str(line).unwrap();
        let read = Pattern::new(&pattern);
        if REFUSED.contains(&pattern.as_str()) {
            assert!(wanted.is_some() && read.is_err(), "{pattern}");
            continue;
        }
        let found = read.ok().map(|read| {
            let matches = subjects.iter().map(|subject| read.is_match(subject).unwrap());
            matches.enumerate().fold(0_u64, |found, (n, is)| found | u64::from(is) << n)
        });
        taken += usize::from(found.is_some());
        let wanted = wanted.map(|hex| u64::from_str_radix(&hex, 16).unwrap());
        if found != wanted {
            different.push(format!("{pattern:?}: {found:x?}, in RE2 {wanted:x?}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert!(taken > 1_000, "{taken}");
}
