//! "Did you mean": finds the known name of which the written one is a misspelling.

/// The help line for `written`, if one of `known` is close enough.
pub(super) fn did_you_mean<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest(written, known).map(|name| format!("did you mean `{name}`?"))
}

/// The nearest of `known`: equal except for case and separators, or at most a third of it mistyped.
fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| -> Vec<char> {
        let kept = text.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
        kept.flat_map(char::to_lowercase).collect()
    };
    let written = plain(written);
    let distances = known.into_iter().map(|name| {
        let chars = plain(name);
        (distance(&written, &chars), chars.len().max(written.len()), name)
    });
    let best = distances.min_by_key(|(distance, ..)| *distance);
    let (distance, length, name) = best?;
    (distance * 3 <= length).then_some(name)
}

/// How many insertions, deletions, replacements and swaps of neighbours turn one into the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut above: Option<char> = None;
    for (row, &x) in a.iter().enumerate() {
        let mut line = vec![row + 1];
        let mut left: Option<char> = None;
        for (column, &y) in b.iter().enumerate() {
            let at =
                |line: &[usize], column: usize| line.get(column).copied().unwrap_or(usize::MAX);
            let mut best = (at(&last, column) + usize::from(x != y))
                .min(at(&last, column + 1) + 1)
                .min(at(&line, column) + 1);
            if above == Some(y) && left == Some(x) && column > 0 {
                best = best.min(at(&before, column - 1).saturating_add(1));
            }
            line.push(best);
            left = Some(y);
        }
        before = std::mem::replace(&mut last, line);
        above = Some(x);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_slips_of_the_hand() {
        let distance = |a: &str, b: &str| {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            distance(&chars(a), &chars(b))
        };
        for (a, b, wanted) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("abc", "ab", 1),
            ("kitten", "sitting", 3),
            ("ca", "ac", 1),
            ("xabc", "abcx", 2),
        ] {
            assert_eq!(distance(a, b), wanted, "{a} {b}");
            assert_eq!(distance(b, a), wanted, "{b} {a}");
        }
    }

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let known = ["upstream", "middleware", "match", "name"];
        for (written, wanted) in [
            ("upsteam", Some("upstream")),
            ("Middleware", Some("middleware")),
            ("middle_ware", Some("middleware")),
            ("mtach", Some("match")),
            ("retries", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, known), wanted, "{written}");
        }
        assert_eq!(nearest("x", []), None);
    }
}
