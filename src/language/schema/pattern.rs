//! What the patterns of a schema cost: to compile, which the validator does at once, and to match.

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{
    Ast, ClassPerlKind, ClassSet, ClassSetItem, RepetitionKind, RepetitionRange,
};
use serde_json::Value as Json;

/// How long parts take to compile, in nanoseconds: measured, and rounded up.
const PATTERN: u64 = 30_000;
const PREFIXES: u64 = 100_000;
const BYTE: u64 = 300;
const SMALL_CLASS: u64 = 500;
const CLASS: u64 = 8_000;
const PROPERTY: u64 = 300_000;
const BRANCH: u64 = 1_500;
const ASSERTION: u64 = 5_000;

/// How many steps back one match may take, for a pattern that looks around or back.
pub(super) const BACKTRACKS: usize = 5_000;

/// What looks around, and how it reads without that.
const AROUND: [&str; 4] = ["(?<=", "(?<!", "(?=", "(?!"];

/// Calls `each` with every pattern in `schema`, and the JSON Pointer of its place.
pub(super) fn each(schema: &Json, each: &mut dyn FnMut(&str, &str)) {
    walk(schema, &mut String::new(), each);
}

fn walk(schema: &Json, at: &mut String, each: &mut dyn FnMut(&str, &str)) {
    let length = at.len();
    let mut within = |key: &str, value: &Json, at: &mut String| {
        at.push('/');
        at.push_str(&key.replace('~', "~0").replace('/', "~1"));
        match (key, value) {
            ("pattern", Json::String(pattern)) => each(at, pattern),
            ("patternProperties", Json::Object(members)) => {
                members.keys().for_each(|pattern| each(at, pattern));
                walk(value, at, each);
            }
            _ => walk(value, at, each),
        }
        at.truncate(length);
    };
    match schema {
        Json::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                within(&index.to_string(), item, at);
            }
        }
        Json::Object(members) => members.iter().for_each(|(key, value)| within(key, value, at)),
        _ => {}
    }
}

/// Whether a match may take steps back, so that it can take long.
pub(super) fn backtracks(pattern: &str) -> bool {
    let refers_back = |two: &[u8]| matches!(two, [b'\\', b'1'..=b'9' | b'k']);
    AROUND.iter().any(|around| pattern.contains(around))
        || pattern.as_bytes().windows(2).any(refers_back)
}

/// How many nanoseconds `pattern` takes to compile, at most.
pub(super) fn cost(pattern: &str) -> u64 {
    let around = backtracks(pattern);
    let plain = AROUND.iter().fold(pattern.to_owned(), |text, around| text.replace(around, "(?:"));
    match Parser::new().parse(&plain) {
        Ok(ast) if is_literal(&ast) => {
            PATTERN.saturating_add(BYTE.saturating_mul(2 * pattern.len() as u64))
        }
        Ok(ast) => {
            let weighing =
                Weighing { unicode: around, folds: plain.contains("(?") && plain.contains('i') };
            weighing.cost(&ast).saturating_add(PATTERN + PREFIXES)
        }
        // Another syntax: nothing is known but the numbers in it.
        Err(_) => {
            let numbers = pattern.split(|char: char| !char.is_ascii_digit());
            let turns =
                numbers.filter_map(|digits| digits.parse::<u64>().ok()).map(|turns| turns.max(1));
            let turns = turns.fold(1, u64::saturating_mul);
            (pattern.len() as u64)
                .saturating_mul(CLASS)
                .saturating_mul(turns)
                .saturating_add(PATTERN)
        }
    }
}

/// Whether `ast` is nothing but characters that stand for themselves.
fn is_literal(ast: &Ast) -> bool {
    match ast {
        Ast::Literal(_) => true,
        Ast::Concat(concat) => concat.asts.iter().all(|part| matches!(part, Ast::Literal(_))),
        _ => false,
    }
}

/// How a pattern is weighed.
#[derive(Clone, Copy)]
struct Weighing {
    /// Whether `\w` is about all of Unicode: the validator leaves such a pattern as it is.
    unicode: bool,
    /// Whether case may not count.
    folds: bool,
}

impl Weighing {
    fn cost(self, ast: &Ast) -> u64 {
        let all = |parts: &[Ast], each: u64| {
            parts
                .iter()
                .fold(0_u64, |sum, part| sum.saturating_add(self.cost(part)).saturating_add(each))
        };
        let folded = if self.folds { 3 } else { 1 };
        match ast {
            Ast::Empty(_) | Ast::Flags(_) => BYTE,
            Ast::Literal(literal) => folded * BYTE * literal.c.len_utf8() as u64,
            Ast::Assertion(_) => ASSERTION,
            Ast::Dot(_) => CLASS,
            Ast::ClassUnicode(_) => folded * PROPERTY,
            Ast::ClassPerl(class) => self.perl(&class.kind, class.negated),
            Ast::ClassBracketed(class) if class.negated => {
                CLASS.saturating_add(folded.saturating_mul(self.set(&class.kind)))
            }
            Ast::ClassBracketed(class) => {
                SMALL_CLASS.saturating_add(folded.saturating_mul(self.set(&class.kind)))
            }
            Ast::Repetition(repetition) => {
                let turns = match &repetition.op.kind {
                    RepetitionKind::Range(RepetitionRange::Exactly(turns)) => *turns,
                    RepetitionKind::Range(RepetitionRange::AtLeast(turns)) => {
                        turns.saturating_add(1)
                    }
                    RepetitionKind::Range(RepetitionRange::Bounded(_, most)) => *most,
                    _ => 1,
                };
                let once = self.cost(&repetition.ast).saturating_add(SMALL_CLASS);
                once.saturating_mul(u64::from(turns).max(1))
            }
            Ast::Group(group) => self.cost(&group.ast),
            Ast::Alternation(alternation) => all(&alternation.asts, BRANCH),
            Ast::Concat(concat) => all(&concat.asts, 0),
        }
    }

    fn perl(self, kind: &ClassPerlKind, negated: bool) -> u64 {
        match kind {
            ClassPerlKind::Word | ClassPerlKind::Digit if self.unicode => PROPERTY,
            ClassPerlKind::Word | ClassPerlKind::Digit if !negated => SMALL_CLASS,
            _ => CLASS,
        }
    }

    fn set(self, set: &ClassSet) -> u64 {
        match set {
            ClassSet::Item(item) => self.item(item),
            ClassSet::BinaryOp(operation) => {
                self.set(&operation.lhs).saturating_add(self.set(&operation.rhs))
            }
        }
    }

    fn item(self, item: &ClassSetItem) -> u64 {
        match item {
            ClassSetItem::Empty(_) | ClassSetItem::Ascii(_) => SMALL_CLASS,
            ClassSetItem::Literal(literal) if literal.c.is_ascii() => BYTE / 10,
            ClassSetItem::Range(range) if range.end.c.is_ascii() => BYTE / 10,
            ClassSetItem::Literal(_) | ClassSetItem::Range(_) => CLASS / 4,
            ClassSetItem::Unicode(_) => PROPERTY,
            ClassSetItem::Perl(class) => self.perl(&class.kind, class.negated),
            ClassSetItem::Bracketed(class) => CLASS.saturating_add(self.set(&class.kind)),
            ClassSetItem::Union(union) => {
                union.items.iter().fold(0, |sum, item| sum.saturating_add(self.item(item)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
