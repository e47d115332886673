//! Escapes and classes: what stands for one character or for a set of them.

use regex_syntax::hir::{Class, HirKind};

use super::reader::Reader;
use super::scripts::{CATEGORIES, SCRIPTS};
use super::{ASCII_CLASS, BYTE, CLASS, wrong};

/// What each range of a Unicode property weighs.
const RANGE: u64 = 80;

/// The category that RE2 knows and Rust's text cannot hold.
const SURROGATES: &str = "Cs";

/// The names of POSIX classes, all of them about ASCII.
const POSIX: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// A character, or a class of them.
pub(super) enum Member {
    Char(char),
    /// As the crate writes it, and its weight.
    Class(String, u64),
}

impl Reader<'_> {
    /// What a backslash begins, in a class or outside.
    pub(super) fn escaped(&mut self) -> Result<Member, String> {
        let before = self.rest;
        let Some(char) = self.next() else {
            return Err(wrong(r"a single `\` at the end"));
        };
        let unknown = |text: String| wrong(&format!(r"`\{text}` is no escape"));
        Ok(match char {
            'd' => Member::Class("0-9".to_owned(), ASCII_CLASS),
            'D' => Member::Class("[^0-9]".to_owned(), CLASS),
            's' => Member::Class(r"\t\n\x0C\r\x20".to_owned(), ASCII_CLASS),
            'S' => Member::Class(r"[^\t\n\x0C\r\x20]".to_owned(), CLASS),
            'w' => Member::Class("0-9A-Za-z_".to_owned(), ASCII_CLASS),
            'W' => Member::Class("[^0-9A-Za-z_]".to_owned(), CLASS),
            'p' | 'P' => return self.property(char == 'P'),
            'a' => Member::Char('\x07'),
            'f' => Member::Char('\x0C'),
            'n' => Member::Char('\n'),
            'r' => Member::Char('\r'),
            't' => Member::Char('\t'),
            'v' => Member::Char('\x0B'),
            'x' => return self.code_point().map(Member::Char),
            '0'..='7' => {
                let digits =
                    before.bytes().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
                if char != '0' && digits < 2 {
                    return Err(wrong(&format!(r"`\{char}` refers back, which RE2 does not")));
                }
                let (digits, rest) = before.split_at(digits);
                self.rest = rest;
                let code = u32::from_str_radix(digits, 8).ok().and_then(char::from_u32);
                Member::Char(code.ok_or_else(|| unknown(digits.to_owned()))?)
            }
            char if char.is_ascii_punctuation() || char == ' ' || char.is_ascii_control() => {
                Member::Char(char)
            }
            char => return Err(unknown(char.to_string())),
        })
    }

    /// Behind `\x`: two hexadecimal digits, or any in braces.
    fn code_point(&mut self) -> Result<char, String> {
        let braced = self.rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let (digits, rest) = braced.or_else(|| self.rest.split_at_checked(2)).unwrap_or_default();
        self.rest = rest;
        let hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let code = if hex { u32::from_str_radix(digits, 16).ok() } else { None };
        code.and_then(char::from_u32).ok_or_else(|| {
            wrong(r"two hexadecimal digits, or a code point in braces, must follow `\x`")
        })
    }

    /// Behind `\p` or `\P`: a category or a script, of one letter or in braces.
    fn property(&mut self, negated: bool) -> Result<Member, String> {
        let braced = self.rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let one = self.rest.chars().next().map_or(0, char::len_utf8);
        let (written, rest) = braced.unwrap_or_else(|| self.rest.split_at(one));
        self.rest = rest;
        let name = written.strip_prefix('^').unwrap_or(written);
        let p = if negated == (name == written) { 'P' } else { 'p' };
        let unknown = || wrong(&format!("`{written}` is no category and no script of Unicode"));
        if name == SURROGATES {
            // No text has one.
            let all = if p == 'p' { "[^\\x{0}-\\x{10FFFF}]" } else { "[\\x{0}-\\x{10FFFF}]" };
            return Ok(Member::Class(all.to_owned(), CLASS));
        }
        let kind = match name {
            "Any" => "",
            _ if CATEGORIES.contains(&name) => "gc=",
            _ if SCRIPTS.contains(&name) => "sc=",
            _ => return Err(unknown()),
        };
        let text = format!(r"\{p}{{{kind}{name}}}");
        let weight = match regex_syntax::parse(&text).map_err(|_| unknown())?.into_kind() {
            HirKind::Class(Class::Unicode(class)) => {
                let ranges = u64::try_from(class.ranges().len()).unwrap_or(u64::MAX);
                ranges.saturating_mul(RANGE).saturating_add(CLASS)
            }
            _ => CLASS,
        };
        Ok(Member::Class(text, weight))
    }

    /// Behind `[`.
    pub(super) fn class(&mut self) -> Result<(), String> {
        let unclosed = || wrong("unclosed character class");
        let negated = self.eat("^");
        let mut text = if negated { "[^" } else { "[" }.to_owned();
        let mut weight = if negated { CLASS } else { ASCII_CLASS };
        let mut first = true;
        while first || !self.eat("]") {
            first = false;
            match self.member(&unclosed)? {
                Member::Class(class, more) => {
                    text.push_str(&class);
                    weight = weight.saturating_add(more);
                }
                Member::Char(low) => {
                    let high = if self.rest.starts_with("-]") || !self.eat("-") {
                        low
                    } else {
                        match self.member(&unclosed)? {
                            Member::Char(high) if low <= high => high,
                            Member::Char(high) => {
                                return Err(wrong(&format!("the range `{low}-{high}` is empty")));
                            }
                            Member::Class(..) => {
                                return Err(wrong(&format!(
                                    "a class ends no range: `{low}-` begins one"
                                )));
                            }
                        }
                    };
                    text.push_str(&hex(low));
                    text.push('-');
                    text.push_str(&hex(high));
                    weight = weight.saturating_add(if high.is_ascii() { 3 * BYTE } else { CLASS });
                }
            }
        }
        text.push(']');
        self.atom(&text, weight);
        Ok(())
    }

    fn member(&mut self, unclosed: &impl Fn() -> String) -> Result<Member, String> {
        let named = self.rest.strip_prefix("[:").and_then(|inner| inner.split_once(":]"));
        if let Some((name, rest)) = named {
            if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
                return Err(wrong(&format!("there is no class `[:{name}:]`")));
            }
            self.rest = rest;
            let weight = if name.starts_with('^') { CLASS } else { ASCII_CLASS };
            return Ok(Member::Class(format!("[:{name}:]"), weight));
        }
        match self.next().ok_or_else(unclosed)? {
            '\\' => self.escaped(),
            char => Ok(Member::Char(char)),
        }
    }
}

/// `char` as nothing but itself.
pub(super) fn hex(char: char) -> String {
    if char.is_ascii_alphanumeric() {
        char.to_string()
    } else {
        format!(r"\x{{{:X}}}", u32::from(char))
    }
}
