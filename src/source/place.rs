//! Turns bytes into what a person counts: lines, columns, and the characters inside a string, whatever
//! escapes it has.

use std::sync::Arc;

use super::{Diagnostic, File, Format, Sources, Span};

/// How many bytes of a file lie between two places whose characters were counted.
const STRIDE: usize = 256;

impl File {
    pub(super) fn new(name: &str, text: Arc<str>, format: Option<Format>) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(ends).collect();
        let mut counted = 0;
        // One more than there are strides: a place may be the end of the text.
        let chars = std::iter::once(0).chain(text.as_bytes().chunks(STRIDE).map(|chunk| {
            counted += char_starts(chunk);
            counted
        }));
        let chars = chars.collect();
        Self { name: name.into(), text, format, lines, chars }
    }

    /// The number of characters before `byte`, in about the same time wherever that is.
    fn chars_before(&self, byte: usize) -> usize {
        let stride = byte / STRIDE;
        let rest = self.text.as_bytes().get(stride * STRIDE..byte).unwrap_or_default();
        self.chars.get(stride).copied().unwrap_or_default() + char_starts(rest)
    }

    /// The index of the line with `byte`, and the number of characters before it there.
    pub(super) fn locate(&self, byte: u32) -> (usize, usize) {
        let byte = usize::try_from(byte).unwrap_or(usize::MAX).min(self.text.len());
        let byte = self.text.floor_char_boundary(byte);
        let line = self.lines.partition_point(|start| *start <= byte).saturating_sub(1);
        let start = self.lines.get(line).copied().unwrap_or_default();
        let marks = self.text.get(start..byte).unwrap_or_default();
        let marks = marks.len() - marks.trim_start_matches('\u{feff}').len();
        (line, self.chars_before(byte) - self.chars_before(start + marks))
    }

    /// The text of a line, without its line end, and the byte at which it starts.
    pub(super) fn line(&self, line: usize) -> (&str, usize) {
        let start = self.lines.get(line).copied().unwrap_or(self.text.len());
        let end = self.lines.get(line + 1).copied().unwrap_or(self.text.len());
        let text = self.text.get(start..end).unwrap_or_default();
        let marked = text.trim_end_matches(['\n', '\r']);
        let text = marked.trim_start_matches('\u{feff}');
        (text, start + marked.len() - text.len())
    }

    /// If `span` is the text of a YAML literal block (`|`): its indentation, and the number of blank lines
    /// between the header and the text.
    fn literal_header(&self, span: Span) -> Option<(usize, usize)> {
        if self.format != Some(Format::Yaml) {
            return None;
        }
        let before = self.text.get(..usize::try_from(span.start).ok()?)?;
        let indent = before.len() - before.trim_end_matches(' ').len();
        let header = before.trim_end();
        let between = before.get(header.len()..)?;
        let header = header.strip_suffix(['-', '+']).unwrap_or(header);
        let blank = between.matches('\n').count().checked_sub(1)?;
        header.ends_with('|').then_some((indent, blank))
    }

    fn slice(&self, span: Span) -> &str {
        let at = |byte| usize::try_from(byte).unwrap_or(usize::MAX);
        self.text.get(at(span.start)..at(span.end)).unwrap_or_default()
    }
}

impl Sources {
    /// Line and column (1-based, in characters) of a span's start.
    pub fn position(&self, span: Span) -> (usize, usize) {
        let (line, column) = self.file(span.source).map_or((0, 0), |file| file.locate(span.start));
        (line + 1, column + 1)
    }

    /// Line and column (1-based, in characters) just after a span's end.
    pub fn end_position(&self, span: Span) -> (usize, usize) {
        self.position(Span { start: span.end, ..span })
    }

    /// The place of the character `offset` of the string value at `span`. It is exact if the string is on one
    /// line or in a literal block; else it is the whole string.
    pub fn inside(&self, span: Span, offset: usize) -> Span {
        let Some(file) = self.file(span.source) else {
            return span;
        };
        let raw = file.slice(span);
        let (at, len) = match (file.format, file.literal_header(span)) {
            (None, _) => Some(plain(raw, offset)),
            (Some(_), Some((indent, blank))) => literal(raw, indent, offset.checked_sub(blank)),
            (Some(_), None) => byte_of(raw, offset),
        }
        .unwrap_or((0, raw.len()));
        let to = |byte| u32::try_from(byte).unwrap_or(u32::MAX);
        let start = span.start.saturating_add(to(at));
        let end = start.saturating_add(to(len));
        Span { start, end, ..span }
    }

    /// The place of `diagnostic`, with its offset resolved.
    pub fn place(&self, diagnostic: &Diagnostic) -> Span {
        match diagnostic.offset {
            Some(offset) => self.inside(diagnostic.span, offset),
            None => diagnostic.span,
        }
    }
}

/// The number of characters that begin in these bytes of a text in UTF-8.
fn char_starts(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// The byte and the length in bytes of the character `offset` of a text that is not a document. The end of
/// the text if it has fewer characters.
fn plain(text: &str, offset: usize) -> (usize, usize) {
    let found = text.char_indices().nth(offset);
    found.map_or((text.len(), 0), |(at, char)| (at, char.len_utf8()))
}

/// Where the character `offset` of a string's value is in the written string `raw`: the byte, and the number
/// of bytes that the character takes there.
fn byte_of(raw: &str, offset: usize) -> Option<(usize, usize)> {
    match raw.chars().next()? {
        '"' => quoted(raw, offset, escape),
        '\'' => quoted(raw, offset, |rest| if rest.starts_with("''") { 2 } else { 0 }),
        _ => walk(raw, 0, offset, |_| 0),
    }
}

fn quoted(raw: &str, offset: usize, unit: impl Fn(&str) -> usize) -> Option<(usize, usize)> {
    walk(raw.get(..raw.len().checked_sub(1)?)?, 1, offset, unit)
}

/// Steps over `offset` characters of `raw`, starting at byte `at`. `unit` gives the length of an escape.
fn walk(
    raw: &str,
    mut at: usize,
    offset: usize,
    unit: impl Fn(&str) -> usize,
) -> Option<(usize, usize)> {
    let mut left = offset;
    loop {
        let rest = raw.get(at..)?;
        let next = rest.chars().next();
        if matches!(next, Some('\n' | '\r')) {
            return None;
        }
        let len = match unit(rest) {
            0 => next.map_or(0, char::len_utf8),
            escaped => escaped,
        };
        if left == 0 {
            return Some((at, len));
        }
        next?;
        left -= 1;
        at += len;
    }
}

/// The length of the escape at the start of `rest`. Two `\u` escapes may make one character.
fn escape(rest: &str) -> usize {
    if !rest.starts_with('\\') {
        return 0;
    }
    match rest.chars().nth(1) {
        Some('x') => 4,
        Some('U') => 10,
        Some('u') => {
            let high = rest
                .get(2..6)
                .and_then(|digits| u16::from_str_radix(digits, 16).ok())
                .is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
            if high { 12 } else { 6 }
        }
        Some(escaped) => 1 + escaped.len_utf8(),
        None => 1,
    }
}

/// The same as [`byte_of`], for a literal block from its first text on. Each line is indented by `indent`
/// spaces.
fn literal(raw: &str, indent: usize, offset: Option<usize>) -> Option<(usize, usize)> {
    let (mut left, mut at) = (offset?, 0);
    for (index, line) in raw.split_inclusive('\n').enumerate() {
        let text = line.trim_end_matches(['\n', '\r']);
        let spaces = text.len() - text.trim_start_matches(' ').len();
        let skip = if index == 0 { 0 } else { indent.min(spaces) };
        let content = text.get(skip..)?;
        let count = content.chars().count();
        if left < count {
            let (byte, char) = content.char_indices().nth(left)?;
            return Some((at + skip + byte, char.len_utf8()));
        }
        if left == count {
            return Some((at + text.len(), 0));
        }
        left -= count + 1;
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Node};
    use super::*;

    fn string(sources: &mut Sources, text: &str, format: Format) -> (Span, String) {
        let node = sources.parse("f", text, format).unwrap();
        let value = node.get("a").unwrap().clone();
        let Node { span, kind: Kind::String(text) } = value else { panic!("no string: {value:?}") };
        (span, text.to_string())
    }

    /// Asserts that each character of the value is found where it was written.
    fn each_is_found(text: &str, format: Format, written: impl Fn(char) -> String) {
        let mut sources = Sources::default();
        let (span, value) = string(&mut sources, text, format);
        for (offset, char) in value.chars().enumerate().filter(|(_, char)| *char != '\n') {
            let place = sources.inside(span, offset);
            let raw = text.get(place.start as usize..place.end as usize);
            assert_eq!(raw, Some(written(char).as_str()), "character {offset} of {value:?}");
        }
    }

    #[test]
    fn a_character_of_a_json_string_is_found_after_escapes() {
        let text = r#"{"a": "x\"é\u00e4\ud83d\ude00\\y"}"#;
        each_is_found(text, Format::Json, |char| match char {
            '"' => r#"\""#.into(),
            'ä' => r"\u00e4".into(),
            '😀' => r"\ud83d\ude00".into(),
            '\\' => r"\\".into(),
            other => other.into(),
        });
    }

    #[test]
    fn a_character_of_a_yaml_string_is_found_in_each_style_of_one_line() {
        each_is_found("a: plain text\n", Format::Yaml, Into::into);
        each_is_found("a: 'it''s'\n", Format::Yaml, |c| match c {
            '\'' => "''".into(),
            other => other.into(),
        });
        each_is_found("a: \"\\x41b\\U0001f600c\"\n", Format::Yaml, |c| match c {
            'A' => "\\x41".into(),
            '😀' => "\\U0001f600".into(),
            other => other.into(),
        });
        each_is_found("a: |-\n\n\n  one\n", Format::Yaml, Into::into);
        each_is_found("a: |\n   one\n     two\n\n   three\n", Format::Yaml, |c| match c {
            '\n' => String::new(),
            other => other.into(),
        });
    }

    #[test]
    fn a_character_of_a_folded_string_is_the_whole_string() {
        let text = "a: >\n  one\n  two\n";
        let mut sources = Sources::default();
        let (span, _) = string(&mut sources, text, Format::Yaml);
        assert_eq!(sources.inside(span, 5), span);
    }

    #[test]
    fn a_text_that_is_not_a_document_is_counted_in_characters_across_lines() {
        let mut sources = Sources::default();
        let text = "\"é\"\n+ b";
        let span = sources.keep("t", text);
        for (offset, (at, char)) in text.char_indices().enumerate() {
            let place = sources.inside(span, offset);
            let found = text.get(place.start as usize..place.end as usize);
            assert_eq!(found, text.get(at..at + char.len_utf8()), "{offset}");
        }
        assert_eq!(sources.position(sources.inside(span, 6)), (2, 3));
        let end = sources.inside(span, 100);
        assert_eq!((end.start, end.end), (span.end, span.end));
    }

    #[test]
    fn columns_count_characters() {
        let mut sources = Sources::default();
        let text = "{\n  \"ä😀\": true}";
        let node = sources.parse("f", text, Format::Json).unwrap();
        let value = node.get("ä😀").unwrap();
        assert_eq!(sources.position(value.span), (2, 9));
        assert_eq!(sources.end_position(value.span), (2, 13));
    }
}
