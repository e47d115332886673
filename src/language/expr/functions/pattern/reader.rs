//! The walk over a pattern: groups, repetitions, and what a part weighs.

use super::members::{Member, hex};
use super::{BYTE, CLASS, wrong};

/// The most turns of a counted repetition, and of one in another (RE2's own number).
const MOST_TURNS: u64 = 1000;

/// The flags, as RE2 names them.
const FLAGS: &str = "imsU";

/// The most groups in one another.
const DEEPEST: usize = 200;

/// What stands open: the pattern itself, or a group in it.
#[derive(Default)]
struct Group {
    weight: u64,
    turns: u64,
    /// What a repetition would repeat.
    last: Option<Atom>,
    /// Where its text begins.
    start: usize,
}

struct Atom {
    weight: u64,
    /// The turns of the repetitions in it, multiplied.
    turns: u64,
    /// Where its text begins.
    start: usize,
    /// Whether it is repeated.
    repeated: bool,
    /// Whether nothing is between it and a repetition that comes now.
    adjacent: bool,
}

pub(super) struct Reader<'p> {
    pub(super) rest: &'p str,
    out: String,
    /// The innermost group that stands open, and those around it. The outermost is the pattern.
    group: Group,
    around: Vec<Group>,
    /// Flags that hold from the next atom on: a repetition that comes before that is of the last one.
    flags: String,
}

impl Group {
    /// Adds what `last` has come to, and `more`.
    fn settle(&mut self, more: u64) {
        let (weight, turns) = self.last.take().map_or((0, 1), |atom| (atom.weight, atom.turns));
        self.weight = self.weight.saturating_add(weight).saturating_add(more);
        self.turns = self.turns.max(turns);
    }
}

impl<'p> Reader<'p> {
    pub(super) fn new(pattern: &'p str) -> Self {
        let (out, around, flags) = (String::new(), Vec::new(), String::new());
        Self { rest: pattern, out, group: Group::default(), around, flags }
    }

    pub(super) fn read(mut self) -> Result<(String, u64), String> {
        while let Some(char) = self.next() {
            match char {
                '(' => self.open()?,
                ')' => self.close()?,
                '|' => {
                    self.group.settle(BYTE);
                    self.write("|");
                }
                '*' | '+' => self.repeat(char.to_string(), 1, 2)?,
                '?' => self.repeat(char.to_string(), 1, 1)?,
                '{' => match self.counts() {
                    Some((text, turns, copies)) => self.repeat(text, turns, copies)?,
                    None => self.literal('{'),
                },
                '[' => self.class()?,
                '.' => self.atom(".", CLASS),
                '^' => self.atom("^", BYTE),
                '$' => self.atom("$", BYTE),
                '\\' => self.escape()?,
                char => self.literal(char),
            }
        }
        if !self.around.is_empty() {
            return Err(wrong("unclosed group"));
        }
        self.group.settle(0);
        Ok((self.out, self.group.weight))
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let char = chars.next()?;
        self.rest = chars.as_str();
        Some(char)
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// What comes before `end`, which goes, too.
    fn until(&mut self, end: &str) -> Option<&'p str> {
        let (before, after) = self.rest.split_once(end)?;
        self.rest = after;
        Some(before)
    }

    /// Writes `text` after the flags that hold for it, and returns where it begins.
    fn write(&mut self, text: &str) -> usize {
        self.out.push_str(&std::mem::take(&mut self.flags));
        let start = self.out.len();
        self.out.push_str(text);
        start
    }

    pub(super) fn atom(&mut self, text: &str, weight: u64) {
        let start = self.write(text);
        self.group.settle(0);
        self.group.last = Some(Atom { weight, turns: 1, start, repeated: false, adjacent: true });
    }

    /// A character that stands for itself. Where case does not count, it weighs up to three.
    fn literal(&mut self, char: char) {
        let text = hex(char);
        self.atom(&text, 3 * BYTE * char.len_utf8() as u64);
    }

    fn open(&mut self) -> Result<(), String> {
        if self.around.len() >= DEEPEST {
            return Err(wrong(&format!("groups nest deeper than {DEEPEST}")));
        }
        if self.eat("?P<") || self.eat("?<") {
            let name = self.until(">").unwrap_or_default();
            let plain = |char: char| char == '_' || char.is_alphanumeric();
            if name.is_empty() || !name.chars().all(plain) {
                return Err(wrong("a group's name is one or more letters, digits and `_`"));
            }
        } else if self.eat("?") {
            return self.flags();
        }
        // Nothing reads what a group captures.
        self.enter("(?:");
        Ok(())
    }

    fn enter(&mut self, text: &str) {
        let start = self.write(text);
        self.around.push(std::mem::take(&mut self.group));
        self.group.start = start;
    }

    /// `(?i)`, `(?s-m:…)`, `(?:…)`.
    fn flags(&mut self) -> Result<(), String> {
        let end = self.rest.find([')', ':']).ok_or_else(|| wrong("unclosed group"))?;
        let (flags, end) = self.rest.split_at(end);
        let (on, off) = flags.split_once('-').unwrap_or((flags, ""));
        let known = |flags: &str| flags.chars().all(|flag| FLAGS.contains(flag));
        if !known(on) || !known(off) || flags.ends_with('-') {
            return Err(wrong(&format!("`(?{flags}` is no group: its flags are i, m, s and U")));
        }
        let chosen = |wanted: &dyn Fn(char) -> bool| -> String {
            FLAGS.chars().filter(|flag| wanted(*flag)).collect()
        };
        let unset = chosen(&|flag| off.contains(flag));
        let set = chosen(&|flag| on.contains(flag) && !off.contains(flag));
        let flags = if unset.is_empty() { set } else { format!("{set}-{unset}") };
        self.rest = end.get(1..).unwrap_or_default();
        if end.starts_with(':') {
            self.enter(&format!("(?{flags}:"));
            return Ok(());
        }
        if let Some(last) = &mut self.group.last {
            last.adjacent = false;
        }
        if !flags.is_empty() {
            self.flags.extend(["(?", &flags, ")"]);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let around = self.around.pop().ok_or_else(|| wrong("unopened group"))?;
        self.group.settle(BYTE);
        let Group { weight, turns, start, .. } = std::mem::replace(&mut self.group, around);
        // Flags hold until the end of their group.
        self.flags.clear();
        self.out.push(')');
        self.group.settle(0);
        self.group.last = Some(Atom { weight, turns, start, repeated: false, adjacent: true });
        Ok(())
    }

    /// What stands in braces, behind the first: the crate's text, the turns that count, and how often the atom is compiled.
    fn counts(&mut self) -> Option<(String, u64, u64)> {
        let (inner, rest) = self.rest.split_once('}')?;
        let number = |text: &str| {
            // RE2 reads no count with a leading zero, or with more than nine digits.
            let digits = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            let count = digits && (text == "0" || !text.starts_with('0'));
            count.then(|| text.parse().unwrap_or(u64::MAX))
        };
        let (least, most) = match inner.split_once(',') {
            None => (number(inner)?, Some(number(inner)?)),
            Some((least, "")) => (number(least)?, None),
            Some((least, most)) => (number(least)?, Some(number(most)?)),
        };
        self.rest = rest;
        // Counts that are none are told where they are used.
        let turns =
            if most.is_some_and(|most| most < least) { u64::MAX } else { most.unwrap_or(least) };
        Some((format!("{{{inner}}}"), turns.max(1), most.unwrap_or(least + 1).max(1)))
    }

    fn repeat(&mut self, mut text: String, turns: u64, copies: u64) -> Result<(), String> {
        let lazy = self.eat("?");
        let Some(last) = self.group.last.as_mut() else {
            return Err(wrong(&format!("`{text}` has nothing to repeat")));
        };
        if last.repeated && last.adjacent {
            return Err(wrong(&format!("`{text}` repeats a repetition; put that in a group")));
        }
        last.turns = last.turns.saturating_mul(turns);
        if last.turns > MOST_TURNS {
            let problem =
                format!("`{text}`: the counts fall, or come to more than {MOST_TURNS} turns");
            return Err(wrong(&problem));
        }
        last.weight = last.weight.saturating_add(BYTE).saturating_mul(copies);
        if lazy {
            text.push('?');
        }
        if last.repeated {
            self.out.insert_str(last.start, "(?:");
            self.out.push(')');
        }
        last.repeated = true;
        last.adjacent = true;
        self.out.push_str(&text);
        Ok(())
    }

    /// What a backslash begins, outside of a class.
    fn escape(&mut self) -> Result<(), String> {
        for (name, text) in [("A", r"\A"), ("z", r"\z"), ("b", r"(?-u:\b)"), ("B", r"(?-u:\B)")] {
            if self.eat(name) {
                self.atom(text, BYTE);
                return Ok(());
            }
        }
        if self.eat("Q") {
            let quoted = self.until("\\E").unwrap_or_else(|| std::mem::take(&mut self.rest));
            quoted.chars().for_each(|char| self.literal(char));
            return Ok(());
        }
        if self.eat("C") {
            return Err(wrong(r"`\C`, a single byte, is not supported"));
        }
        match self.escaped()? {
            Member::Char(char) => self.literal(char),
            Member::Class(text, weight) => self.atom(&format!("[{text}]"), weight),
        }
        Ok(())
    }
}
