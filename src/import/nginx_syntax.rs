//! NGINX's own syntax: words, blocks in braces, comments.

use super::read::{Reading, short};
use crate::source::Span;

/// How deep blocks may nest.
const MAX_DEPTH: usize = 50;

/// A directive: its words, and its block if it has one.
#[derive(Debug)]
pub(super) struct Directive {
    pub(super) words: Vec<String>,
    pub(super) block: Option<Vec<Self>>,
    pub(super) span: Span,
}

impl Directive {
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The word at this place; 0 is the directive's name.
    pub(super) fn word(&self, place: usize) -> &str {
        self.words.get(place).map_or("", String::as_str)
    }

    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }
}

/// What is read at a place.
enum Token {
    Word(String),
    Open,
    Close,
    End,
}

/// Cuts a text into tokens.
struct Tokens<'t> {
    text: &'t str,
    at: usize,
}

impl Tokens<'_> {
    /// The next token, and where it begins. `Err` for a quote that does not close.
    fn next(&mut self) -> Option<(usize, Result<Token, ()>)> {
        loop {
            let rest = self.text.get(self.at..)?;
            let c = rest.chars().next()?;
            if c.is_whitespace() {
                self.at += c.len_utf8();
            } else if c == '#' {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else {
                break;
            }
        }
        let start = self.at;
        let rest = self.text.get(start..)?;
        let token = match rest.chars().next()? {
            '{' => Ok(Token::Open),
            '}' => Ok(Token::Close),
            ';' => Ok(Token::End),
            quote @ ('"' | '\'') => {
                let (word, length) = quoted(rest, quote);
                self.at += length.unwrap_or(rest.len());
                return Some((start, length.map(|_| Token::Word(word)).ok_or(())));
            }
            _ => {
                let end = bare(rest);
                self.at += end;
                let word = rest.get(..end).unwrap_or_default().replace('\\', "");
                return Some((start, Ok(Token::Word(word))));
            }
        };
        self.at += 1;
        Some((start, token))
    }
}

/// The text between quotes, and the bytes that it takes with them. `None` if it does not close.
fn quoted(rest: &str, quote: char) -> (String, Option<usize>) {
    let mut word = String::new();
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            word.push(c);
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return (word, Some(at + 1));
        } else {
            word.push(c);
        }
    }
    (word, None)
}

/// The length of the bare word at the beginning of `rest`. `${` does not open a block.
fn bare(rest: &str) -> usize {
    let mut last = ' ';
    let mut variable = false;
    for (at, c) in rest.char_indices() {
        let opens = c == '{' && last == '$';
        variable |= opens;
        if c == '}' && variable {
            variable = false;
        } else if !opens && last != '\\' && (c.is_whitespace() || "{};".contains(c)) {
            return at;
        }
        last = c;
    }
    rest.len()
}

/// Parses `text`, all of which is at `whole`.
pub(super) fn parse(reading: &Reading<'_>, whole: Span, text: &str) -> Vec<Directive> {
    let span = |start: usize| {
        let start = u32::try_from(start).unwrap_or(u32::MAX);
        Span { start, end: start.saturating_add(1).min(whole.end), ..whole }
    };
    let mut tokens = Tokens { text, at: 0 };
    let mut open: Vec<(Directive, Vec<Directive>)> = Vec::new();
    let mut done = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut begun = 0;
    while let Some((start, token)) = tokens.next() {
        if words.is_empty() {
            begun = start;
        }
        match token {
            Err(()) => {
                reading.wrong(span(start), "this quote does not close");
                return Vec::new();
            }
            Ok(Token::Word(word)) => words.push(word),
            Ok(Token::End) => {
                if !words.is_empty() {
                    let words = std::mem::take(&mut words);
                    done.push(Directive { words, block: None, span: span(begun) });
                }
            }
            Ok(Token::Open) => {
                if open.len() >= MAX_DEPTH {
                    reading.wrong(span(start), format!("blocks nest deeper than {MAX_DEPTH}"));
                    return Vec::new();
                }
                let words = std::mem::take(&mut words);
                let directive = Directive { words, block: None, span: span(begun) };
                open.push((directive, std::mem::take(&mut done)));
            }
            Ok(Token::Close) => {
                if !words.is_empty() {
                    reading.wrong(
                        span(begun),
                        format!("a `;` is missing behind `{}`", short(&words.join(" "))),
                    );
                    return Vec::new();
                }
                let Some((mut directive, before)) = open.pop() else {
                    reading.wrong(span(start), "this `}` closes nothing");
                    return Vec::new();
                };
                directive.block = Some(std::mem::replace(&mut done, before));
                done.push(directive);
            }
        }
    }
    if let Some((directive, _)) = open.last() {
        reading.wrong(
            directive.span,
            format!("the block of `{}` does not close", short(directive.name())),
        );
        return Vec::new();
    }
    if !words.is_empty() {
        reading
            .wrong(span(begun), format!("a `;` is missing behind `{}`", short(&words.join(" "))));
        return Vec::new();
    }
    done
}
