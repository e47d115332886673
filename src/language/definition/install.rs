//! Gives each entry of a middleware that keeps state its own instance, once all is compiled.

use std::sync::Arc;

use super::Compiler;
use crate::language::observe::EntryPlace;
use crate::language::plan::{EntryPlan, FlowPlan, Template, With, change_entries};
use crate::language::provider::{Installation, Phase, WrittenEntry};
use crate::language::value::{Map, Value};

impl Compiler<'_> {
    /// Installs the entries of all Flows.
    pub(super) fn install(&mut self, flows: &mut [FlowPlan]) {
        if self.keeps_state {
            change_entries(flows, &mut |place, entry| self.install_entry(place, entry));
        }
    }

    fn install_entry(&mut self, place: EntryPlace<'_>, entry: &mut EntryPlan) {
        if !entry.middleware.keeps_state() {
            return;
        }
        let written = self.written.get(&entry.span).map(WrittenEntry);
        let (known, computed, opaque) = match &entry.phase(Phase::Entry).with {
            With::Literal { value, .. } => (value.clone(), Vec::new(), false),
            With::Dynamic(Template::Object(members)) => {
                let mut known = Map::new();
                let mut computed = Vec::new();
                for (name, value) in members {
                    match value {
                        Template::Constant(value) => {
                            known.insert(Arc::clone(name), value.clone());
                        }
                        _ => computed.push(Arc::clone(name)),
                    }
                }
                (Value::Object(Arc::new(known)), computed, false)
            }
            With::Dynamic(_) => (Value::empty_object(), Vec::new(), true),
        };
        let at = Installation {
            load: self.cache.load(),
            host: self.catalog.host(),
            entry: &place.to_string(),
            cleanup: place.cleanup,
            span: entry.span,
            written,
            known,
            computed,
            opaque,
        };
        if let Some(own) = entry.middleware.installed(&at, &mut self.found) {
            entry.middleware = own;
        }
    }
}
