//! Stacks and their entries (MWL, "Middleware mechanics").

use std::sync::Arc;

use super::Compiler;
use super::fields::Fields;
use super::flow::Position;
use super::site::Site;
use crate::language::plan::{EntryPlan, StackPlan};
use crate::language::provider::{Contract, ContractKind, Middleware, Phase, WrittenEntry};
use crate::language::uri::ProviderKind;
use crate::source::{Node, Span};

const FIELDS: [&str; 6] = ["provider", "onEntry", "onSuccess", "onFailure", "onAlways", "comment"];

/// Where a stack attaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Step,
    Flow,
}

/// An entry that is being compiled.
#[derive(Clone, Copy)]
pub(super) struct Entry<'e> {
    pub(super) fields: &'e Fields<'e>,
    pub(super) middleware: Option<&'e Arc<dyn Middleware>>,
    pub(super) at: Position<'e>,
    /// The site of the stack, and of a cleanup's own stack.
    pub(super) base: Site<'e>,
}

impl<'e> Entry<'e> {
    pub(super) fn contract(&self) -> Option<&'e Contract> {
        self.middleware.map(|middleware| middleware.contract())
    }

    /// The place for errors about what is missing in the entry.
    pub(super) fn place(&self) -> Span {
        self.fields.get("provider").map_or(self.fields.node.span, |provider| provider.span)
    }
}

impl Compiler<'_> {
    /// A stack at the site `base`, outermost first.
    pub(super) fn stack(
        &mut self,
        node: Option<&Node>,
        at: Position<'_>,
        level: Level,
        base: Site<'_>,
    ) -> Option<StackPlan> {
        let Some(node) = node else {
            return Some(StackPlan::default());
        };
        let items = self.items(node, "`middleware`");
        let entries: Vec<_> = items.iter().map(|item| self.entry(item, at, level, base)).collect();
        let entries: Option<StackPlan> = entries.into_iter().collect();
        entries.filter(|_| node.as_array().is_some())
    }

    fn entry(
        &mut self,
        node: &Node,
        at: Position<'_>,
        level: Level,
        base: Site<'_>,
    ) -> Option<EntryPlan> {
        let fields = self.fields(node, "a middleware entry", &FIELDS)?;
        let middleware = self
            .required(&fields, "provider")
            .and_then(|provider| self.middleware(provider, level));
        let entry = Entry { fields: &fields, middleware: middleware.as_ref(), at, base };
        self.written.insert(entry.place(), node.clone());
        let phases = Phase::ALL.map(|phase| self.phase(entry, phase));
        if let Some(middleware) = &middleware {
            middleware.check(WrittenEntry(node), &mut self.found);
            self.keeps_state |= middleware.keeps_state();
        }
        let [Some(first), Some(success), Some(failure), Some(always)] = phases else {
            return None;
        };
        let phases = [first, success, failure, always];
        Some(EntryPlan { span: entry.place(), middleware: middleware?, phases })
    }

    fn middleware(&mut self, node: &Node, level: Level) -> Option<Arc<dyn Middleware>> {
        let uri = self.provider_uri(node, ProviderKind::Middleware)?;
        let Some(middleware) = self.catalog.middleware(uri.as_str()).map(Arc::clone) else {
            self.unknown_provider(node, &uri);
            return None;
        };
        if let ContractKind::Middleware { step, flow, .. } = &middleware.contract().kind {
            let (fits, here, there) = match level {
                Level::Step => (*step, "a Step", "Flows"),
                Level::Flow => (*flow, "a Flow", "Steps"),
            };
            if !fits {
                let message = format!("`{}` does not attach to {here}", uri.as_str());
                let help = format!("it attaches to {there} only");
                self.error_with_help("wrong-attachment", node.span, message, help);
            }
        }
        Some(middleware)
    }
}
