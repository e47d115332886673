//! Which failures rise to which matcher. A matcher for a code that cannot come is a policy that never acts.

use super::walk::{Around, Walk};
use crate::language::code::CodePattern;
use crate::language::matcher::Matcher;
use crate::language::plan::{CatchClause, EntryPlan, Envelope, Shape, Template, When};
use crate::language::provider::{Kind, Phase, Rising, Surroundings, WrittenEntry};
use crate::language::value::Value;
use crate::source::{Diagnostic, Diagnostics, Node, Span};

/// A code in a matcher that nothing reaches.
const CODE: &str = "unreachable-code";

impl<'p> Walk<'p> {
    /// Checks an entry against what may rise to it, and turns that into what may leave it.
    pub(super) fn ascend(
        &mut self,
        entry: &'p EntryPlan,
        around: &Around<'p>,
        rising: &mut Rising<'p>,
    ) {
        let config = entry.captures();
        if let Some(node) = self.written.get(&entry.span) {
            for phase in Phase::ALL {
                let with = WrittenEntry(node).key(phase, "with");
                let codes = with.map(|with| entry.middleware.patterns(phase, with));
                codes.into_iter().flatten().for_each(|code| self.selector(code, rising));
            }
            if let Some(config) = config {
                let around = Surroundings { rising, bound: around.bound };
                let mut found = Diagnostics::default();
                entry.middleware.review(WrittenEntry(node), config, around, &mut found);
                let Diagnostics(found) = found;
                let fresh = |found: &Diagnostic| {
                    let related = found.related.first().map(|(span, _)| *span);
                    self.reported.insert((found.code, found.span, related))
                };
                self.found.0.extend(found.into_iter().filter(fresh));
            }
        }
        let failure = entry.phase(Phase::Failure);
        let always = matches!(failure.when, None | Some(When::Literal(true)));
        entry.middleware.leaves(config.filter(|_| always), rising);
        if let Shape::Envelope(envelope) = &failure.shape {
            renamed(envelope, always, rising);
        }
    }

    /// Checks the codes in the `catch` clauses of the Step at `step`.
    pub(super) fn catches(&mut self, step: Span, rising: &Rising<'p>) {
        let Some(clauses) = self.written.get(&step).and_then(|step| step.get("catch")) else {
            return;
        };
        for clause in clauses.as_array().unwrap_or_default() {
            let codes = clause.get("match").and_then(|matcher| matcher.get("codes"));
            for code in codes.and_then(Node::as_array).unwrap_or_default() {
                self.selector(code, rising);
            }
        }
    }

    /// Warns of a code that nothing which `rising` holds can have.
    fn selector(&mut self, code: &Node, rising: &Rising<'_>) {
        let Some(Ok(pattern)) = code.as_str().map(|text| CodePattern::parse(text)) else {
            return;
        };
        if rising.may_match(&pattern) {
            self.fine.insert((CODE, code.span));
            return;
        }
        let emits = |entry: &&&EntryPlan| {
            let closed = &entry.middleware.contract().closed;
            closed.iter().any(|code| pattern.matches(code))
        };
        let outer = self
            .open
            .iter()
            .rev()
            .find(emits)
            .map(|entry| (entry.span, entry.middleware.contract().uri.bare_name().to_owned()));
        let (why, help) = match (rising.gone(&pattern), &outer) {
            (Some(gone), _) => (gone.why.to_owned(), gone.help),
            (None, Some((_, name))) => (
                format!("the {name} that emits it is outside"),
                "put that entry further inside, after this one",
            ),
            (None, None) if self.catalog.codes().any(|code| pattern.matches(code)) => {
                ("nothing inside emits it".to_owned(), "remove it")
            }
            // A code that nothing declares is reported as such.
            (None, None) => return,
        };
        if self.reported.insert((CODE, code.span, None)) {
            let message = format!("no failure with a code like `{pattern}` comes here: {why}");
            let mut diagnostic = Diagnostic::warning(CODE, code.span, message).with_help(help);
            if let (None, Some((place, _))) = (rising.gone(&pattern), outer) {
                diagnostic = diagnostic.with_related(place, "emits it");
            }
            self.found.push(diagnostic);
        }
    }

    /// Takes away what the clauses surely take.
    pub(super) fn caught(clauses: &[CatchClause], rising: &mut Rising<'p>) {
        rising.take(
            |code| clauses.iter().any(|clause| clause.matcher.takes_code(code)),
            "a `catch` inside takes it",
            "remove it, or let the `catch` raise it again",
        );
        let all = |clause: &CatchClause| clause.matcher.covers(&Matcher::default());
        rising.any &= !clauses.iter().any(all);
    }

    /// Adds the failure that a `Raise` makes.
    pub(super) fn raised(envelope: &'p Envelope, rising: &mut Rising<'p>) {
        match &envelope.code {
            Some(Template::Constant(Value::String(code))) => rising.add(Kind::of(code)),
            _ => rising.any = true,
        }
    }
}

/// What the fields of `onFailure` make of the failures. `always`: they certainly apply.
fn renamed<'p>(envelope: &'p Envelope, always: bool, rising: &mut Rising<'p>) {
    if envelope.retryable.is_some() {
        rising.kinds.iter_mut().for_each(|kind| kind.says_retryable = true);
    }
    let Some(code) = &envelope.code else {
        return;
    };
    let repeats = rising.repeats();
    if always {
        rising.take(
            |_| true,
            "an `onFailure` inside gives every failure another `code`",
            "match the code that it gives",
        );
        rising.any = false;
    }
    match code {
        Template::Constant(Value::String(code)) => {
            rising.add(Kind { repeats, ..Kind::of(code) });
        }
        _ => rising.any = true,
    }
}
