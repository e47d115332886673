//! Splits the text of an expression into tokens: the lexical part of CEL's grammar.
//!
//! As the grammar says, the longest token wins: `1.e` is `1` `.` `e`, and `1e5` is one number. A string or a
//! number that is cut off is an error here; what a literal stands for is decided in `literal`.

use super::super::CompileError;
use super::error;

/// One token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    /// The characters before it.
    pub(super) place: usize,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name, which may be a reserved one.
    Name,
    /// A name between backticks.
    QuotedName,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    /// An operator, a bracket or a separator; also `in`, `true`, `false` and `null`.
    Symbol,
    /// The end of the text.
    End,
}

/// Where the next token is taken from. A copy looks ahead.
#[derive(Clone, Copy)]
pub(super) struct Lexer<'a> {
    rest: &'a str,
    place: usize,
}

/// The symbols of two characters.
const PAIRS: [&str; 6] = ["==", "!=", "<=", ">=", "&&", "||"];

/// The symbols of one character.
const SINGLES: &str = "<>+-*/%!?:.,()[]{}";

impl Token<'_> {
    /// Whether it is this symbol.
    pub(super) fn is(&self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { rest: text, place: 0 }
    }

    /// The next token; at the end of the text, [`Kind::End`] again and again.
    pub(super) fn next(&mut self) -> Result<Token<'a>, CompileError> {
        self.skip_blanks();
        let (kind, length) = self.measure()?;
        let place = self.place;
        Ok(Token { kind, text: self.take(length), place })
    }

    /// Takes the next `length` bytes.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.place += taken.chars().count();
        self.rest = rest;
        taken
    }

    fn skip_blanks(&mut self) {
        loop {
            let blanks = run(self.rest, 0, is_blank);
            self.take(blanks);
            if !self.rest.starts_with("//") {
                return;
            }
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }

    /// What the rest begins with, and how many bytes that has.
    fn measure(&self) -> Result<(Kind, usize), CompileError> {
        let mut bytes = self.rest.bytes();
        match (bytes.next(), bytes.next()) {
            (None, _) => Ok((Kind::End, 0)),
            (Some(b'0'..=b'9'), _) | (Some(b'.'), Some(b'0'..=b'9')) => Ok(number(self.rest)),
            (Some(b'"' | b'\''), _) => self.string(Kind::String, 0),
            (Some(b'r' | b'R'), Some(b'"' | b'\'')) => self.string(Kind::String, 1),
            (Some(b'b' | b'B'), Some(b'"' | b'\'')) => self.string(Kind::Bytes, 1),
            (Some(b'b' | b'B'), Some(b'r' | b'R'))
                if matches!(bytes.next(), Some(b'"' | b'\'')) =>
            {
                self.string(Kind::Bytes, 2)
            }
            (Some(b'`'), _) => self.quoted_name(),
            (Some(first), _) if is_name(first) => Ok(self.word()),
            _ => self.symbol(),
        }
    }

    fn word(&self) -> (Kind, usize) {
        let length = run(self.rest, 0, is_name);
        match self.rest.get(..length) {
            Some("in" | "true" | "false" | "null") => (Kind::Symbol, length),
            _ => (Kind::Name, length),
        }
    }

    fn quoted_name(&self) -> Result<(Kind, usize), CompileError> {
        let length = run(self.rest, 1, is_quoted);
        if length > 0 && self.rest.as_bytes().get(1 + length) == Some(&b'`') {
            return Ok((Kind::QuotedName, length + 2));
        }
        let message = "a name between backticks has letters, digits, `_`, `.`, `-`, `/` and blanks, \
                       and ends with a backtick";
        Err(error(message, self.place))
    }

    /// A string or bytes, whose first quote comes after a prefix of so many letters.
    fn string(&self, kind: Kind, prefix: usize) -> Result<(Kind, usize), CompileError> {
        let bytes = self.rest.as_bytes();
        let (letters, literal) = bytes.split_at_checked(prefix).unwrap_or((b"", bytes));
        let raw = letters.iter().any(|letter| matches!(letter, b'r' | b'R'));
        let length = closed(literal, raw).ok_or_else(|| {
            let message = "the string that begins here is not closed; one that goes over several lines \
                           has three quotes at each end";
            error(message, self.place)
        })?;
        Ok((kind, prefix + length))
    }

    fn symbol(&self) -> Result<(Kind, usize), CompileError> {
        if PAIRS.iter().any(|pair| self.rest.starts_with(pair)) {
            return Ok((Kind::Symbol, 2));
        }
        let message = match self.rest.chars().next() {
            Some(char) if SINGLES.contains(char) => return Ok((Kind::Symbol, 1)),
            Some('=') => "`=` is no operator: `==` compares".to_owned(),
            Some(half @ ('&' | '|')) => {
                format!("`{half}` is no operator: it is written `{half}{half}`")
            }
            Some('#') => "`#` begins no comment: `//` does".to_owned(),
            other => format!("`{}` can stand only in a string", other.unwrap_or_default()),
        };
        Err(error(message, self.place))
    }
}

/// The bytes that the literal has which `text` begins with, if it is closed.
fn closed(text: &[u8], raw: bool) -> Option<usize> {
    let quotes: [&[u8]; 4] = [b"\"\"\"", b"'''", b"\"", b"'"];
    let quote = quotes.into_iter().find(|quote| text.starts_with(quote))?;
    let several_lines = quote.len() == 3;
    let mut at = quote.len();
    loop {
        let rest = text.get(at..)?;
        if rest.starts_with(quote) {
            return Some(at + quote.len());
        }
        match rest.first()? {
            b'\\' if !raw => at += 2,
            b'\n' | b'\r' if !several_lines => return None,
            _ => at += 1,
        }
    }
}

/// The number that `text` begins with.
fn number(text: &str) -> (Kind, usize) {
    let hex =
        if text.starts_with("0x") { run(text, 2, |byte| byte.is_ascii_hexdigit()) } else { 0 };
    if hex > 0 {
        return whole_number(text, 2 + hex);
    }
    let whole = run(text, 0, |byte| byte.is_ascii_digit());
    let fraction = match text.as_bytes().get(whole) {
        Some(b'.') => run(text, whole + 1, |byte| byte.is_ascii_digit()),
        _ => 0,
    };
    let mantissa = if fraction > 0 { whole + 1 + fraction } else { whole };
    let exponent = exponent(text, mantissa);
    if fraction + exponent > 0 {
        return (Kind::Double, mantissa + exponent);
    }
    whole_number(text, whole)
}

/// A whole number of `length` bytes, and the `u` after it.
fn whole_number(text: &str, length: usize) -> (Kind, usize) {
    match text.as_bytes().get(length) {
        Some(b'u' | b'U') => (Kind::Uint, length + 1),
        _ => (Kind::Int, length),
    }
}

/// The bytes of the exponent at `from`, if one is there.
fn exponent(text: &str, from: usize) -> usize {
    if !matches!(text.as_bytes().get(from), Some(b'e' | b'E')) {
        return 0;
    }
    let sign = usize::from(matches!(text.as_bytes().get(from + 1), Some(b'+' | b'-')));
    match run(text, from + 1 + sign, |byte| byte.is_ascii_digit()) {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

/// How many bytes of `text`, from `from` on, are of this kind.
fn run(text: &str, from: usize, is: impl Fn(u8) -> bool) -> usize {
    let bytes = text.as_bytes().get(from..).unwrap_or_default();
    bytes.iter().take_while(|byte| is(**byte)).count()
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'\x0c')
}

const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

const fn is_quoted(byte: u8) -> bool {
    is_name(byte) || matches!(byte, b'.' | b'-' | b'/' | b' ')
}
