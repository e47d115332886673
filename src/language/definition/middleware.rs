//! Stacks, entries and phase blocks (MWL, "Middleware mechanics").

use std::sync::Arc;

use super::call::Written;
use super::fields::Fields;
use super::flow::At;
use super::site::Site;
use super::template::is_expression;
use super::{Compiler, Named, Strictness};
use crate::language::outcome::Failure;
use crate::language::plan::{
    Cleanup, EntryPlan, Envelope, PhasePlan, Shape, StackPlan, When, With,
};
use crate::language::provider::contract::{Kind, PhaseContract};
use crate::language::provider::{Contract, Middleware, Phase};
use crate::language::schema::Schema;
use crate::language::uri::ProviderKind;
use crate::source::{Diagnostic, Node, Span};

const FIELDS: [&str; 6] = [
    "provider",
    "onEntry",
    "onSuccess",
    "onFailure",
    "onAlways",
    "comment",
];

/// The one middleware that the specification obliges its user to gate.
const LOOP: &str = "mwl:provider.middleware/mwl/loop/v1";

/// Where a stack attaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Step,
    Flow,
}

/// One entry while it is compiled.
#[derive(Clone, Copy)]
struct Entry<'e> {
    fields: &'e Fields<'e>,
    middleware: Option<&'e Arc<dyn Middleware>>,
    at: At<'e>,
    /// The site of the stack: what a cleanup's own stack stands at, too.
    base: Site<'e>,
}

impl<'e> Entry<'e> {
    fn contract(&self) -> Option<&'e Contract> {
        self.middleware.map(|middleware| middleware.contract())
    }

    /// Where what is not written belongs.
    fn place(&self) -> Span {
        self.fields
            .get("provider")
            .map_or(self.fields.node.span, |provider| provider.span)
    }
}

impl Compiler<'_> {
    /// A stack at the site `base`, outermost first.
    pub(super) fn stack(
        &mut self,
        node: Option<&Node>,
        at: At<'_>,
        level: Level,
        base: Site<'_>,
    ) -> Option<StackPlan> {
        let Some(node) = node else {
            return Some(StackPlan::default());
        };
        let items = self.items(node, "`middleware`");
        let entries: Vec<_> = items
            .iter()
            .map(|item| self.entry(item, at, level, base))
            .collect();
        let entries: Option<StackPlan> = entries.into_iter().collect();
        entries.filter(|_| node.as_array().is_some())
    }

    fn entry(
        &mut self,
        node: &Node,
        at: At<'_>,
        level: Level,
        base: Site<'_>,
    ) -> Option<EntryPlan> {
        let fields = self.fields(node, "a middleware entry", &FIELDS)?;
        let middleware = self
            .required(&fields, "provider")
            .and_then(|provider| self.middleware(provider, level));
        let entry = Entry {
            fields: &fields,
            middleware: middleware.as_ref(),
            at,
            base,
        };
        let phases = Phase::ALL.map(|phase| self.phase(entry, phase));
        if let Some(middleware) = &middleware
            && middleware.contract().uri.as_str() == LOOP
        {
            self.check_loop(&fields);
        }
        let [Some(first), Some(success), Some(failure), Some(always)] = phases else {
            return None;
        };
        let phases = [first, success, failure, always];
        Some(EntryPlan {
            span: node.span,
            middleware: middleware?,
            phases,
        })
    }

    fn middleware(&mut self, node: &Node, level: Level) -> Option<Arc<dyn Middleware>> {
        let uri = self.provider_uri(node, ProviderKind::Middleware)?;
        let Some(middleware) = self.catalog.middleware(uri.as_str()).map(Arc::clone) else {
            self.unknown_provider(node, &uri);
            return None;
        };
        if let Kind::Middleware { step, flow, .. } = &middleware.contract().kind {
            let (fits, here, there) = match level {
                Level::Step => (*step, "a Step", "Flows"),
                Level::Flow => (*flow, "a Flow", "Steps"),
            };
            if !fits {
                let message = format!("`{}` does not attach to {here}", uri.as_str());
                let help = format!("it attaches to {there} only");
                self.found.push(
                    Diagnostic::error("wrong-attachment", node.span, message).with_help(help),
                );
            }
        }
        Some(middleware)
    }

    /// "A `Loop` entry MUST write `onSuccess.when`."
    fn check_loop(&mut self, fields: &Fields<'_>) {
        let when = fields.get("onSuccess").and_then(|block| block.get("when"));
        let help = r#"write onSuccess: { "when": "{{ … }}" }: the loop goes on while it is true"#;
        let (span, message) = match when {
            None => (
                fields.node.span,
                "a Loop without `onSuccess.when` never ends",
            ),
            Some(when) if when.as_bool() == Some(true) => (
                when.span,
                "a Loop whose `onSuccess.when` is always true never ends",
            ),
            Some(_) => return,
        };
        self.found
            .push(Diagnostic::error("endless-loop", span, message).with_help(help));
    }

    fn phase(&mut self, entry: Entry<'_>, phase: Phase) -> Option<PhasePlan> {
        let contract = entry.contract();
        let acts = contract.is_some_and(|contract| contract.phase(phase).is_some());
        let site = entry
            .base
            .phase(phase != Phase::Entry, contract.map(Contract::contributed));
        let Some(node) = entry.fields.get(phase.key()) else {
            let (with, _) = self.phase_with(entry, phase, None, site)?;
            let assign = Box::default();
            return Some(PhasePlan {
                acts,
                when: None,
                with,
                cleanup: None,
                shape: Shape::Through,
                assign,
            });
        };
        let (what, known) = block(phase);
        let block = self.fields(node, what, known)?;
        let when = block.get("when").map(|when| self.when(when, site));
        if let Some(written) = block.member("when").filter(|_| !acts && contract.is_some()) {
            let message = format!(
                "`when` gates nothing: the middleware does not act at `{}`",
                phase.key()
            );
            self.found
                .push(Diagnostic::warning("idle-when", written.key_span, message));
        }
        let off = matches!(when, Some(Some(When::Literal(false))));
        let with = self.unless(off, |this| {
            this.phase_with(entry, phase, block.get("with"), site)
        });
        let shape = self.shape(&block, phase, site);
        let assign = self.assign(block.get("assign"), site);
        let when = match when {
            None => None,
            Some(when) => Some(when?),
        };
        let (with, cleanup) = with?;
        Some(PhasePlan {
            acts,
            when,
            with,
            cleanup,
            shape: shape?,
            assign: assign?,
        })
    }

    /// What a phase that never acts is given is never looked at.
    fn unless<T>(&mut self, off: bool, read: impl FnOnce(&mut Self) -> T) -> T {
        let strictness = self.strictness;
        if off {
            self.strictness = Strictness::Runtime;
        }
        let result = read(self);
        self.strictness = strictness;
        result
    }

    fn shape(&mut self, block: &Fields<'_>, phase: Phase, site: Site<'_>) -> Option<Shape> {
        let value = match phase {
            Phase::Entry => block.get("output"),
            Phase::Success => block.get("value"),
            Phase::Failure => return self.reshaped(block, site),
            Phase::Always => None,
        };
        Some(match value {
            None => Shape::Through,
            Some(value) => Shape::Value(self.template(value, site)?),
        })
    }

    fn reshaped(&mut self, block: &Fields<'_>, site: Site<'_>) -> Option<Shape> {
        let envelope = self.envelope(block, site)?;
        let Envelope {
            ty,
            code,
            message,
            details,
            retryable,
            previous,
        } = &envelope;
        let written = [ty, code, message, details, retryable, previous];
        Some(match written.iter().any(|field| field.is_some()) {
            true => Shape::Envelope(envelope),
            false => Shape::Through,
        })
    }

    /// The authorable fields of a failure ("The failure envelope").
    pub(super) fn envelope(&mut self, fields: &Fields<'_>, site: Site<'_>) -> Option<Envelope> {
        if let Some(ty) = fields.get("type") {
            self.constructed_type(ty);
        }
        if let Some(code) = fields.get("code") {
            self.typed(code, "code", "a string", |node| node.as_str().is_some());
            let text = code.as_str().filter(|_| !is_expression(code)).cloned();
            self.codes.push(Named::Minted(text));
        }
        let checks: [(&str, &str, fn(&Node) -> bool); 3] = [
            ("message", "a string", |node| node.as_str().is_some()),
            ("retryable", "a boolean or null", |node| {
                node.as_bool().is_some() || node.is_null()
            }),
            ("previous", "a failure or null", |node| {
                node.as_object().is_some() || node.is_null()
            }),
        ];
        for (name, wanted, fits) in checks {
            if let Some(node) = fields.get(name) {
                self.typed(node, name, wanted, fits);
            }
        }
        let mut field = |name| self.optional(fields.get(name), site);
        let (ty, code, message) = (field("type"), field("code"), field("message"));
        let (details, retryable) = (field("details"), field("retryable"));
        let previous = field("previous");
        Some(Envelope {
            ty: ty?,
            code: code?,
            message: message?,
            details: details?,
            retryable: retryable?,
            previous: previous?,
        })
    }

    /// A phase's `with`, its structural parameters taken out and compiled.
    fn phase_with(
        &mut self,
        entry: Entry<'_>,
        phase: Phase,
        node: Option<&Node>,
        site: Site<'_>,
    ) -> Option<(With, Option<Box<Cleanup>>)> {
        if let Some(node) = node {
            self.selected_codes(node);
            self.advise_backoff(node);
        }
        let Some(middleware) = entry.middleware else {
            self.written(node, site, "with");
            return None;
        };
        let contract = middleware.contract();
        let declared = contract.phase(phase);
        let structural = declared.map_or(&[][..], |declared| &declared.structural);
        let place = node.map_or(entry.place(), |node| node.span);
        if let Some(node) = node.filter(|node| !structural.is_empty() && is_expression(node)) {
            let message = format!(
                "this `with` cannot be one expression: `{}` is a definition",
                structural.join("` and `")
            );
            self.error("expression-in-structure", node.span, message);
            return None;
        }
        let cleanup = match node.filter(|_| !structural.is_empty()) {
            Some(node) => self.cleanup(entry, node, structural, site),
            None => Some(None),
        };
        let with = self.rest(node, structural, site);
        let pointer = format!("/phases/{}/parameters", phase.key());
        let told = self.check_members(node, place, contract.document.pointer(&pointer));
        let with = match with? {
            Written::Dynamic(template) => With::Dynamic(template),
            Written::Literal(value) => {
                let nothing = Schema::nothing();
                let schema = declared.map_or(&nothing, |declared| &declared.parameters);
                let prepare = || match declared {
                    Some(declared) => missing(declared, node)
                        .map_or_else(|| middleware.prepare(phase, &value), Err),
                    None => Ok(Arc::new(()) as _),
                };
                let prepared = self.prepared(&value, schema, prepare, node, place, told);
                With::Literal { value, prepared }
            }
        };
        Some((with, cleanup?))
    }

    /// What of a `with` is not structural.
    fn rest(
        &mut self,
        node: Option<&Node>,
        structural: &[String],
        site: Site<'_>,
    ) -> Option<Written> {
        match node.and_then(Node::as_object) {
            Some(members) if !structural.is_empty() => {
                let rest = members
                    .iter()
                    .filter(|member| !structural.iter().any(|name| **name == *member.key));
                self.object(rest, site).map(Written::of)
            }
            _ => self.written(node, site, "with"),
        }
    }

    /// The structural `call` and `middleware`. The call's fields see the phase's bindings; the stack around
    /// it is one of its own, at a Step's level.
    #[expect(clippy::option_option, reason = "wrong, or not written, or there")]
    fn cleanup(
        &mut self,
        entry: Entry<'_>,
        with: &Node,
        structural: &[String],
        site: Site<'_>,
    ) -> Option<Option<Box<Cleanup>>> {
        let takes = |name: &str| {
            with.get(name)
                .filter(|_| structural.iter().any(|taken| taken == name))
        };
        let stack = self.stack(takes("middleware"), entry.at, Level::Step, entry.base);
        let Some(call) = takes("call") else {
            return stack.map(|_| None);
        };
        let call = self.call(call, entry.at, site, false);
        let (call, stack) = (call?, stack?);
        Some(Some(Box::new(Cleanup { call, stack })))
    }
}

/// A structural parameter that is required and not written.
fn missing(declared: &PhaseContract, with: Option<&Node>) -> Option<Failure> {
    let written = |name: &&String| with.is_some_and(|with| with.get(name).is_some());
    let name = declared
        .structural_required
        .iter()
        .find(|name| !written(name))?;
    let observed = with
        .map(super::literal)
        .unwrap_or_else(crate::language::value::Value::empty_object);
    Some(Failure::validation(
        format!("the parameter `{name}` is missing"),
        "/required",
        observed,
    ))
}

const fn block(phase: Phase) -> (&'static str, &'static [&'static str]) {
    match phase {
        Phase::Entry => ("an `onEntry` block", &["when", "with", "assign", "output"]),
        Phase::Success => ("an `onSuccess` block", &["when", "with", "assign", "value"]),
        Phase::Failure => (
            "an `onFailure` block",
            &[
                "when",
                "with",
                "assign",
                "type",
                "code",
                "message",
                "details",
                "retryable",
                "previous",
            ],
        ),
        Phase::Always => ("an `onAlways` block", &["when", "with", "assign"]),
    }
}
