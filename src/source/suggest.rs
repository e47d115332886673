//! "Did you mean": the known name that a typing mistake turned into the one that was written.

/// The name among `known` that the author of `written` probably meant: it differs only in case and
/// separators, or at most a quarter of it is mistyped (two letters of four or five).
pub fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |text: &str| -> String {
        let kept = text.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
        kept.flat_map(char::to_lowercase).collect()
    };
    let seen = plain(written);
    let letters = seen.chars().count();
    let measured = known.into_iter().filter(|name| *name != written).filter_map(|name| {
        // The lengths tell most of those that are too far, so that many mistakes among many names cost little.
        let allowed = |length: usize| length.div_ceil(4).max(2).min(length / 2);
        let near = |length: usize| length.abs_diff(letters) <= allowed(length.max(letters));
        if !near(name.len()) && name.is_ascii() && !name.contains(['_', '-', ' ']) {
            return None;
        }
        let name_plain = plain(name);
        let length = letters.max(name_plain.chars().count());
        Some((strsim::osa_distance(&seen, &name_plain), allowed(length), name))
    });
    let (distance, allowed, name) = measured.min_by_key(|(distance, ..)| *distance)?;
    (distance <= allowed).then_some(name)
}

/// The help line for `written`, if one of `known` is similar enough.
pub fn did_you_mean<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    nearest(written, known).map(|name| format!("did you mean `{name}`?"))
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
    }

    #[test]
    fn the_help_names_what_was_meant() {
        assert_eq!(did_you_mean("mtach", ["match"]).unwrap(), "did you mean `match`?");
        assert_eq!(did_you_mean("mtach", ["name"]), None);
    }
}
