//! Phase blocks (MWL, "The phase block"), and the failures that some of them construct.

use std::sync::{Arc, LazyLock};

use super::fields::Fields;
use super::middleware::{Entry, Level};
use super::site::Site;
use super::template::is_expression;
use super::with::{RawWith, WithNode};
use super::{CodeUse, Compiler, PreparedCache, Strictness};
use crate::language::outcome::Failure;
use crate::language::plan::{Cleanup, Envelope, PhasePlan, Shape, When, With};
use crate::language::provider::{Contract, Middleware, Phase, PhaseContract, Prepared};
use crate::language::schema::Schema;
use crate::language::value::Value;
use crate::source::{Diagnostic, Node};

/// Whether a literal fits a field's type.
type Fits = fn(&Node) -> bool;

impl Compiler<'_> {
    /// The plan for `phase`, whether its block is written or not.
    pub(super) fn phase(&mut self, entry: Entry<'_>, phase: Phase) -> Option<PhasePlan> {
        let contract = entry.contract();
        let acts = contract.is_some_and(|contract| contract.phase(phase).is_some());
        let written = entry.fields.get(phase.key());
        if written.is_none() && contract.is_some() && !acts {
            return Some(idle());
        }
        let site = entry.base.phase(phase != Phase::Entry, contract.map(Contract::contributed));
        let Some(node) = written else {
            let (with, cleanup) = self.phase_with(entry, phase, None, site)?;
            let (shape, assign) = (Shape::Through, Box::default());
            return Some(PhasePlan { acts, when: None, with, cleanup, shape, assign });
        };
        let (what, known) = block(phase);
        let block = self.fields(node, what, known)?;
        let when = match block.get("when") {
            None => Some(None),
            Some(when) => self.when(when, site).map(Some),
        };
        if let Some(written) = block.member("when").filter(|_| !acts && contract.is_some()) {
            let message =
                format!("`when` gates nothing: the middleware does not act at `{}`", phase.key());
            self.found.push(Diagnostic::warning("idle-when", written.key_span, message));
        }
        let off = matches!(when, Some(Some(When::Literal(false))));
        let with = self.unless(off, |this| this.phase_with(entry, phase, block.get("with"), site));
        let shape = self.shape(&block, phase, site);
        let assign = self.assign(block.get("assign"), site);
        let (with, cleanup) = with?;
        Some(PhasePlan { acts, when: when?, with, cleanup, shape: shape?, assign: assign? })
    }

    /// Reads a `with`. That of a phase that is switched `off` is never used, so its literals are not checked.
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
        let Envelope { ty, code, message, details, retryable, previous } = &envelope;
        let written = [ty, code, message, details, retryable, previous];
        Some(if written.iter().any(|field| field.is_some()) {
            Shape::Envelope(Box::new(envelope))
        } else {
            Shape::Through
        })
    }

    /// The fields of a failure that an author may write ("The failure envelope").
    pub(super) fn envelope(&mut self, fields: &Fields<'_>, site: Site<'_>) -> Option<Envelope> {
        if let Some(ty) = fields.get("type") {
            self.constructed_type(ty);
        }
        if let Some(code) = fields.get("code") {
            self.typed(code, "code", "a string", |node| node.as_str().is_some());
            let text = code.as_str().filter(|_| !is_expression(code)).cloned();
            self.codes.push(CodeUse::Raised(text));
        }
        let checks: [(&str, &str, Fits); 3] = [
            ("message", "a string", |node| node.as_str().is_some()),
            ("retryable", "a boolean or null", |node| node.as_bool().is_some() || node.is_null()),
            ("previous", "a failure or null", |node| node.as_object().is_some() || node.is_null()),
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

    /// A phase's `with`, and the plan of its structural parameters.
    fn phase_with(
        &mut self,
        entry: Entry<'_>,
        phase: Phase,
        node: Option<&Node>,
        site: Site<'_>,
    ) -> Option<(With, Option<Box<Cleanup>>)> {
        let Some(middleware) = entry.middleware else {
            self.raw_with(node, site);
            return None;
        };
        let reported = node.is_some_and(|with| self.selected(&middleware.patterns(phase, with)));
        let declared = middleware.contract().phase(phase);
        let structural = declared.map_or(&[][..], |declared| &declared.structural);
        let holding = node.filter(|_| !structural.is_empty());
        if let Some(node) = holding.filter(|node| is_expression(node)) {
            let message = format!(
                "this `with` cannot be one expression: {} are definitions",
                super::list(structural.iter().map(String::as_str))
            );
            self.error("expression-in-structure", node.span, message);
            return None;
        }
        let cleanup = match holding {
            Some(node) => self.cleanup(entry, node, structural, site),
            None => Some(None),
        };
        let raw = self.rest(node, structural, site)?;
        let span = node.map_or_else(|| entry.place(), |node| node.span);
        let declared = middleware.contract().written_parameters(phase);
        let place = WithNode { node, span, reported, declared, structural };
        let with = self.checked(middleware, phase, raw, place);
        Some((with, cleanup?))
    }

    /// Checks a `with` against the parameters of the middleware at `phase`.
    fn checked(
        &mut self,
        middleware: &Arc<dyn Middleware>,
        phase: Phase,
        raw: RawWith,
        place: WithNode<'_>,
    ) -> With {
        let contract = middleware.contract();
        let declared = contract.phase(phase);
        let schema = place.declared;
        let reported = place.reported | self.check_members(place.node, place.span, schema);
        if let Some(node) = place.node {
            self.advise_months(node, schema);
        }
        let missing = declared.and_then(|declared| missing(declared, place.node));
        let value = match (raw, &missing) {
            (RawWith::Literal(value), _) => value,
            (RawWith::Dynamic(template), None) => {
                if let Some(node) = place.node {
                    self.check_parts(node, schema, place.structural);
                }
                return With::Dynamic(template);
            }
            // No expression can supply a structural parameter that is missing.
            (RawWith::Dynamic(_), Some(_)) => Value::empty_object(),
        };
        let key = missing.is_none().then(|| PreparedCache::key(middleware.as_ref(), phase, &value));
        if let Some((value, prepared)) = key.as_ref().and_then(|key| self.cache.get(key)) {
            return With::Literal { value, prepared: Ok(prepared) };
        }
        let nothing = Schema::nothing();
        let schema = declared.map_or(&nothing, |declared| &declared.parameters);
        let prepare = || match (missing, declared) {
            (Some(failure), _) => Err(failure),
            (None, Some(_)) => middleware.prepare(phase, &value),
            (None, None) => Ok(Arc::new(()) as _),
        };
        let prepared = self.prepared(&value, schema, prepare, WithNode { reported, ..place });
        if let (Some(key), Ok(prepared)) = (key, &prepared) {
            self.cache.insert(key, &value, prepared);
        }
        With::Literal { value, prepared }
    }

    /// The part of a `with` that is not structural.
    fn rest(
        &mut self,
        node: Option<&Node>,
        structural: &[String],
        site: Site<'_>,
    ) -> Option<RawWith> {
        match node.and_then(Node::as_object) {
            Some(members) if !structural.is_empty() => {
                let rest = members
                    .iter()
                    .filter(|member| !structural.iter().any(|name| **name == *member.key));
                self.object(rest, site).map(RawWith::of)
            }
            _ => self.raw_with(node, site),
        }
    }

    /// The structural `call` and `middleware`. The call's fields see the phase's bindings. The stack around
    /// the call is its own, and is compiled like a Step's.
    fn cleanup(
        &mut self,
        entry: Entry<'_>,
        with: &Node,
        structural: &[String],
        site: Site<'_>,
    ) -> Option<Option<Box<Cleanup>>> {
        let takes =
            |name: &str| with.get(name).filter(|_| structural.iter().any(|taken| taken == name));
        let stack = self.stack(takes("middleware"), entry.at, Level::Step, entry.base);
        let Some(call) = takes("call") else {
            return stack.map(|_| None);
        };
        let call = self.advised_call(call, entry.at, site, false);
        let (call, stack) = (call?, stack?);
        Some(Some(Box::new(Cleanup { call, stack })))
    }
}

/// The plan for a phase at which the middleware does not act and for which nothing is written.
fn idle() -> PhasePlan {
    static NOTHING: LazyLock<Prepared> = LazyLock::new(|| Arc::new(()));
    let with = With::Literal { value: Value::empty_object(), prepared: Ok(Arc::clone(&NOTHING)) };
    let (shape, assign) = (Shape::Through, Box::default());
    PhasePlan { acts: false, when: None, with, cleanup: None, shape, assign }
}

/// The failure for a structural parameter that is required and not written.
fn missing(declared: &PhaseContract, with: Option<&Node>) -> Option<Failure> {
    let written = |name: &&String| with.is_some_and(|with| with.get(name).is_some());
    let name = declared.structural_required.iter().find(|name| !written(name))?;
    let observed = with.map_or_else(Value::empty_object, super::literal);
    Some(Failure::validation(format!("the parameter `{name}` is missing"), "/required", observed))
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
