//! A stack in plain words, for `/routes`, `explain` and the dashboard.

use super::{EntryPlan, Plan, Target, Template, When, With};
use crate::language::expr::Program;
use crate::language::provider::{Arguments, Phase, words};
use crate::language::value::Value;

impl Plan {
    /// What each entry of `stack` does, outermost first: `timeout: PT30S`.
    pub fn described(&self, stack: &[EntryPlan]) -> Vec<String> {
        stack.iter().map(|entry| self.entry(entry)).collect()
    }

    fn entry(&self, entry: &EntryPlan) -> String {
        let name = entry.middleware.contract().uri.bare_name();
        let mut says: Vec<String> =
            Phase::ALL.iter().flat_map(|phase| self.phase(entry, *phase)).collect();
        for phase in Phase::ALL {
            if let Some(when) = &entry.phase(phase).when {
                says.push(format!("{} when {}", phase.key(), when.written()));
            }
        }
        says.retain(|said| !said.is_empty());
        if says.is_empty() { name.to_owned() } else { format!("{name}: {}", says.join("; ")) }
    }

    /// The arguments of one phase, and what it calls.
    fn phase(&self, entry: &EntryPlan, phase: Phase) -> Vec<String> {
        let plan = entry.phase(phase);
        let (written, prepared) = match &plan.with {
            With::Literal { value, prepared } => (value.clone(), prepared.as_ref().ok()),
            With::Dynamic(template) => (template.written(), None),
        };
        let arguments = prepared.map_or(Arguments::Written(&written), Arguments::Prepared);
        let said = entry.middleware.describe(phase, arguments);
        let mut says = vec![said.unwrap_or_else(|| words(&written))];
        if let Some(cleanup) = &plan.cleanup {
            says.push(match &cleanup.call.target {
                Target::Provider(provider) => {
                    format!("calls {}", provider.contract().uri.as_str())
                }
                Target::Flow(id) if self.flow(*id).inline => "calls a Flow of its own".to_owned(),
                Target::Flow(id) => format!("calls the Flow {}", self.flow(*id).name),
            });
        }
        says
    }
}

impl Template {
    /// As it was written.
    fn written(&self) -> Value {
        match self {
            Self::Constant(value) => value.clone(),
            Self::Expression(program) => Value::string(embedded(program)),
            Self::Array(items) => Value::array(items.iter().map(Self::written).collect()),
            Self::Object(members) => {
                Value::object(members.iter().map(|(name, value)| (&**name, value.written())))
            }
        }
    }
}

impl When {
    fn written(&self) -> String {
        match self {
            Self::Literal(holds) => holds.to_string(),
            Self::Expression(program) => embedded(program),
        }
    }
}

fn embedded(program: &Program) -> String {
    format!("{{{{ {} }}}}", program.source())
}
