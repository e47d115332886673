//! The place at which an entry of a middleware that keeps state is installed.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::contract::Phase;
use super::written::WrittenEntry;
use crate::language::value::Value;
use crate::source::{Diagnostic, Span};

/// The host of the definitions that a catalog compiles: a route, and what it lends to middlewares that keep state.
#[derive(Clone, Debug)]
pub struct InstalledFor {
    /// The route's name.
    pub route: Arc<str>,
    /// What the host lends. The language never looks into it.
    pub host: Arc<dyn Any + Send + Sync>,
}

/// One load of a configuration: definitions that are compiled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoadId(u64);

/// Where an entry stands, and what its `onEntry` says.
#[derive(Debug)]
pub struct Installation<'a> {
    /// The load.
    pub load: LoadId,
    /// Whose definition it is; `None` if it is one without a host.
    pub host: Option<&'a InstalledFor>,
    /// The entry's place in its definition, as the label `entry` of metrics: `flow/0`, `charge/1`, `charge/cleanup/0`.
    pub entry: &'a str,
    /// Whether it stands in the stack of a cleanup.
    pub cleanup: bool,
    /// Where it is written.
    pub span: Span,
    /// The entry as written.
    pub written: Option<WrittenEntry<'a>>,
    /// The members of its `with` that hold no expression.
    pub known: Value,
    /// The names of the other members.
    pub computed: Vec<Arc<str>>,
    /// Whether its `with` is one expression, so that nothing of it is known.
    pub opaque: bool,
}

impl LoadId {
    /// One that differs from all others of the process.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Installation<'_> {
    /// The route's name; empty without one.
    pub fn route(&self) -> &str {
        self.host.map_or("", |host| &host.route)
    }

    /// The place of an argument, or of the entry if it is not written.
    pub fn place(&self, argument: &str) -> Span {
        let written = self.written.and_then(|entry| entry.argument(Phase::Entry, argument));
        written.map_or(self.span, |argument| argument.span)
    }

    /// The members of its `with`, of which only those that `may_be_computed` names may hold an expression. They are then
    /// left out.
    ///
    /// # Errors
    /// If another one holds an expression.
    pub fn literals(&self, may_be_computed: &[&str]) -> Result<&Value, Diagnostic> {
        let wrong = self.computed.iter().find(|name| !may_be_computed.contains(&&***name));
        let (place, what) = match wrong {
            Some(name) => (self.place(name), format!("`{name}`")),
            None if self.opaque => (self.span, "its `with`".to_owned()),
            None => return Ok(&self.known),
        };
        let message =
            format!("{what} cannot be an expression: what is kept across requests is made at load");
        let help = "write a literal; `when` is what a request can decide";
        Err(Diagnostic::error("computed-state", place, message).with_help(help))
    }
}
