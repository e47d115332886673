//! The failure codes that a definition names. The definition fixes this set, so it is fit for metrics'
//! labels.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Action, Envelope, Plan, Shape, StepPlan, Template, With};
use crate::language::code::CodePattern;
use crate::language::value::Value;

impl Plan {
    /// Every exact code that a literal of the definition names: in matchers, in constructed failures, in the
    /// arguments of providers and middlewares.
    pub fn codes(&self) -> BTreeSet<Arc<str>> {
        let mut codes = BTreeSet::new();
        for flow in self.flows() {
            flow.steps.iter().for_each(|step| step_codes(step, &mut codes));
        }
        for phase in self.entries().flat_map(|entry| &entry.phases) {
            with_codes(&phase.with, &mut codes);
            if let Shape::Envelope(envelope) = &phase.shape {
                envelope_code(envelope, &mut codes);
            }
            if let Some(cleanup) = &phase.cleanup {
                with_codes(&cleanup.call.with, &mut codes);
            }
        }
        codes
    }
}

fn step_codes(step: &StepPlan, codes: &mut BTreeSet<Arc<str>>) {
    let catch = match &step.action {
        Action::Call(step) => {
            with_codes(&step.call.with, codes);
            &step.catch
        }
        Action::Gather(step) => {
            step.calls.iter().for_each(|call| with_codes(&call.with, codes));
            &step.catch
        }
        Action::Raise(Some(envelope)) => return envelope_code(envelope, codes),
        _ => return,
    };
    let patterns = catch.iter().filter_map(|clause| clause.matcher.codes.as_ref()).flatten();
    codes.extend(patterns.filter_map(|pattern| match pattern {
        CodePattern::Exact(code) => Some(Arc::clone(code)),
        _ => None,
    }));
}

fn envelope_code(envelope: &Envelope, codes: &mut BTreeSet<Arc<str>>) {
    if let Some(Template::Constant(Value::String(code))) = &envelope.code {
        codes.insert(Arc::clone(code));
    }
}

fn with_codes(with: &With, codes: &mut BTreeSet<Arc<str>>) {
    match with {
        With::Literal { value, .. } => value_codes(value, codes),
        With::Dynamic(template) => template_codes(template, codes),
    }
}

fn template_codes(template: &Template, codes: &mut BTreeSet<Arc<str>>) {
    match template {
        Template::Constant(value) => value_codes(value, codes),
        Template::Expression(_) => {}
        Template::Array(items) => items.iter().for_each(|item| template_codes(item, codes)),
        Template::Object(members) => {
            for (key, value) in members {
                if let Template::Constant(value) = value {
                    member_codes(key, value, codes);
                }
                template_codes(value, codes);
            }
        }
    }
}

fn value_codes(value: &Value, codes: &mut BTreeSet<Arc<str>>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| value_codes(&item, codes)),
        Value::Object(map) => {
            for (key, value) in map.iter() {
                member_codes(key, value, codes);
                value_codes(value, codes);
            }
        }
        _ => {}
    }
}

/// The codes in a `codes` list or a `code`: matchers and failures always write them under these names.
fn member_codes(key: &str, value: &Value, codes: &mut BTreeSet<Arc<str>>) {
    let texts = match (key, value) {
        ("codes", Value::Array(items)) => items.iter().collect(),
        ("code", Value::String(_)) => vec![value.clone()],
        _ => return,
    };
    for text in texts {
        if let Some(Ok(CodePattern::Exact(code))) = text.as_str().map(CodePattern::parse) {
            codes.insert(code);
        }
    }
}
