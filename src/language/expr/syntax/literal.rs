//! What a literal stands for.

use cel::common::ast::LiteralValue;

use super::super::CompileError;
use super::error;
use super::token::{Kind, Token};

/// The value of `token`, which is a literal. A number may be `negative`: the sign is a part of it, so that
/// the least integer can be written.
pub(super) fn value(token: &Token<'_>, negative: bool) -> Result<LiteralValue, CompileError> {
    let Token { kind, text, place } = *token;
    let value = match kind {
        Kind::Int => int(text, negative),
        Kind::Uint => uint(text),
        Kind::Double => double(text, negative),
        Kind::String => string(text),
        Kind::Bytes => bytes(text),
        _ => constant(text),
    };
    value.map_err(|message| error(message, place))
}

fn constant(text: &str) -> Result<LiteralValue, String> {
    match text {
        "true" => Ok(LiteralValue::Boolean(true.into())),
        "false" => Ok(LiteralValue::Boolean(false.into())),
        "null" => Ok(LiteralValue::Null),
        other => Err(format!("`{other}` is no literal")),
    }
}

/// The base of a whole number, and its digits.
fn digits(text: &str) -> (u32, &str) {
    text.strip_prefix("0x").map_or((10, text), |digits| (16, digits))
}

fn int(text: &str, negative: bool) -> Result<LiteralValue, String> {
    let (base, digits) = digits(text);
    let read = if negative {
        i64::from_str_radix(&format!("-{digits}"), base)
    } else {
        i64::from_str_radix(digits, base)
    };
    let read = read.map_err(|_| {
        format!(
            "an integer is from -9223372036854775808 to 9223372036854775807, and `{text}` is not"
        )
    })?;
    Ok(LiteralValue::Int(read.into()))
}

fn uint(text: &str) -> Result<LiteralValue, String> {
    let (base, digits) = digits(text.trim_end_matches(['u', 'U']));
    let read = u64::from_str_radix(digits, base).map_err(|_| {
        format!("an unsigned integer is at most 18446744073709551615u, and `{text}` is not")
    })?;
    Ok(LiteralValue::UInt(read.into()))
}

fn double(text: &str, negative: bool) -> Result<LiteralValue, String> {
    let read = text.parse::<f64>().ok().filter(|read| read.is_finite());
    let read = read.ok_or_else(|| format!("`{text}` is too large for a number"))?;
    Ok(LiteralValue::Double(if negative { -read } else { read }.into()))
}

fn string(text: &str) -> Result<LiteralValue, String> {
    let mut out = String::new();
    written(text, &mut |part| match part {
        Part::Text(text) => out.push_str(text),
        Part::Code(code) => out.push(code),
        // In a string, a byte stands for the code point of that number.
        Part::Byte(byte) => out.push(char::from(byte)),
    })?;
    Ok(LiteralValue::String(out.into()))
}

fn bytes(text: &str) -> Result<LiteralValue, String> {
    let mut out = Vec::new();
    let mut has_code = false;
    written(text, &mut |part| match part {
        Part::Text(text) => out.extend_from_slice(text.as_bytes()),
        Part::Byte(byte) => out.push(byte),
        Part::Code(_) => has_code = true,
    })?;
    if has_code {
        let message =
            "bytes have no `\\u` or `\\U`: write the character itself, or its bytes as `\\x…`";
        return Err(message.to_owned());
    }
    Ok(LiteralValue::Bytes(out.into()))
}

/// A piece of what a string or bytes literal stands for.
enum Part<'a> {
    Text(&'a str),
    /// By its number, `\x41` or `\101`.
    Byte(u8),
    /// By its code point, `\u0041` or `\U00000041`.
    Code(char),
}

/// Gives the parts of the literal `text` to `out`: what is between its quotes, with escapes read unless it is
/// raw. A line's end is `\n`, however it was written.
fn written(text: &str, out: &mut impl FnMut(Part<'_>)) -> Result<(), String> {
    let (prefix, quoted) =
        text.split_at_checked(text.find(['"', '\'']).unwrap_or(0)).unwrap_or(("", text));
    let raw = prefix.contains(['r', 'R']);
    let width = if quoted.starts_with("\"\"\"") || quoted.starts_with("'''") { 3 } else { 1 };
    let inner = quoted.get(width..quoted.len().saturating_sub(width)).unwrap_or_default();
    let inner = inner.replace("\r\n", "\n").replace('\r', "\n");
    if raw {
        out(Part::Text(&inner));
        return Ok(());
    }
    let mut rest = inner.as_str();
    while let Some((before, escape)) = rest.split_once('\\') {
        out(Part::Text(before));
        let (part, length) = escaped(escape).ok_or_else(|| wrong_escape(escape))?;
        out(part);
        rest = escape.get(length..).unwrap_or_default();
    }
    out(Part::Text(rest));
    Ok(())
}

/// What the escape stands for whose text after the backslash is at the start of `text`, and how many bytes
/// that text has.
fn escaped(text: &str) -> Option<(Part<'static>, usize)> {
    let byte = |length: usize, number: Option<u32>| {
        number.and_then(|number| u8::try_from(number).ok()).map(|byte| (Part::Byte(byte), length))
    };
    let code = |length: usize, number: Option<u32>| {
        number.and_then(char::from_u32).map(|code| (Part::Code(code), length))
    };
    match text.chars().next()? {
        'a' => Some((Part::Byte(7), 1)),
        'b' => Some((Part::Byte(8), 1)),
        't' => Some((Part::Byte(9), 1)),
        'n' => Some((Part::Byte(10), 1)),
        'v' => Some((Part::Byte(11), 1)),
        'f' => Some((Part::Byte(12), 1)),
        'r' => Some((Part::Byte(13), 1)),
        '\\' => Some((Part::Text("\\"), 1)),
        '\'' => Some((Part::Text("'"), 1)),
        '"' => Some((Part::Text("\""), 1)),
        '`' => Some((Part::Text("`"), 1)),
        '?' => Some((Part::Text("?"), 1)),
        'x' | 'X' => byte(3, number(text, 1..3, 16)),
        'u' => code(5, number(text, 1..5, 16)),
        'U' => code(9, number(text, 1..9, 16)),
        '0'..='3' => byte(3, number(text, 0..3, 8)),
        _ => None,
    }
}

/// The number that these bytes of `text` write, if all of them are digits of this base.
fn number(text: &str, bytes: std::ops::Range<usize>, base: u32) -> Option<u32> {
    let digits = text.get(bytes)?;
    let all = digits.chars().all(|char| char.is_digit(base));
    if all { u32::from_str_radix(digits, base).ok() } else { None }
}

fn wrong_escape(text: &str) -> String {
    let shown: String = text.chars().take(1).collect();
    match shown.as_str() {
        "x" | "X" => "`\\x` is followed by two hexadecimal digits".to_owned(),
        "u" => "`\\u` is followed by the four hexadecimal digits of a code point".to_owned(),
        "U" => "`\\U` is followed by the eight hexadecimal digits of a code point".to_owned(),
        "0" | "1" | "2" | "3" => "an octal escape has three digits: `\\012`".to_owned(),
        _ => format!(
            "`\\{shown}` is no escape; a backslash is written `\\\\`, or as it is in a raw string: r'…'"
        ),
    }
}
