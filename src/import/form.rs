//! The neutral form between the readers and the writer: upstreams, routes and what surrounds their calls.

use super::codes;
use super::yaml::{Entry, Tree};
use crate::language::temporal::Span;

/// How many routes are written. More are of a generated file, for which a generator of ours is the better way.
pub(super) const MAX_ROUTES: usize = 2000;

/// A place in the source: line and column, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Something that the reader of the configuration has to know.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) at: At,
    pub(super) text: String,
    /// Whether the source asks for something that is not written.
    pub(super) lost: bool,
}

/// Notes about one thing.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(pub(super) Vec<Note>);

impl Notes {
    /// Something has no equal here.
    pub(super) fn lost(&mut self, at: At, text: impl Into<String>) {
        self.0.push(Note { at, text: text.into(), lost: true });
    }

    /// Something is written, and the reader should know this about it.
    pub(super) fn told(&mut self, text: impl Into<String>) {
        self.0.push(Note { at: At::default(), text: text.into(), lost: false });
    }
}

/// Everything that was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Form {
    pub(super) notes: Notes,
    /// `address:port` of each listener. Without any, a usual one is written.
    pub(super) listeners: Vec<String>,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) routes: Vec<Route>,
}

impl Form {
    /// Whether there are more routes than are written, so that reading on is of no use.
    pub(super) fn is_full(&self) -> bool {
        self.routes.len() > MAX_ROUTES || self.upstreams.len() > MAX_ROUTES
    }

    /// The upstream of this name, which is made if there is none.
    pub(super) fn upstream(&mut self, name: &str) -> Option<&mut Upstream> {
        if !self.upstreams.iter().any(|upstream| upstream.name == name) {
            self.upstreams.push(Upstream { name: name.to_owned(), ..Upstream::default() });
        }
        self.upstreams.iter_mut().find(|upstream| upstream.name == name)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Upstream {
    pub(super) name: String,
    pub(super) notes: Notes,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) http2: bool,
    pub(super) connect_timeout: Option<Span>,
    pub(super) response_timeout: Option<Span>,
    pub(super) idle_timeout: Option<Span>,
    pub(super) keep_alive: Option<Span>,
    pub(super) retry_after_max: Option<Span>,
    pub(super) max_requests: Option<u64>,
    pub(super) max_wait: Option<Span>,
    /// Keys with parameters of their own, each once.
    pub(super) features: Vec<Feature>,
}

impl Upstream {
    /// A route to it, where the source has none.
    pub(super) fn route(&self) -> Route {
        let name = self.name.clone();
        let matches = Match { path_prefix: Some(format!("/{name}")), ..Match::default() };
        Route { name: name.clone(), upstream: name, matches, ..Route::default() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) url: String,
    pub(super) weight: Option<u64>,
    pub(super) notes: Notes,
}

impl Endpoint {
    pub(super) fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), weight: None, notes: Notes::default() }
    }
}

/// A key of an upstream.
#[derive(Clone, Debug)]
pub(super) struct Feature {
    pub(super) key: &'static str,
    pub(super) value: Tree,
    pub(super) at: At,
}

/// Which requests a route takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Match {
    pub(super) hosts: Vec<String>,
    pub(super) path: Option<String>,
    pub(super) path_prefix: Option<String>,
    pub(super) methods: Vec<String>,
    /// A value, or any.
    pub(super) headers: Vec<(String, Option<String>)>,
    pub(super) query: Vec<(String, Option<String>)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Route {
    pub(super) name: String,
    pub(super) notes: Notes,
    pub(super) matches: Match,
    pub(super) upstream: String,
    pub(super) rewrite_prefix: Option<String>,
    pub(super) rewrite_host: Option<String>,
    pub(super) request_headers: Edits,
    pub(super) response_headers: Edits,
    pub(super) classify: Vec<Rule>,
    /// The outermost first.
    pub(super) layers: Vec<Layer>,
    pub(super) catch: Vec<Catch>,
    pub(super) steps: Vec<Step>,
}

/// Changes of header fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Edits {
    pub(super) set: Vec<(String, String)>,
    pub(super) append: Vec<(String, String)>,
    pub(super) remove: Vec<String>,
}

/// A rule of `classify`.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub(super) notes: Notes,
    pub(super) statuses: Vec<Status>,
    /// A CEL expression, without its braces.
    pub(super) when: Option<String>,
    pub(super) code: String,
    pub(super) retryable: Option<Retryable>,
}

/// A status, or a class of them by its first digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    One(u16),
    Class(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retryable {
    Yes,
    No,
    ByMethod,
}

/// An entry of a route's stack.
#[derive(Clone, Debug)]
pub(super) enum Layer {
    Timeout {
        duration: Span,
        notes: Notes,
    },
    Retry(Retry),
    /// Another middleware of ours: its name and its parameters.
    Other {
        name: &'static str,
        with: Vec<(&'static str, Tree)>,
        notes: Notes,
    },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Retry {
    pub(super) notes: Notes,
    pub(super) policies: Vec<Policy>,
    /// CEL expressions, without their braces.
    pub(super) delay: Option<String>,
    pub(super) when: Option<String>,
    /// The code of a failure that rises.
    pub(super) code: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Policy {
    pub(super) notes: Notes,
    pub(super) codes: Vec<String>,
    pub(super) types: Vec<&'static str>,
    pub(super) retryable: bool,
    pub(super) attempts: u64,
    pub(super) backoff: Option<Backoff>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Backoff {
    pub(super) notes: Notes,
    pub(super) initial: Span,
    pub(super) rate: f64,
    pub(super) max: Option<Span>,
    pub(super) jitter: Option<&'static str>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Catch {
    pub(super) notes: Notes,
    pub(super) codes: Vec<String>,
    pub(super) types: Vec<&'static str>,
    pub(super) next: String,
}

/// A Step behind a `catch`.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) notes: Notes,
    pub(super) name: String,
    pub(super) fields: Vec<Entry>,
}

impl Policy {
    /// Says that `who` sends any request again, where the route takes requests that may not be sent twice.
    pub(super) fn tell_of_methods(&mut self, who: &str, methods: &[String]) {
        let harmless = [codes::REFUSED, "Upstream.Throttled"];
        let once = self.codes.iter().any(|code| !harmless.contains(&code.as_str()));
        let idempotent = ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"];
        let safe = !methods.is_empty()
            && methods.iter().all(|method| idempotent.contains(&method.as_str()));
        if once && !safe && !self.retryable && self.attempts > 1 {
            self.notes.told(format!(
                "{who} sends any request again, a POST, too. `retryable: true` keeps to those that may be sent twice."
            ));
        }
    }
}

impl Step {
    /// A Step that answers with this status.
    pub(super) fn answer(name: &str, status: u16) -> Self {
        let value = Tree::map([("status", Tree::word(status))]);
        let fields = vec![Entry::new("action", Tree::own("Return")), Entry::new("value", value)];
        Self { notes: Notes::default(), name: name.to_owned(), fields }
    }
}

/// `text` as a name that a route, an upstream or a Step may have.
pub(super) fn name(text: &str) -> String {
    let letter = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name: String = text.chars().take(80).map(|c| if letter(c) { c } else { '-' }).collect();
    let name = name.trim_matches(['-', '.']).to_owned();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// `name` if `taken` lacks it, else with a number.
pub(super) fn unique(name: String, taken: &[String]) -> String {
    if !taken.contains(&name) {
        return name;
    }
    let numbers = 2..=taken.len() + 2;
    let mut others = numbers.map(|number| format!("{name}-{number}"));
    others.find(|other| !taken.contains(other)).unwrap_or(name)
}
