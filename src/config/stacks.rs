//! `stacks:`, and the `{ stack: NAME }` items that are replaced by them.
//!
//! Items are replaced in place, so that the compiled definition is plain MWL. A stack with parameters is filled with the
//! item's `with` first (`stack_parameters`). Only places where MWL
//! expects a list of middleware entries are searched: an object in somebody's `with` may have a member
//! `stack` of its own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::read::Object;
use super::report::Report;
use super::stack_parameters::{Use, declared, filled, list_of, parameters_of};
use super::standard::{self, STANDARD};
use crate::source::{Diagnostic, Kind, Member, Node, Span};

/// The phase keys of a middleware entry, whose `with` may hold definitions.
const PHASES: [&str; 4] = ["onEntry", "onSuccess", "onFailure", "onAlways"];

/// The largest number of values in all stacks, with those that they name. Lists that name lists could grow without bound.
const ROOM: usize = 100_000;

/// How many values a file may stand for beyond those that it holds: [`copies`] says how many for which length.
const COPIES: std::ops::RangeInclusive<usize> = 30_000..=2_000_000;

/// A file of this many bytes may stand for as many values. One of half the length may for a quarter of them.
const EVEN: usize = 128 * 1024;

/// What an object that names a provider costs, however little it says: a middleware may keep state and series for it.
const PROVIDED: usize = 5;

/// The most stacks of which each names the next.
const DEEPEST: usize = 100;

/// How many values a file of this many bytes may stand for beyond those that it holds: in the uses of its stacks, in the stack
/// around all routes and in Flows' files that several routes name. Each costs one or two microseconds, and a short file must not
/// take long; a long one, whose many routes share a stack, may.
fn copies(length: usize) -> usize {
    length.saturating_mul(length).div_euclid(EVEN).clamp(*COPIES.start(), *COPIES.end())
}

/// The named stacks, expanded.
pub(super) struct Stacks<'a> {
    written: Written<'a>,
    /// Those without parameters.
    lists: BTreeMap<Arc<str>, Vec<Node>>,
}

/// The stacks as written, while they are expanded.
struct Written<'a> {
    report: &'a Report,
    members: BTreeMap<&'a str, &'a Member>,
    /// What is left of [`ROOM`], or of [`copies`] when all have been read; `None` once the error that nothing is left was
    /// reported.
    room: Cell<Option<usize>>,
    most: Cell<usize>,
    /// Whether all stacks have been read.
    read: Cell<bool>,
    /// What was expanded already, unless it is part of a circle.
    done: RefCell<BTreeMap<&'a str, Expanded>>,
    /// How often an expansion ended because it had come to a circle.
    circles: Cell<usize>,
    too_deep: Cell<bool>,
}

/// The entries of one stack.
#[derive(Clone, Default)]
struct Expanded {
    entries: Vec<Node>,
    /// The most stacks of which each names the next, beginning with this one.
    height: usize,
}

/// What is expanded: a list of entries, a `call` object or a Flow object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    List,
    Call,
    Flow,
}

/// A pass that replaces items.
struct Expansion<'a> {
    report: &'a Report,
    /// Returns the entries of a stack; reports what is wrong.
    stack: &'a mut dyn FnMut(Use<'_>) -> Vec<Node>,
}

impl<'a> Stacks<'a> {
    /// Expands the stacks themselves. They may name one another, but not in a circle.
    /// `length` is that of the file in bytes.
    pub(super) fn read(report: &'a Report, members: &'a [Member], length: usize) -> Self {
        let written = Written {
            report,
            members: members.iter().map(|member| (&*member.key, member)).collect(),
            room: Cell::new(Some(ROOM)),
            most: Cell::new(ROOM),
            read: Cell::new(false),
            done: RefCell::default(),
            circles: Cell::new(0),
            too_deep: Cell::new(false),
        };
        let expanded = members.iter().map(|member| {
            declared(report, member);
            let expanded = written.expanded(member, None, &mut Vec::new());
            (Arc::clone(&member.key), expanded.entries)
        });
        let lists = expanded.collect();
        let copies = copies(length);
        written.room.set(written.room.get().map(|_| copies));
        written.most.set(copies);
        written.read.set(true);
        Self { written, lists }
    }

    /// Replaces the items in `node`. Parts that name no stack stay shared with the file's tree.
    pub(super) fn expand(&self, node: &mut Node, part: Part) {
        if !names_one(node) {
            return;
        }
        let mut stack = |used: Use<'_>| self.entries(used);
        let mut expansion = Expansion { report: self.written.report, stack: &mut stack };
        match part {
            Part::List => expansion.list(node),
            Part::Call => expansion.call(node),
            Part::Flow => expansion.flow(node),
        }
    }

    /// Takes room for `copied`, which stands in the file once and is compiled once more; returns whether there was enough.
    pub(super) fn has_room_for(&self, copied: &[Node], span: Span) -> bool {
        self.written.takes(copied, span)
    }

    /// The entries of the stack that an item of a route names.
    fn entries(&self, used: Use<'_>) -> Vec<Node> {
        if used.name == STANDARD && used.with.is_none() {
            let entries = standard::entries(used.span);
            return if self.written.takes(&entries, used.span) { entries } else { Vec::new() };
        }
        let Written { report, members, .. } = &self.written;
        let plain = members.get(used.name).is_none_or(|member| parameters_of(member).is_none());
        if !plain || used.with.is_some() {
            return self.written.named(used, &mut Vec::new()).entries;
        }
        let Some(entries) = self.lists.get(used.name) else {
            let known = self.lists.keys().map(AsRef::as_ref);
            report.unknown_name("unknown-stack", "stack", (used.name, used.span), known);
            return Vec::new();
        };
        if self.written.takes(entries, used.span) { entries.clone() } else { Vec::new() }
    }
}

impl<'a> Written<'a> {
    /// The entries of one stack, with the stacks that it names expanded. `filled` is its list if it has parameters, which
    /// have values then. `open` lists the stacks that are being expanded around it.
    fn expanded(
        &self,
        member: &'a Member,
        filled: Option<Node>,
        open: &mut Vec<&'a str>,
    ) -> Expanded {
        let plain = filled.is_none();
        if let Some(done) = self.done.borrow().get(&*member.key).filter(|_| plain) {
            return done.clone();
        }
        let mut list = filled.unwrap_or_else(|| list_of(member).clone());
        let circles = self.circles.get();
        let mut height = 0;
        open.push(&member.key);
        let mut stack = |used: Use<'_>| {
            let inner = self.named(used, open);
            height = height.max(inner.height);
            inner.entries
        };
        Expansion { report: self.report, stack: &mut stack }.list(&mut list);
        open.pop();
        let entries = match list.kind {
            Kind::Array(entries) => entries.to_vec(),
            _ => Vec::new(),
        };
        let expanded = Expanded { entries, height: height + 1 };
        if self.circles.get() == circles && plain {
            self.done.borrow_mut().insert(&member.key, expanded.clone());
        }
        expanded
    }

    /// The entries of a stack that another one names.
    fn named(&self, used: Use<'_>, open: &mut Vec<&'a str>) -> Expanded {
        let Use { name, span, .. } = used;
        if name == STANDARD && used.with.is_none() {
            return Expanded { entries: standard::entries(span), height: 1 };
        }
        let Some(inner) = self.members.get(name) else {
            let known = self.members.keys().copied();
            self.report.unknown_name("unknown-stack", "stack", (name, span), known);
            return Expanded::default();
        };
        if let Some(from) = open.iter().position(|outer| *outer == name) {
            // Reported once: for the stack of the circle whose name sorts first.
            let circle = open.get(from..).unwrap_or_default();
            if from == 0 && circle.iter().min() == circle.first() {
                let path: Vec<&str> = circle.iter().copied().chain([name]).collect();
                let path = path.join("` → `");
                let message =
                    format!("the stack `{name}` holds itself: `{path}`; remove one of these items");
                self.report.error("stack-cycle", span, message);
            }
            self.circles.set(self.circles.get() + 1);
            return Expanded::default();
        }
        if self.room.get().is_none() {
            return Expanded::default();
        }
        let deep = open.len() >= DEEPEST;
        let expanded = if deep {
            Expanded::default()
        } else {
            self.expanded(inner, filled(self.report, inner, used), open)
        };
        if deep || expanded.height >= DEEPEST {
            if !self.too_deep.replace(true) {
                let message = format!("more than {DEEPEST} stacks name one another in a row");
                let diagnostic = Diagnostic::error("stacks-too-deep", span, message);
                self.report.add(diagnostic.with_help("name the entries in fewer steps"));
            }
            return Expanded::default();
        }
        if self.takes(&expanded.entries, span) { expanded } else { Expanded::default() }
    }

    /// Takes room for `entries` and returns whether there was enough. Too little is reported once.
    fn takes(&self, entries: &[Node], span: Span) -> bool {
        // An empty list still costs the item that names it.
        let needed = entries.iter().map(values).sum::<usize>() + 1;
        let left = self.room.get().and_then(|left| left.checked_sub(needed));
        if left.is_none() && self.room.get().is_some() {
            let most = self.most.get();
            let (all, help) = if self.read.get() {
                let help = "name them in fewer places; a longer file may hold more";
                (
                    "all uses of stacks, of the stack around all routes and of Flows' files hold",
                    help,
                )
            } else {
                ("all that stacks stand for holds", "let fewer stacks name others")
            };
            let message = format!("{all} more than {most} values");
            let diagnostic = Diagnostic::error("stacks-too-large", span, message);
            self.report.add(diagnostic.with_help(help));
        }
        self.room.set(left);
        left.is_some()
    }
}

/// The number of values in a tree. An entry or a call counts as [`PROVIDED`] at least.
fn values(node: &Node) -> usize {
    1 + match &node.kind {
        Kind::Array(items) => items.iter().map(values).sum(),
        Kind::Object(members) => {
            let within = members.iter().map(|member| values(&member.value)).sum();
            if node.get("provider").is_some() { PROVIDED.max(within) } else { within }
        }
        _ => 0,
    }
}

impl Expansion<'_> {
    fn list(&mut self, list: &mut Node) {
        let Kind::Array(items) = &mut list.kind else {
            // This mistake concerns the whole value. The language would report it, but it does not know stacks.
            if list.get("stack").is_some() {
                let diagnostic =
                    Diagnostic::error("wrong-type", list.span, "a stack is named inside a list");
                self.report.add(diagnostic.with_help("write `[{ stack: NAME }]`"));
                list.kind = Kind::Array(Arc::default());
            }
            return;
        };
        let mut entries = Vec::with_capacity(items.len());
        for item in std::mem::take(items).iter() {
            if let Some(named) = item.member("stack") {
                entries.extend(self.named(item, named));
                continue;
            }
            let mut item = item.clone();
            self.entry(&mut item);
            entries.push(item);
        }
        list.kind = Kind::Array(entries.into());
    }

    /// The entries that replace an item with a member `stack`.
    fn named(&mut self, item: &Node, stack: &Member) -> Vec<Node> {
        for other in item.as_object().unwrap_or_default() {
            if !matches!(&*other.key, "stack" | "with") {
                let message = format!(
                    "`{}` beside `stack`: the item stands for the whole list; write another item for it",
                    other.key
                );
                self.report.error("unknown-key", other.key_span, message);
            }
        }
        let Some(name) = self.report.text("stack", &stack.value) else {
            return Vec::new();
        };
        (self.stack)(Use { name, span: stack.value.span, with: item.get("with") })
    }

    /// In a middleware entry the structural parameters of a phase contain definitions.
    fn entry(&mut self, entry: &mut Node) {
        for phase in PHASES {
            let with = member_mut(entry, phase).and_then(|block| member_mut(block, "with"));
            if let Some(with) = with.filter(|with| with.get("call").is_some()) {
                self.stack_and_call(with);
            }
        }
    }

    fn stack_and_call(&mut self, node: &mut Node) {
        if let Some(list) = member_mut(node, "middleware") {
            self.list(list);
        }
        if let Some(call) = member_mut(node, "call") {
            self.call(call);
        }
    }

    fn call(&mut self, call: &mut Node) {
        if let Some(flow) = member_mut(call, "flow") {
            self.flow(flow);
        }
    }

    fn step(&mut self, step: &mut Node) {
        self.stack_and_call(step);
        if let Some(Kind::Array(calls)) = member_mut(step, "calls").map(|node| &mut node.kind) {
            for call in Arc::make_mut(calls) {
                self.call(call);
            }
        }
    }

    fn flow(&mut self, flow: &mut Node) {
        if let Some(list) = member_mut(flow, "middleware") {
            self.list(list);
        }
        if let Some(Kind::Object(steps)) = member_mut(flow, "steps").map(|node| &mut node.kind) {
            for step in Arc::make_mut(steps) {
                self.step(&mut step.value);
            }
        }
        if let Some(Kind::Object(flows)) = member_mut(flow, "flows").map(|node| &mut node.kind) {
            for flow in Arc::make_mut(flows) {
                self.flow(&mut flow.value);
            }
        }
    }
}

fn member_mut<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let Kind::Object(members) = &mut node.kind else {
        return None;
    };
    let position = members.iter().position(|member| &*member.key == key)?;
    Arc::make_mut(members).get_mut(position).map(|member| &mut member.value)
}

/// Whether any object in `node` has a member `stack`; if not, the tree need not be copied.
fn names_one(node: &Node) -> bool {
    match &node.kind {
        Kind::Array(items) => items.iter().any(names_one),
        Kind::Object(members) => {
            members.iter().any(|member| &*member.key == "stack" || names_one(&member.value))
        }
        _ => false,
    }
}

/// Collects the names of the stacks that `node` uses, to find those that are never used.
fn used<'a>(node: &'a Node, names: &mut BTreeSet<&'a str>) {
    match &node.kind {
        Kind::Array(items) => {
            for item in items.iter() {
                if let Some(name) = item.get("stack").and_then(Node::as_str) {
                    names.insert(name);
                }
                used(item, names);
            }
        }
        Kind::Object(members) => members.iter().for_each(|member| used(&member.value, names)),
        _ => {}
    }
}

/// Warns about stacks that are never used.
pub(super) fn unused(report: &Report, root: &Object<'_>) {
    let mut names = BTreeSet::new();
    used(root.node, &mut names);
    for member in root.map("stacks") {
        if !names.contains(&*member.key) {
            let message = format!("no list names the stack `{}`", member.key);
            report.add(Diagnostic::warning("unused-stack", member.key_span, message));
        }
    }
}
