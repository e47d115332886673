//! Finds where a pair of delimiters ends ("The embedding").
//!
//! A string is an expression when one `{{ }}` pair spans all of it. CEL writes maps with braces, and a CEL
//! string may hold any text. So a `}}` closes the pair only if it closes no CEL brace and is not inside a CEL
//! string or comment.

/// Whether the pair that opens before `body` closes within it. Then the string that it was taken from holds
/// more than one pair, or text beside one, and is a literal.
pub(super) fn closes_within(body: &str) -> bool {
    let mut rest = body;
    let mut depth = 0_usize;
    loop {
        let word =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, after) = rest.split_at_checked(word).unwrap_or((rest, ""));
        rest = skip_string(after, matches!(word, "r" | "R" | "br" | "bR" | "Br" | "BR"));
        let mut chars = rest.chars();
        match chars.next() {
            // The end. Or a quote that nothing closes, since a complete string would have been skipped.
            None | Some('"' | '\'') => return false,
            Some('{') => depth += 1,
            Some('}') if depth > 0 => depth -= 1,
            Some('}') if chars.as_str().starts_with('}') => return true,
            Some('/') if chars.as_str().starts_with('/') => {
                chars = chars.as_str().split_once('\n').map_or("", |(_, rest)| rest).chars();
            }
            Some(_) => {}
        }
        rest = chars.as_str();
    }
}

/// The text after the string literal that `text` begins with, or all of it. An unclosed one is not skipped.
fn skip_string(text: &str, raw: bool) -> &str {
    let quotes = ["\"\"\"", "'''", "\"", "'"];
    let Some(quote) = quotes.into_iter().find(|quote| text.starts_with(quote)) else {
        return text;
    };
    let mut rest = text.strip_prefix(quote).unwrap_or_default();
    loop {
        if let Some(after) = rest.strip_prefix(quote) {
            return after;
        }
        let mut chars = rest.chars();
        match chars.next() {
            None => return text,
            Some('\\') if !raw => {
                chars.next();
            }
            Some(_) => {}
        }
        rest = chars.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::super::Program;

    #[test]
    fn an_expression_spans_the_whole_value() {
        for (text, body) in [
            ("{{ vars.x }}", "vars.x"),
            ("{{vars.x}}", "vars.x"),
            ("{{\n\tvars.x\n}}", "vars.x"),
            ("{{}}", ""),
            ("{{ {'a': {'b': 1}} }}", "{'a': {'b': 1}}"),
            ("{{{'a': {'b': 1}}}}", "{'a': {'b': 1}}"),
            ("{{ '}} {{' }}", "'}} {{'"),
            ("{{ \"}}\" + '}}' }}", "\"}}\" + '}}'"),
            (r"{{ r'\' + '}}' }}", r"r'\' + '}}'"),
            (r"{{ '\'}}' }}", r"'\'}}'"),
            (r"{{ bR'\' + '}}' }}", r"bR'\' + '}}'"),
            (r"{{ bar'\'}}' }}", r"bar'\'}}'"),
            ("{{ '''it's }}''' }}", "'''it's }}'''"),
            ("{{ 1 // not }} yet\n }}", "1 // not }} yet"),
            ("{{ a } b }}", "a } b"),
            ("{{ {'a': 1}} }}", "{'a': 1}}"),
            ("{{ it's }}", "it's"),
            ("{{ vars['é}}'] }}", "vars['é}}']"),
        ] {
            assert_eq!(Program::body(text), Some(body), "{text}");
        }
    }

    #[test]
    fn any_other_string_is_a_literal() {
        for text in [
            "",
            "vars.x",
            "{{",
            "}}",
            "{{}",
            "{ vars.x }",
            "{{ vars.x }",
            " {{ vars.x }}",
            "{{ vars.x }} ",
            "a {{ vars.x }}",
            "{{ a }} {{ b }}",
            "{{ a }}{{ b }}",
            "{{ a }} and {{ b }}",
            "{{a}}}}",
            "{{ {'a': 1} }} and {{ {'b': 2} }}",
            "{{{",
        ] {
            assert_eq!(Program::body(text), None, "{text:?}");
        }
    }
}
