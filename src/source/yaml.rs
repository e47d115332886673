//! Reads YAML 1.2 into a tree.
//!
//! The events come from `granit-parser`, with places. The core schema (YAML 1.2.2, §10.3) decides what a
//! plain scalar is, so `no` and `1:30` are strings, and `010` is ten. Anchors and aliases work. What
//! different YAML readers understand differently is refused: tags, merge keys, keys that are not strings,
//! more than one document.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, StructureStyle};

use super::interner::Interner;
use super::json::{Seen, duplicate, out_of_range, too_deep};
use super::node::with_article;
use super::{Diagnostic, Diagnostics, Kind, MAX_DEPTH, Member, Node, SourceId, Span};

/// How many values all aliases of a file together may stand for.
const MAX_ALIASED: usize = 100_000;

/// The one document of `text`.
pub(super) fn read(source: SourceId, text: &str) -> Result<Node, Diagnostics> {
    let mut roots = read_all(source, text, 1)?;
    roots.pop().ok_or_else(|| empty(source))
}

/// The documents of `text` that are not empty: at least one, and at most `most`.
pub(super) fn read_all(
    source: SourceId,
    text: &str,
    most: usize,
) -> Result<Vec<Node>, Diagnostics> {
    let mut builder = Builder { source, text, most, ..Builder::default() };
    let options = granit_parser::options! {
        disallow_directives: true,
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH + 1,
        block_nesting_limit: MAX_DEPTH + 1,
    };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                builder.refuse(&error);
                break;
            }
        };
        let span = builder.place(&span);
        if builder.event(event, span).is_break() {
            break;
        }
    }
    builder.finish()
}

#[derive(Default)]
struct Builder<'a> {
    source: SourceId,
    text: &'a str,
    strings: Interner,
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, Anchored>,
    aliased: usize,
    roots: Vec<Node>,
    documents: usize,
    /// How many documents are read.
    most: usize,
    found: Diagnostics,
}

/// A collection that is not closed yet.
struct OpenCollection {
    start: Span,
    flow: bool,
    anchor: usize,
    content: Content,
}

enum Content {
    Items(Vec<Node>),
    Members { members: Vec<Member>, seen: Seen, key: Option<(Arc<str>, Span)> },
}

/// The value of an anchor.
struct Anchored {
    node: Node,
    size: usize,
    height: usize,
}

impl<'a> Builder<'a> {
    fn place(&self, span: &granit_parser::Span) -> Span {
        let range = span.byte_range().unwrap_or_default();
        self.span(range.start, range.end)
    }

    fn span(&self, start: usize, end: usize) -> Span {
        let at = |byte| u32::try_from(byte).unwrap_or(u32::MAX);
        Span { source: self.source, start: at(start), end: at(end.max(start)) }
    }

    fn slice(&self, span: Span) -> &'a str {
        let at = |byte| usize::try_from(byte).unwrap_or(usize::MAX);
        self.text.get(at(span.start)..at(span.end)).unwrap_or_default()
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> ControlFlow<()> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > self.most {
                    let message = match self.most {
                        1 => "a second document starts here; a file holds one".to_owned(),
                        most => format!("more than {most} documents, the most that are read"),
                    };
                    self.found.push(
                        Diagnostic::error("multiple-documents", span, message)
                            .with_help("put it into a file of its own"),
                    );
                    return ControlFlow::Break(());
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                if tag.is_some() {
                    self.tag(span);
                }
                let kind = self.scalar(&text, style, span);
                let merge = style == ScalarStyle::Plain && text == "<<";
                self.complete(Node { span, kind }, anchor, merge);
            }
            Event::SequenceStart(style, anchor, tag) => {
                return self.begin(span, style, anchor, tag.is_some(), Content::Items(Vec::new()));
            }
            Event::MappingStart(style, anchor, tag) => {
                let content =
                    Content::Members { members: Vec::new(), seen: Seen::new(), key: None };
                return self.begin(span, style, anchor, tag.is_some(), content);
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Alias(anchor) => return self.alias(anchor, span),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn begin(
        &mut self,
        span: Span,
        style: StructureStyle,
        anchor: usize,
        tagged: bool,
        content: Content,
    ) -> ControlFlow<()> {
        if tagged {
            self.tag(span);
        }
        if self.open.len() >= MAX_DEPTH {
            self.found.push(too_deep(span));
            return ControlFlow::Break(());
        }
        self.open.push(OpenCollection {
            start: span,
            flow: style == StructureStyle::Flow,
            anchor,
            content,
        });
        ControlFlow::Continue(())
    }

    fn end(&mut self, span: Span) {
        let Some(open) = self.open.pop() else { return };
        let (kind, last) = match open.content {
            Content::Items(items) => {
                let last = items.last().map(|item| item.span.end);
                (Kind::Array(items.into()), last)
            }
            Content::Members { members, .. } => {
                let last = members.last().map(|member| member.value.span.end);
                (Kind::Object(members.into()), last)
            }
        };
        // A block collection has no closing mark: the place of its end event is that of what follows.
        let end = if open.flow { Some(span.end) } else { last };
        let span = Span { end: end.unwrap_or(open.start.end).max(open.start.end), ..open.start };
        self.complete(Node { span, kind }, open.anchor, false);
    }

    fn alias(&mut self, anchor: usize, span: Span) -> ControlFlow<()> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            let message = "this alias stands inside the value that it names";
            self.found.push(Diagnostic::error("yaml-alias-loop", span, message));
            return ControlFlow::Break(());
        };
        self.aliased += anchored.size;
        if self.aliased > MAX_ALIASED {
            let message =
                format!("the aliases of this file stand for more than {MAX_ALIASED} values");
            self.found.push(Diagnostic::error("yaml-alias-bomb", span, message));
            return ControlFlow::Break(());
        }
        if self.open.len() + anchored.height > MAX_DEPTH {
            self.found.push(too_deep(span));
            return ControlFlow::Break(());
        }
        let node = anchored.node.clone();
        self.complete(node, 0, false);
        ControlFlow::Continue(())
    }

    /// Puts a complete value where it belongs: it is an element, a key, a member's value or the root.
    fn complete(&mut self, node: Node, anchor: usize, merge: bool) {
        if anchor != 0 {
            let (size, height) = measure(&node);
            let node = node.clone();
            self.anchors.insert(anchor, Anchored { node, size, height });
        }
        let Some(open) = self.open.last_mut() else {
            self.roots.push(node);
            return;
        };
        let problem = match &mut open.content {
            Content::Items(items) => {
                items.push(node);
                None
            }
            Content::Members { members, seen, key } => match key.take() {
                None => {
                    let (name, problem) = key_of(&node, merge, self.text);
                    *key = Some((name, node.span));
                    problem
                }
                Some((key, key_span)) => {
                    if let Some(first) = seen.get_mut(&key) {
                        first.take().map(|first| duplicate(&key, key_span, first))
                    } else {
                        seen.insert(Arc::clone(&key), Some(key_span));
                        members.push(Member { key, key_span, value: node });
                        None
                    }
                }
            },
        };
        if let Some(problem) = problem {
            self.found.push(problem);
        }
    }

    fn tag(&mut self, span: Span) {
        let message = "a tag (`!…`) stands before this value; tags are not read";
        self.found.push(
            Diagnostic::error("yaml-tag", span, message)
                .with_help("remove it; put a string in quotes"),
        );
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, span: Span) -> Kind {
        if style != ScalarStyle::Plain {
            return Kind::String(self.strings.intern(text));
        }
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
            "true" | "True" | "TRUE" => return Kind::Bool(true),
            "false" | "False" | "FALSE" => return Kind::Bool(false),
            _ => {}
        }
        let Some(number) = core_number(text) else {
            return Kind::String(self.strings.intern(text));
        };
        if !number.is_finite() {
            self.found.push(out_of_range(span, self.slice(span)));
        }
        Kind::Number(number)
    }

    fn refuse(&mut self, error: &granit_parser::ScanError) {
        use granit_parser::ErrorKind;
        let at = error.marker().byte_offset().unwrap_or_default();
        let at = self.text.floor_char_boundary(at.min(self.text.len()));
        let next = self.text.get(at..).and_then(|rest| rest.chars().next());
        let span = self.span(at, at + next.map_or(0, char::len_utf8));
        let diagnostic = match error.kind() {
            ErrorKind::DirectiveDisallowed => {
                Diagnostic::error("invalid-yaml", span, "directives (`%…`) are not read")
                    .with_help("remove the line; YAML 1.2 is read without one")
            }
            ErrorKind::UnknownAnchor => {
                Diagnostic::error("invalid-yaml", span, "this alias names no anchor before it")
                    .with_help("put a text that starts with `*` in quotes")
            }
            ErrorKind::TabNotAllowed | ErrorKind::TabInBlockIndentation => {
                Diagnostic::error("invalid-yaml", span, "a tab indents this line")
                    .with_help("indent with spaces")
            }
            ErrorKind::RecursionLimitExceeded => too_deep(span),
            _ => Diagnostic::error("invalid-yaml", span, format!("not YAML: {}", error.info()))
                .with_help("close each bracket, brace and quote before this place, and put texts with `: ` in quotes"),
        };
        self.found.push(diagnostic);
    }

    fn finish(mut self) -> Result<Vec<Node>, Diagnostics> {
        let blank = |node: &Node| node.is_null() && node.span.start == node.span.end;
        if !self.found.is_empty() {
            return Err(self.found.sorted());
        }
        self.roots.retain(|root| !blank(root));
        if self.roots.is_empty() { Err(empty(self.source)) } else { Ok(self.roots) }
    }
}

fn empty(source: SourceId) -> Diagnostics {
    let message = "the file is empty; a YAML value was wanted";
    Diagnostic::error("empty-document", Span { source, start: 0, end: 0 }, message).into()
}

/// The name of a key, and what is wrong with it. A key that is refused gets a name that no other has, so that
/// its value is still consumed.
fn key_of(node: &Node, merge: bool, text: &str) -> (Arc<str>, Option<Diagnostic>) {
    if let Some(name) = node.as_str().filter(|_| !merge) {
        return (Arc::clone(name), None);
    }
    let name = format!("{}\0", node.span.start);
    (name.into(), Some(refused_key(node, merge, text)))
}

fn refused_key(node: &Node, merge: bool, text: &str) -> Diagnostic {
    if merge {
        let message = "merge keys (`<<`) are not read: YAML 1.2 has none";
        return Diagnostic::error("yaml-merge-key", node.span, message)
            .with_help("write the members out, or use an alias for the whole value");
    }
    let at = usize::try_from(node.span.start).unwrap_or(usize::MAX);
    let before = text.get(..at).unwrap_or_default();
    let expression = node.as_object().is_some() && before.ends_with('{');
    let message = format!("a key must be a string; this one is {}", with_article(node.type_name()));
    let help = if expression {
        "put an expression in quotes: \"{{ … }}\""
    } else {
        "put the key in quotes"
    };
    Diagnostic::error("yaml-key-not-string", node.span, message).with_help(help)
}

/// How many values and how many levels of collections `node` has. Its depth is bounded.
fn measure(node: &Node) -> (usize, usize) {
    let own = usize::from(matches!(node.kind, Kind::Array(_) | Kind::Object(_)));
    node.children()
        .map(measure)
        .fold((1, own), |(size, height), (inner, below)| (size + inner, height.max(below + 1)))
}

/// A plain scalar as a number, if it is one under the core schema (YAML 1.2.2, §10.3.2). Infinite if the data
/// model has no such number.
fn core_number(text: &str) -> Option<f64> {
    let radix = |prefix: &str, radix: u32| {
        let digits = text.strip_prefix(prefix)?;
        if digits.is_empty() {
            return None;
        }
        digits.chars().try_fold(0.0, |number, digit| {
            Some(number * f64::from(radix) + f64::from(digit.to_digit(radix)?))
        })
    };
    if let Some(number) = radix("0o", 8).or_else(|| radix("0x", 16)) {
        return Some(number);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(f64::INFINITY);
    }
    let shaped = unsigned.starts_with(|c: char| c.is_ascii_digit())
        || unsigned
            .strip_prefix('.')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let plain = unsigned.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    if shaped && plain { text.parse().ok() } else { None }
}
