//! Cuts program text (PHP, Rust) into words, numbers, strings and marks. Comments are left out.

use crate::source::Span;

/// A piece of a program.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    Word(String),
    Number(f64),
    Text(String),
    Mark(char),
}

/// A piece and its place.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) piece: Piece,
    pub(super) span: Span,
}

impl Token {
    pub(super) fn is(&self, mark: char) -> bool {
        self.piece == Piece::Mark(mark)
    }

    pub(super) fn word(&self) -> Option<&str> {
        match &self.piece {
            Piece::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self.piece {
            Piece::Number(number) => Some(number),
            _ => None,
        }
    }
}

/// How a language writes what others write differently.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Whether `#` begins a comment, unless `[` follows.
    pub(super) hash: bool,
    /// Whether `'` begins a string.
    pub(super) single: bool,
}

/// The tokens of `text`, all of which is at `whole`.
pub(super) fn tokens(whole: Span, text: &str, style: Style) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..)
        && let Some(first) = rest.chars().next()
    {
        let comment =
            rest.starts_with("//") || style.hash && first == '#' && !rest.starts_with("#[");
        let length = if comment {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first.is_whitespace() {
            first.len_utf8()
        } else {
            let (piece, length) = piece(rest, first, style);
            let start = u32::try_from(at).unwrap_or(u32::MAX);
            let end = u32::try_from(at + length).unwrap_or(u32::MAX);
            tokens.push(Token { piece, span: Span { start, end, ..whole } });
            length
        };
        at += length.max(1);
    }
    tokens
}

/// The piece at the beginning of `rest`, and its length.
fn piece(rest: &str, first: char, style: Style) -> (Piece, usize) {
    let end = |holds: &dyn Fn(char) -> bool| rest.find(|c| !holds(c)).unwrap_or(rest.len());
    if first.is_ascii_digit() {
        let mut length = end(&|c| c.is_ascii_alphanumeric() || c == '_');
        let fraction = rest.get(length..).and_then(|rest| rest.strip_prefix('.'));
        if let Some(fraction) =
            fraction.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            length += 1 + fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
        }
        let written = rest.get(..length).unwrap_or_default().replace('_', "");
        let digits = written.find(|c: char| !c.is_ascii_digit() && c != '.');
        let digits = written.get(..digits.unwrap_or(written.len())).unwrap_or_default();
        return (Piece::Number(digits.parse().unwrap_or(f64::NAN)), length);
    }
    if first.is_alphabetic() || first == '_' {
        let length = end(&|c| c.is_alphanumeric() || c == '_');
        return (Piece::Word(rest.get(..length).unwrap_or_default().to_owned()), length);
    }
    if first == '"' || first == '\'' && style.single {
        let mut escaped = false;
        for (at, c) in rest.char_indices().skip(1) {
            if c == first && !escaped {
                let inner = rest.get(1..at).unwrap_or_default();
                return (Piece::Text(inner.to_owned()), at + 1);
            }
            escaped = c == '\\' && !escaped;
        }
        return (Piece::Mark(first), rest.len());
    }
    (Piece::Mark(first), first.len_utf8())
}
