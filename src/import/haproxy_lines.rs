//! `HAProxy`'s own syntax: sections of lines of words.

use crate::source::Span;

/// Words that begin a section.
const SECTIONS: [&str; 12] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "resolvers",
    "peers",
    "cache",
    "program",
    "userlist",
    "mailers",
    "ring",
];

/// A section: its first word, its name, and its lines.
#[derive(Debug)]
pub(super) struct Section<'t> {
    pub(super) kind: &'t str,
    pub(super) name: &'t str,
    pub(super) span: Span,
    pub(super) lines: Vec<Line<'t>>,
}

/// A line of a section.
#[derive(Debug)]
pub(super) struct Line<'t> {
    pub(super) words: Vec<&'t str>,
    pub(super) span: Span,
}

impl<'t> Line<'t> {
    pub(super) fn word(&self, place: usize) -> &'t str {
        self.words.get(place).copied().unwrap_or_default()
    }
}

/// Cuts `text`, all of which is at `whole`, into sections. Lines before the first belong to none.
pub(super) fn sections(whole: Span, text: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut at = 0_usize;
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start().len();
        let start = u32::try_from(at + indent).unwrap_or(u32::MAX);
        at += line.len();
        let words = words(line);
        let Some(first) = words.first() else { continue };
        let span = Span { start, end: start.saturating_add(1).min(whole.end), ..whole };
        if SECTIONS.contains(first) {
            let name = words.get(1).copied().unwrap_or_default();
            sections.push(Section { kind: first, name, span, lines: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            section.lines.push(Line { words, span });
        }
    }
    sections
}

/// The words of a line, without quotes around them and without a comment.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        if first == '#' {
            break;
        }
        let quote = matches!(first, '"' | '\'').then_some(first);
        let body = rest.get(quote.map_or(0, char::len_utf8)..).unwrap_or_default();
        let end = match quote {
            Some(quote) => body.find(quote),
            None => body.find(char::is_whitespace),
        };
        let (word, after) = body.split_at_checked(end.unwrap_or(body.len())).unwrap_or((body, ""));
        words.push(word);
        rest = after.strip_prefix(['"', '\'']).unwrap_or(after).trim_start();
    }
    words
}
