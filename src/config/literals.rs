//! Takes the literals out of expressions, for operators: a literal may be a secret.

/// Shown in place of a value.
pub(super) const HIDDEN: &str = "(hidden)";

/// Numbers of more characters than this are hidden. A smaller one is a count or a status.
const LONG: usize = 4;

/// `text` with `(hidden)` in place of each text, comment and long number in its expressions (`{{ … }}`).
pub fn without_literals(text: &str) -> String {
    let mut masked = Masked { out: String::with_capacity(text.len()), word: String::new() };
    let mut rest = text;
    while let Some((before, expression)) = rest.split_once("{{") {
        masked.out.push_str(before);
        masked.out.push_str("{{");
        rest = masked.expression(expression);
    }
    masked.out.push_str(rest);
    masked.out
}

/// An expression while it is written again.
struct Masked {
    out: String,
    /// The identifier or number that is not written yet.
    word: String,
}

impl Masked {
    /// Writes the expression at the start of `text`, up to its end, and returns what follows.
    fn expression<'t>(&mut self, text: &'t str) -> &'t str {
        let mut rest = text;
        let mut braces = 0_usize;
        while let Some(next) = rest.chars().next() {
            if next.is_alphanumeric() || next == '_' || (next == '.' && is_number(&self.word)) {
                self.word.push(next);
                rest = after(rest, next);
                continue;
            }
            let raw = self.word.eq_ignore_ascii_case("r") || self.word.eq_ignore_ascii_case("br");
            self.end_word();
            if braces == 0
                && let Some(rest) = rest.strip_prefix("}}")
            {
                self.out.push_str("}}");
                return rest;
            }
            if matches!(next, '"' | '\'') {
                self.out.push_str("'(hidden)'");
                rest = after_literal(rest, raw);
            } else if rest.starts_with("//") {
                self.out.push_str("// (hidden)");
                rest = rest.find('\n').and_then(|end| rest.get(end..)).unwrap_or_default();
            } else {
                match next {
                    '{' => braces += 1,
                    '}' => braces = braces.saturating_sub(1),
                    _ => {}
                }
                self.out.push(next);
                rest = after(rest, next);
            }
        }
        self.end_word();
        rest
    }

    fn end_word(&mut self) {
        let hides = is_number(&self.word) && self.word.len() > LONG;
        self.out.push_str(if hides { HIDDEN } else { &self.word });
        self.word.clear();
    }
}

fn is_number(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit())
}

fn after(text: &str, first: char) -> &str {
    text.get(first.len_utf8()..).unwrap_or_default()
}

/// What follows the literal at the start of `text`. Nothing if it has no end.
fn after_literal(text: &str, raw: bool) -> &str {
    let quote = text.get(..1).unwrap_or_default();
    let triple = quote.repeat(3);
    let quote = if text.starts_with(&triple) { triple.as_str() } else { quote };
    let mut rest = text.get(quote.len()..).unwrap_or_default();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(quote) {
            return after;
        }
        let escaped = usize::from(rest.starts_with('\\') && !raw);
        let skipped: usize = rest.chars().take(1 + escaped).map(char::len_utf8).sum();
        rest = rest.get(skipped..).unwrap_or_default();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_lose_their_literals() {
        for (written, wanted) in [
            ("{{ a.b['s3'] == 1 }}", "{{ a.b['(hidden)'] == 1 }}"),
            ("{{ 'it\\'s s3' + x }}", "{{ '(hidden)' + x }}"),
            ("{{ r'\\' + x + b\"s3\" }}", "{{ r'(hidden)' + x + b'(hidden)' }}"),
            ("{{ \'\'\'a'b s3\'\'\' + \"\"\"s3\"\"\" }}", "{{ '(hidden)' + '(hidden)' }}"),
            ("{{ x == 1234 || x == 12345 }}", "{{ x == 1234 || x == (hidden) }}"),
            ("{{ x == 0xdeadbeef || y1 < 0.25 }}", "{{ x == (hidden) || y1 < 0.25 }}"),
            ("{{ x // s3 }}", "{{ x // (hidden)"),
            ("{{ x // s3\n + y }}", "{{ x // (hidden)\n + y }}"),
            (
                "{{ {'a': {'b': 's3'}} + 's3' }}",
                "{{ {'(hidden)': {'(hidden)': '(hidden)'}} + '(hidden)' }}",
            ),
            ("{{ 'é' + 'never ended s3", "{{ '(hidden)' + '(hidden)'"),
            (
                "the author's: {{ x + '}}s3' }}, {{ 's3' }}s",
                "the author's: {{ x + '(hidden)' }}, {{ '(hidden)' }}s",
            ),
        ] {
            assert_eq!(without_literals(written), wanted, "{written}");
        }
    }
}
