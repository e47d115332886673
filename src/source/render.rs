//! Renders diagnostics, for people and for machines.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::json;

use super::{Diagnostic, Diagnostics, Node, Severity, SourceId, Sources, Span, read};

/// How many characters of a source line are shown. A minified document is one line of thousands.
const SHOWN: usize = 120;

impl Severity {
    /// The word with which a diagnostic begins.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

impl Sources {
    /// For people: `error[code]: message`, `--> file:line:column`, the source line with carets, help.
    pub fn render(&self, diagnostics: &Diagnostics) -> String {
        let mut out = String::new();
        for diagnostic in &diagnostics.0 {
            if !out.is_empty() {
                out.push('\n');
            }
            self.render_one(&mut out, diagnostic);
        }
        out
    }

    fn render_one(&self, out: &mut String, diagnostic: &Diagnostic) {
        let Diagnostic { severity, code, message, help, related, .. } = diagnostic;
        let said = self.replaced.told(diagnostic.span, message);
        // Writing to a string cannot fail.
        _ = writeln!(out, "{}[{code}]: {}", severity.as_str(), clean(&said));
        self.excerpt(out, self.place(diagnostic), "-->", "");
        for (span, note) in related {
            self.excerpt(out, *span, ":::", &self.replaced.told(*span, note));
        }
        if let Some(help) = help {
            let help = self.replaced.told(diagnostic.span, help);
            _ = writeln!(out, "  = help: {}", clean(&help));
        }
    }

    fn excerpt(&self, out: &mut String, span: Span, arrow: &str, note: &str) {
        let Some(file) = self.file(span.source) else {
            return;
        };
        let (line, column) = file.locate(span.start);
        let (text, begin) = file.line(line);
        let byte = usize::try_from(span.start).unwrap_or(usize::MAX).saturating_sub(begin);
        let (end_line, end_column) = file.locate(span.end);
        let last = if end_line == line { end_column } else { usize::MAX };
        let (shown, shift) = window(text, byte, column);
        let from = column.saturating_sub(shift);
        let carets = last.saturating_sub(column).min(shown.chars().count().saturating_sub(from));
        let number = (line + 1).to_string();
        let pad = " ".repeat(number.len());
        let mark = "^".repeat(carets.max(1));
        let name = clean(&file.name);
        let note = if note.is_empty() { String::new() } else { format!(" {}", clean(note)) };
        _ = writeln!(out, "{pad}{arrow} {name}:{}:{}", line + 1, column + 1);
        _ = writeln!(out, "{pad} |");
        _ = writeln!(out, "{number} | {}", shown.trim_end());
        _ = writeln!(out, "{pad} | {}{mark}{note}", " ".repeat(from));
    }

    /// For machines: an array of objects with `severity`, `code`, `message`, `file`, the 1-based `line`,
    /// `column`, `endLine` and `endColumn` (just after the end), `pointer` (RFC 6901), `help`, and
    /// `related` places.
    pub fn to_json(&self, diagnostics: &Diagnostics) -> serde_json::Value {
        let mut trees = HashMap::new();
        diagnostics
            .0
            .iter()
            .map(|diagnostic| {
                let source = diagnostic.span.source;
                let tree = trees.entry(source).or_insert_with(|| self.reread(source));
                let mut object = self.place_json(self.place(diagnostic));
                object.insert("severity".into(), diagnostic.severity.as_str().into());
                object.insert("code".into(), diagnostic.code.into());
                let told = |text: &str| self.replaced.told(diagnostic.span, text).into_owned();
                object.insert("message".into(), told(&diagnostic.message).into());
                object.insert("help".into(), json!(diagnostic.help.as_deref().map(told)));
                let pointer = tree.as_ref().map(|tree| tree.pointer(diagnostic.span));
                object.insert("pointer".into(), json!(pointer));
                let related = diagnostic.related.iter().map(|(span, note)| {
                    let mut object = self.place_json(*span);
                    object.insert("message".into(), self.replaced.told(*span, note).into());
                    serde_json::Value::Object(object)
                });
                object.insert("related".into(), related.collect());
                serde_json::Value::Object(object)
            })
            .collect()
    }

    fn place_json(&self, span: Span) -> serde_json::Map<String, serde_json::Value> {
        let (line, column) = self.position(span);
        let (end_line, end_column) = self.end_position(span);
        let members = [
            ("file", self.name(span.source).into()),
            ("line", line.into()),
            ("column", column.into()),
            ("endLine", end_line.into()),
            ("endColumn", end_column.into()),
        ];
        members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Parses `source` again, because its tree was not kept. `None` if it is not a document.
    fn reread(&self, source: SourceId) -> Option<Node> {
        let file = self.file(source)?;
        read(source, &file.text, file.format?).ok()
    }
}

/// The part of a line around `byte`, which has `column` characters before it, and how many characters were cut before it.
fn window(line: &str, byte: usize, column: usize) -> (String, usize) {
    let visible = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    if line.chars().nth(SHOWN).is_none() {
        return (line.chars().map(visible).collect(), 0);
    }
    let before = line.get(..line.floor_char_boundary(byte)).unwrap_or_default();
    let start = before.char_indices().rev().nth(SHOWN / 2 - 1).map_or(0, |(at, _)| at);
    // A place in the line's end, which is not shown, has up to two characters more before it.
    let skip = column.saturating_sub(byte.saturating_sub(line.len())).saturating_sub(SHOWN / 2);
    let shown = line.get(start..).unwrap_or_default();
    (shown.chars().take(SHOWN).map(visible).collect(), skip)
}

/// Text from a document, without anything that would move a terminal's cursor.
fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        text.replace(char::is_control, "\u{fffd}").into()
    } else {
        text.into()
    }
}
