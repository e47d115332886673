//! What all readers share: places, mistakes, and values of trees.

use std::cell::{Cell, RefCell};

use super::form::{At, Notes};
use crate::language::temporal::Span as Time;
use crate::source::{Diagnostic, Diagnostics, Member, Node, Sources, Span, with_article};

const MILLISECOND: i128 = 1_000_000;
const SECOND: i128 = 1000 * MILLISECOND;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;

/// The units of durations, longer names first.
const UNITS: [(&str, i128); 9] = [
    ("ns", 1),
    ("us", 1000),
    ("µs", 1000),
    ("ms", MILLISECOND),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", HOUR),
    ("d", DAY),
    ("w", 7 * DAY),
];

/// One source while it is read, and the mistakes in it.
pub(super) struct Reading<'s> {
    sources: &'s Sources,
    found: RefCell<Diagnostics>,
}

impl<'s> Reading<'s> {
    pub(super) fn new(sources: &'s Sources) -> Self {
        Self { sources, found: RefCell::default() }
    }

    pub(super) fn at(&self, span: Span) -> At {
        let (line, column) = self.sources.position(span);
        At { line, column }
    }

    /// Reports a mistake in the source.
    pub(super) fn wrong(&self, span: Span, message: impl Into<String>) {
        self.found.borrow_mut().push(Diagnostic::error("not-readable", span, message));
    }

    /// Reports that the file is not of the kind that was named.
    pub(super) fn not_this(&self, span: Span, message: impl Into<String>, help: &str) {
        let diagnostic = Diagnostic::error("another-kind", span, message).with_help(help);
        self.found.borrow_mut().push(diagnostic);
    }

    pub(super) fn mistakes(self) -> Diagnostics {
        self.found.into_inner().sorted()
    }

    /// The members of an object.
    pub(super) fn fields<'n>(&self, what: &str, node: &'n Node) -> Option<Fields<'n>> {
        let Some(members) = node.as_object() else {
            self.type_of(what, node, "an object");
            return None;
        };
        let known = members.iter().map(|_| Cell::new(false)).collect();
        Some(Fields { members, span: node.span, known })
    }

    /// The elements of an array.
    pub(super) fn items<'n>(&self, what: &str, node: &'n Node) -> &'n [Node] {
        node.as_array().unwrap_or_else(|| {
            if !node.is_null() {
                self.type_of(what, node, "an array");
            }
            &[]
        })
    }

    pub(super) fn text<'n>(&self, what: &str, node: &'n Node) -> Option<&'n str> {
        let text = node.as_str().map(|text| &**text);
        if text.is_none() {
            self.type_of(what, node, "a string");
        }
        text
    }

    /// A whole number that is not negative.
    pub(super) fn count(&self, what: &str, node: &Node) -> Option<u64> {
        let count = node.to_string().trim_matches('"').parse().ok();
        if count.is_none() {
            self.type_of(what, node, "a whole number");
        }
        count
    }

    /// A number.
    pub(super) fn number(&self, what: &str, node: &Node) -> Option<f64> {
        let number = node.as_number();
        if number.is_none() {
            self.type_of(what, node, "a number");
        }
        number
    }

    /// A duration with its unit, such as `1h30m`, `250ms` or `0.25s`.
    pub(super) fn duration(&self, what: &str, node: &Node) -> Option<Time> {
        let span = node.as_str().and_then(|text| duration(text, None));
        if span.is_none() {
            self.type_of(what, node, "a duration with its unit, such as `250ms` or `1m30s`");
        }
        span
    }

    /// Seconds, as a number.
    pub(super) fn seconds(&self, what: &str, node: &Node) -> Option<Time> {
        let text = node.to_string();
        let span = duration(text.trim_matches('"'), Some("s"));
        if span.is_none() {
            self.type_of(what, node, "a number of seconds");
        }
        span
    }

    fn type_of(&self, what: &str, node: &Node, wanted: &str) {
        let seen = match node.as_str() {
            Some(text) => format!("`{}`", short(text)),
            None => with_article(node.type_name()),
        };
        self.wrong(node.span, format!("`{what}` is {seen}; wanted: {wanted}"));
    }
}

/// The members of an object. It knows which of them were read.
pub(super) struct Fields<'n> {
    members: &'n [Member],
    known: Vec<Cell<bool>>,
    pub(super) span: Span,
}

impl<'n> Fields<'n> {
    /// The member of this name, in camel case or with underscores.
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        let mut members = self.members.iter().zip(&self.known);
        let (member, known) = members.find(|(member, _)| same(&member.key, name))?;
        known.set(true);
        (!member.value.is_null()).then_some(&member.value)
    }

    /// Members that change nothing here.
    pub(super) fn skip(&self, names: &[&str]) {
        for name in names {
            self.get(name);
        }
    }

    /// Adds a note for each member that was not read.
    pub(super) fn rest(&self, reading: &Reading<'_>, of: &str, notes: &mut Notes) {
        for (member, known) in self.members.iter().zip(&self.known) {
            if !known.get() {
                notes.lost(
                    reading.at(member.key_span),
                    format!("`{}` of {of}.", short(&member.key)),
                );
            }
        }
    }
}

/// Whether two keys are the same but for underscores and capitals.
fn same(written: &str, name: &str) -> bool {
    let letters = |text: &str| -> Vec<u8> {
        text.bytes().filter(|b| *b != b'_').map(|b| b.to_ascii_lowercase()).collect()
    };
    written == name || (written.len() <= 64 && letters(written) == letters(name))
}

/// The first characters of `text`, for a message.
pub(super) fn short(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Reads `1h30m`, `250ms` or `0.25s`. A number without a unit has the unit `bare`, if that is one.
pub(super) fn duration(text: &str, bare: Option<&str>) -> Option<Time> {
    let mut rest = text.trim();
    let mut nanos = 0_i128;
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at_checked(digits)?;
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at_checked(letters)?;
        let unit = if unit.is_empty() { bare? } else { unit };
        let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
        nanos = nanos.saturating_add(scaled(number, *length)?);
        rest = next.trim_start();
    }
    Some(Time::from_nanos(nanos))
}

/// `number` times `unit`.
fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = if whole.is_empty() && !fraction.is_empty() { "0" } else { whole };
    let whole: i128 = whole.parse::<u64>().ok()?.into();
    let mut nanos = whole.saturating_mul(unit);
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        nanos = nanos.saturating_add(place.saturating_mul(digit.to_digit(10)?.into()));
    }
    Some(nanos)
}

/// Whether a configuration may have this path.
pub(super) fn is_path(text: &str) -> bool {
    use crate::proxy::message::path::check;
    use crate::proxy::settings::Paths;
    text.starts_with('/')
        && text.len() <= 1000
        && text.bytes().all(|b| b.is_ascii_graphic() && !b"?#;\"<>\\^`{|}".contains(&b))
        && check(text, Paths::default()).is_ok()
}

/// Whether a route may match this host.
pub(super) fn is_host(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// Whether this is the name of a header field or a method.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 100
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// The endpoint, the host and the path of a URL, if a configuration may have them.
pub(super) fn address(text: &str) -> Option<(String, String, Option<String>)> {
    let (secure, rest) = match text.strip_prefix("https://") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix("http://")?),
    };
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at_checked(at)?,
        None => (rest, ""),
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse().ok()?)),
        None => (authority, None),
    };
    let path = path.split('?').next().filter(|path| is_path(path)).map(str::to_owned);
    Some((url(host, port, secure)?, host.to_owned(), path))
}

/// `http://host:port`, if both can be.
pub(super) fn url(host: &str, port: Option<u64>, secure: bool) -> Option<String> {
    let scheme = if secure { "https" } else { "http" };
    let port = match port {
        None => String::new(),
        Some(port @ 1..=65535) => format!(":{port}"),
        Some(_) => return None,
    };
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some(format!("{scheme}://[{host}]{port}"));
    }
    (is_host(host) && !host.starts_with('*')).then(|| format!("{scheme}://{host}{port}"))
}
