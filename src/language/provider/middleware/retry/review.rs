//! What `check` says of a Retry: policies that never act, that act in vain, and that do harm.

use std::time::Duration;

use super::Policy;
use super::backoff::Backoff;
use crate::language::code::CodePattern;
use crate::language::provider::behaviour::Surroundings;
use crate::language::provider::contract::Phase;
use crate::language::provider::rising::Kind;
use crate::language::provider::written::WrittenEntry;
use crate::language::temporal::Span;
use crate::source::{Diagnostic, Diagnostics, Node};

/// What an entry itself says.
pub(super) fn check(entry: WrittenEntry<'_>, found: &mut Diagnostics) {
    let delayed = entry.argument(Phase::Failure, "delay").is_some();
    for policy in policies(entry) {
        if !delayed {
            no_wait(policy, found);
        }
        max_below_initial(policy, found);
    }
}

/// What an entry says where it stands.
pub(super) fn review(
    entry: WrittenEntry<'_>,
    captured: &[Policy],
    around: Surroundings<'_>,
    found: &mut Diagnostics,
) {
    let delayed = entry.argument(Phase::Failure, "delay").is_some();
    let written = policies(entry);
    for (position, (policy, node)) in captured.iter().zip(written).enumerate() {
        let earlier = captured.iter().zip(written).take(position);
        if let Some((_, first)) =
            earlier.into_iter().find(|(earlier, _)| earlier.matcher.covers(&policy.matcher))
        {
            let message =
                "this policy is never reached: an earlier one matches all that it matches";
            let diagnostic = Diagnostic::warning("unreachable-policy", node.span, message);
            let diagnostic = diagnostic.with_related(first.span, "matches first");
            found.push(diagnostic.with_help("put the narrower policy first"));
            continue;
        }
        silent(policy, node, captured, around, found);
        harmful(policy, node, around, found);
        if !delayed {
            never_ends(policy, node, around, found);
        }
    }
}

fn policies(entry: WrittenEntry<'_>) -> &[Node] {
    entry.argument(Phase::Entry, "policies").and_then(Node::as_array).unwrap_or_default()
}

/// A policy that retries without a wait.
fn no_wait(policy: &Node, found: &mut Diagnostics) {
    let attempts = policy.get("attempts").and_then(Node::as_number);
    let again = attempts.is_some_and(|attempts| attempts > 1.0);
    let backoff = policy.get("backoff");
    let initial = backoff.and_then(|backoff| span(backoff, "initial"));
    let waits = backoff.is_some() && initial.is_none_or(|initial| initial > Span::ZERO);
    if again && !waits && policy.as_object().is_some() {
        let message = "this policy retries without any wait";
        let help = r#"add a backoff, such as { "initial": "PT0.1S", "rate": 2, "max": "PT5S", "jitter": "full" }"#;
        found.push(Diagnostic::warning("no-backoff", policy.span, message).with_help(help));
    }
}

/// A schedule whose cap is below its start.
fn max_below_initial(policy: &Node, found: &mut Diagnostics) {
    let Some(backoff) = policy.get("backoff") else {
        return;
    };
    if let (Some(initial), Some(max)) = (span(backoff, "initial"), span(backoff, "max"))
        && max < initial
        && let Some(written) = backoff.get("max")
    {
        let message =
            format!("`max` is below `initial`: every wait is {max}, and {initial} is never waited");
        let diagnostic = Diagnostic::warning("max-below-initial", written.span, message);
        found.push(diagnostic.with_help("`initial` is the first wait, `max` the longest"));
    }
}

/// A policy for everything retryable, over a failure that says nothing about that.
fn silent(
    policy: &Policy,
    node: &Node,
    captured: &[Policy],
    around: Surroundings<'_>,
    found: &mut Diagnostics,
) {
    let wide = |pattern: &CodePattern| !matches!(pattern, CodePattern::Exact(_));
    let names = |policy: &Policy, code: &str| {
        policy.matcher.codes.as_ref().is_none_or(|codes| codes.iter().any(|one| one.matches(code)))
    };
    let all_wide = policy.matcher.codes.as_ref().is_none_or(|codes| codes.iter().all(wide));
    if policy.matcher.retryable != Some(true) || policy.matcher.types.is_some() || !all_wide {
        return;
    }
    let taken = |kind: &&Kind<'_>| {
        let mut others = captured.iter();
        others.any(|other| other.matcher.retryable.is_none() && names(other, kind.code))
    };
    let mut kinds = around.rising.kinds.iter();
    let Some(kind) =
        kinds.find(|kind| !kind.says_retryable && names(policy, kind.code) && !taken(kind))
    else {
        return;
    };
    let place = node.get("match").and_then(|matcher| matcher.get("retryable")).unwrap_or(node);
    let message = format!(
        "`{}` says nothing of `retryable`, so this policy does not take it, though its `codes` do",
        kind.code
    );
    let help = format!(
        "add a policy for `codes: [{}]` if such a call may be made twice; else narrow the codes, \
         to `Provider.Call.*` for example",
        kind.code
    );
    found.push(Diagnostic::warning("silent-failure", place.span, message).with_help(help));
}

/// A policy by which work may be done twice.
fn harmful(policy: &Policy, node: &Node, around: Surroundings<'_>, found: &mut Diagnostics) {
    if policy.attempts < 2 || policy.matcher.retryable.is_some() {
        return;
    }
    let names = |kind: &&Kind<'_>| {
        let codes = policy.matcher.codes.as_ref();
        codes.is_none_or(|codes| codes.iter().any(|pattern| pattern.matches(kind.code)))
    };
    let harmful = around.rising.kinds.iter().filter(|kind| kind.repeats.is_some()).find(names);
    let Some((kind, repeated)) = harmful.and_then(|kind| Some((kind, kind.repeats?))) else {
        return;
    };
    let matcher = node.get("match").unwrap_or(node);
    let message = format!(
        "this policy sends {repeated} again, which may have been done in spite of `{}`",
        kind.code
    );
    let help = "add `retryable: true` to the `match`, which keeps to what can be sent again, or let the call send a key: \
                `idempotencyKey: true`";
    found.push(Diagnostic::warning("unsafe-retry", matcher.span, message).with_help(help));
}

/// A policy whose first wait is longer than a bound around it.
fn never_ends(policy: &Policy, node: &Node, around: Surroundings<'_>, found: &mut Diagnostics) {
    let shortest = policy.backoff.as_ref().map_or(Duration::ZERO, Backoff::shortest);
    let Some((bound, place)) = around.bound.filter(|(bound, _)| shortest >= *bound) else {
        return;
    };
    if policy.attempts < 2 || shortest.is_zero() {
        return;
    }
    let backoff = node.get("backoff").unwrap_or(node);
    let initial = backoff.get("initial").unwrap_or(backoff);
    let [wait, bound] = [shortest, bound].map(|time| Span::from_duration(time).to_string());
    let message =
        format!("the first wait is at least {wait}, but the bound around it fires after {bound}");
    let diagnostic = Diagnostic::warning("idle-backoff", initial.span, message);
    let diagnostic = diagnostic.with_related(place, "the bound around it");
    found.push(diagnostic.with_help("wait less, or let the bound be longer"));
}

fn span(node: &Node, name: &str) -> Option<Span> {
    Span::parse(node.get(name)?.as_str()?)
}
