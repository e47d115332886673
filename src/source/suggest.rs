//! "Did you mean": the known name that a typing mistake turned into the one that was written.
//!
//! A file may have thousands of mistakes and thousands of names, so this bounds what one mistake costs.

/// The longest name for which another is proposed, in characters.
const LONGEST: usize = 100;

/// How many names of about the same length are compared with one that was written.
const COMPARED: usize = 300;

/// How many pairs of letters are compared for one name that was written. Only long names reach it before [`COMPARED`].
const LETTERS: usize = 20_000;

/// What separates the words of a name.
const SEPARATORS: [char; 3] = ['_', '-', ' '];

/// The name among `known` that the author of `written` probably meant: it differs only in case and
/// separators, or at most a quarter of it is mistyped (two letters of four or five).
pub fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let mut letters = Vec::new();
    take_letters(&mut letters, written);
    if letters.len() > LONGEST {
        return None;
    }
    let allowed = |length: usize| length.div_ceil(4).max(2).min(length / 2);
    // The lengths tell most of those that are too far.
    let near = |length: usize| length.abs_diff(letters.len()) <= allowed(length.max(letters.len()));
    let candidates = known.into_iter().filter(|name| {
        *name != written && (near(name.len()) || !name.is_ascii() || name.contains(SEPARATORS))
    });
    let (mut others, mut rows) = (Vec::new(), Rows::default());
    let mut best: Option<(&str, usize)> = None;
    for name in candidates.take(COMPARED) {
        take_letters(&mut others, name);
        let allowed = allowed(others.len().max(letters.len()));
        // The first of those that are equally near is taken.
        let most = match best {
            Some((_, 0)) => break,
            Some((_, distance)) => allowed.min(distance - 1),
            None => allowed,
        };
        if near(others.len())
            && let Some(distance) = rows.distance(&letters, &others, most)
        {
            best = Some((name, distance));
        }
        if rows.pairs > LETTERS {
            break;
        }
    }
    best.map(|(name, _)| name)
}

/// The help line for `written`, if one of `known` is similar enough.
pub fn did_you_mean<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    nearest(written, known).map(|name| format!("did you mean `{name}`?"))
}

/// Puts the letters of `name` into `out`, in lower case and without separators.
fn take_letters(out: &mut Vec<char>, name: &str) {
    out.clear();
    let kept = name.chars().filter(|char| !SEPARATORS.contains(char)).take(LONGEST + 1);
    if name.is_ascii() {
        out.extend(kept.map(|char| char.to_ascii_lowercase()));
    } else {
        out.extend(kept.flat_map(char::to_lowercase));
    }
}

/// Rows of the table in which a distance is computed. They are kept from one pair of names to the next.
#[derive(Default)]
struct Rows {
    /// The pairs of letters compared so far.
    pairs: usize,
    row: Vec<usize>,
    above: Vec<usize>,
    older: Vec<usize>,
}

impl Rows {
    /// How many letters of `a` are to be changed, put in, left out or swapped with the next to get `b`, if
    /// that is at most `most`: the optimal string alignment distance.
    #[expect(clippy::indexing_slicing, reason = "each row has a place more than `b` has letters")]
    fn distance(&mut self, a: &[char], b: &[char], most: usize) -> Option<usize> {
        let (a, b) = without_common_ends(a, b);
        if a.len().abs_diff(b.len()) > most {
            return None;
        }
        self.row.clear();
        self.row.extend(0..=b.len());
        for (i, letter) in a.iter().enumerate() {
            self.pairs += b.len();
            std::mem::swap(&mut self.above, &mut self.older);
            std::mem::swap(&mut self.row, &mut self.above);
            self.row.clear();
            self.row.push(i + 1);
            for (j, other) in b.iter().enumerate() {
                let changed = self.above[j] + usize::from(letter != other);
                let mut least = changed.min(self.above[j + 1] + 1).min(self.row[j] + 1);
                if i > 0 && j > 0 && a[i - 1] == *other && b[j - 1] == *letter {
                    least = least.min(self.older[j - 1] + 1);
                }
                self.row.push(least);
            }
            // Two rows on, nothing is less than the least of these.
            if self.row.iter().chain(&self.above).all(|distance| *distance > most) {
                return None;
            }
        }
        self.row.last().copied().filter(|distance| *distance <= most)
    }
}

/// `a` and `b` without what both begin with, and what both then end with.
fn without_common_ends<'a>(mut a: &'a [char], mut b: &'a [char]) -> (&'a [char], &'a [char]) {
    while let ([x, rest_of_a @ ..], [y, rest_of_b @ ..]) = (a, b)
        && x == y
    {
        (a, b) = (rest_of_a, rest_of_b);
    }
    while let ([rest_of_a @ .., x], [rest_of_b @ .., y]) = (a, b)
        && x == y
    {
        (a, b) = (rest_of_a, rest_of_b);
    }
    (a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let known = ["upstream", "middleware", "match", "name", "toJson"];
        for (written, wanted) in [
            ("upsteam", Some("upstream")),
            ("Middleware", Some("middleware")),
            ("middle_ware", Some("middleware")),
            ("middelware", Some("middleware")),
            ("mtach", Some("match")),
            ("toJSON", Some("toJson")),
            ("retries", None),
            ("banana", None),
            ("name", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, known), wanted, "{written}");
        }
        assert_eq!(nearest("x", []), None);
        assert_eq!(nearest("var", ["vars"]), Some("vars"));
        assert_eq!(nearest("ab", ["xy"]), None);
        // The nearest of several, and the first of those that are equally near.
        assert_eq!(nearest("upp1", ["up12", "upp2", "up1", "upq1"]), Some("upp2"));
        assert_eq!(nearest("name", ["name", "names"]), Some("names"));
    }

    #[test]
    fn the_help_names_what_was_meant() {
        assert_eq!(did_you_mean("mtach", ["match"]).unwrap(), "did you mean `match`?");
        assert_eq!(did_you_mean("mtach", ["name"]), None);
    }
    #[test]
    fn the_distance_is_that_of_optimal_alignment() {
        let letters = |text: &str| text.chars().collect::<Vec<_>>();
        let distance =
            |a: &str, b: &str, most| Rows::default().distance(&letters(a), &letters(b), most);
        for (a, b, wanted) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "", 3),
            ("abcd", "acbd", 1),
            ("ca", "abc", 3),
            ("kitten", "sitting", 3),
            ("aabb", "abab", 1),
            ("xaby", "xbay", 1),
        ] {
            assert_eq!(distance(a, b, 9), Some(wanted), "{a} {b}");
            assert_eq!(distance(b, a, wanted), Some(wanted), "{b} {a}");
            assert_eq!(wanted.checked_sub(1).and_then(|most| distance(a, b, most)), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn the_distance_is_that_of_the_reference(a in "[abc]{0,7}", b in "[abc]{0,7}") {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            let distance = Rows::default().distance(&letters(&a), &letters(&b), 9);
            proptest::prop_assert_eq!(distance, Some(strsim::osa_distance(&a, &b)));
        }
    }

    #[test]
    fn very_long_and_very_many_names_cost_little() {
        let long = "a".repeat(60_000);
        assert_eq!(nearest(&long, [&*format!("{long}b")]), None);
        let many: Vec<String> = (0..100_000).map(|number| format!("upstream{number:06}")).collect();
        let found = nearest("upstreem000200", many.iter().map(String::as_str));
        assert_eq!(found, Some("upstream000200"));
    }
}
