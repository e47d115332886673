//! Writes YAML with comments, laid out as a person would: short things on one line, the rest in blocks.

/// How long a line may become by putting a collection on it.
const WIDTH: usize = 100;

/// How long a line of a comment may be.
const COMMENT_WIDTH: usize = 110;

/// Plain words that some reader of YAML takes for something else than a string.
const RESERVED: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// A value to write.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    /// A scalar in its written form.
    Scalar(String),
    /// A list.
    List(Vec<Item>),
    /// A mapping, in this order.
    Map(Vec<Entry>),
}

/// An element of a list, and the comments before it.
#[derive(Clone, Debug)]
pub(super) struct Item {
    comments: Vec<String>,
    value: Tree,
}

/// A member of a mapping, and the comments before it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    comments: Vec<String>,
    key: String,
    value: Tree,
    layout: Layout,
}

/// How a member is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// On one line if it fits.
    Fit,
    /// In a block, whatever its size.
    Block,
}

impl Tree {
    /// A string that a source wrote: `${…}` in it stays what it is.
    pub(super) fn text(text: &str) -> Self {
        Self::own(&text.replace("${", "$${"))
    }

    /// A string of ours, in which `${…}` is a variable.
    pub(super) fn own(text: &str) -> Self {
        Self::Scalar(if is_plain(text) { text.to_owned() } else { quoted(text) })
    }

    /// A number, or another word that is no string.
    pub(super) fn word(word: impl std::fmt::Display) -> Self {
        Self::Scalar(format!("{word}"))
    }

    /// Strings that a source wrote.
    pub(super) fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        Self::list(texts.into_iter().map(Self::text))
    }

    /// A list without comments.
    pub(super) fn list(values: impl IntoIterator<Item = Self>) -> Self {
        Self::List(values.into_iter().map(|value| Item { comments: Vec::new(), value }).collect())
    }

    /// A mapping without comments.
    pub(super) fn map<'k>(entries: impl IntoIterator<Item = (&'k str, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(key, value)| Entry::new(key, value)).collect())
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Scalar(_) => false,
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
        }
    }

    /// The value on one line. `None` if comments or blocks are inside.
    fn flow(&self) -> Option<String> {
        match self {
            Self::Scalar(text) => Some(text.clone()),
            Self::List(items) => {
                let bare =
                    |item: &Item| item.comments.is_empty().then(|| item.value.flow()).flatten();
                let items: Vec<String> = items.iter().map(bare).collect::<Option<_>>()?;
                Some(format!("[{}]", items.join(", ")))
            }
            Self::Map(entries) if entries.is_empty() => Some("{}".to_owned()),
            Self::Map(entries) => {
                let bare = |entry: &Entry| {
                    let plain = entry.layout == Layout::Fit && entry.comments.is_empty();
                    let value = plain.then(|| entry.value.flow()).flatten()?;
                    Some(format!("{}: {value}", key(&entry.key)))
                };
                let entries: Vec<String> = entries.iter().map(bare).collect::<Option<_>>()?;
                Some(format!("{{ {} }}", entries.join(", ")))
            }
        }
    }

    /// The lines of a document that is this value.
    pub(super) fn document(&self) -> String {
        let mut text = self.lines(WIDTH).join("\n");
        text.push('\n');
        text
    }

    fn lines(&self, width: usize) -> Vec<String> {
        match self {
            Self::Scalar(text) => vec![text.clone()],
            Self::List(items) => items.iter().flat_map(|item| item.lines(width)).collect(),
            Self::Map(entries) => entries.iter().flat_map(|entry| entry.lines(width)).collect(),
        }
    }
}

impl Item {
    pub(super) fn new(comments: Vec<String>, value: Tree) -> Self {
        Self { comments, value }
    }

    fn lines(&self, width: usize) -> Vec<String> {
        let mut lines = commented(&self.comments);
        let inner = width.saturating_sub(2);
        if let Some(flow) = self.value.flow().filter(|flow| flow.chars().count() <= inner) {
            lines.push(format!("- {flow}"));
            return lines;
        }
        let mut begun = false;
        for line in self.value.lines(inner) {
            if !begun && line.starts_with('#') {
                // A comment before the first member stands before the dash.
                lines.push(line);
            } else {
                lines.push(format!("{}{line}", if begun { "  " } else { "- " }));
                begun = true;
            }
        }
        lines
    }
}

impl Entry {
    pub(super) fn new(key: impl Into<String>, value: Tree) -> Self {
        Self { comments: Vec::new(), key: key.into(), value, layout: Layout::Fit }
    }

    /// The same, in a block.
    pub(super) fn block(key: impl Into<String>, value: Tree) -> Self {
        Self { layout: Layout::Block, ..Self::new(key, value) }
    }

    /// The same, below comments.
    pub(super) fn below(mut self, comments: Vec<String>) -> Self {
        self.comments = comments;
        self
    }

    fn lines(&self, width: usize) -> Vec<String> {
        let mut lines = commented(&self.comments);
        let key = key(&self.key);
        let room = width.saturating_sub(key.chars().count() + 2);
        let short = (self.layout != Layout::Block || self.value.is_empty())
            .then(|| self.value.flow())
            .flatten();
        let mut own = match short.filter(|flow| flow.chars().count() <= room) {
            Some(flow) => vec![format!("{key}: {flow}")],
            None => match &self.value {
                Tree::Scalar(text) => vec![format!("{key}: {text}")],
                nested => {
                    let nested = nested.lines(width.saturating_sub(2));
                    let nested = nested.into_iter().map(|line| format!("  {line}"));
                    std::iter::once(format!("{key}:")).chain(nested).collect()
                }
            },
        };
        lines.append(&mut own);
        lines
    }
}

/// Comments, a sentence each, as lines.
fn commented(comments: &[String]) -> Vec<String> {
    comments.iter().flat_map(|comment| wrapped(comment)).collect()
}

/// One comment as lines. What no line may hold becomes a blank.
pub(super) fn wrapped(comment: &str) -> Vec<String> {
    let clean: String = comment.chars().map(|c| if is_printable(c) { c } else { ' ' }).collect();
    let mut lines = Vec::new();
    let mut line = String::from("#");
    for word in clean.split_whitespace() {
        if line.chars().count() + word.chars().count() >= COMMENT_WIDTH && line.len() > 1 {
            lines.push(std::mem::replace(&mut line, String::from("#")));
        }
        line.push(' ');
        line.push_str(word);
    }
    lines.push(line);
    lines
}

fn key(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { quoted(text) }
}

fn is_printable(c: char) -> bool {
    c.is_ascii_graphic() || c == ' ' || (!c.is_ascii() && c.is_alphanumeric()) || c == '…'
}

/// Whether `text` is the same string without quotes, also inside brackets.
fn is_plain(text: &str) -> bool {
    // A class of statuses, and an address with a port.
    if matches!(text, "1xx" | "2xx" | "3xx" | "4xx" | "5xx")
        || text.parse::<std::net::SocketAddrV4>().is_ok()
    {
        return true;
    }
    let first = |c: char| c.is_ascii_alphabetic() || c == '/';
    let inner = |c: char| c.is_ascii_alphanumeric() || "_./-+@%:".contains(c);
    text.starts_with(first)
        && text.chars().all(inner)
        && !text.ends_with(':')
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str())
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            _ if is_printable(c) => quoted.push(c),
            _ => quoted.extend(format!("\\U{:08x}", u32::from(c)).chars()),
        }
    }
    quoted.push('"');
    quoted
}
