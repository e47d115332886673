//! An explanation as text: the route, then a line with a time for each event, then the Result and the response.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;

use super::Explanation;
use super::response::Labelled;
use crate::admin::routes::RouteDescriptions;
use crate::proxy::rehearsal::{RehearsalEnd, Transcript};
use crate::proxy::stage::record::{
    Event, EventKind, FailureSummary, GivenResponse, IsoDuration, Rerun, SentRequest,
};
use crate::telemetry::record::Call;

/// How many of the routes that do not match are listed.
const ROUTES: usize = 20;
/// How many characters of a value or a body are shown.
const SHOWN: usize = 400;
/// The indent of a continuation line.
const INDENT: &str = "            ";

/// The whole text, without a final line break.
pub(super) fn render(explained: &Explanation<'_, Transcript>) -> String {
    let Explanation { asked, responses, described, told } = explained;
    let mut out = format!("{} {}\n\n", asked.method, asked.target);
    routes(&mut out, &told.routes, described);
    let texts = EventText { responses };
    for event in &told.events {
        texts.event(&mut out, event);
    }
    if !told.events.is_empty() {
        out.push('\n');
    }
    if let Some(result) = &told.result {
        self::result(&mut out, result);
    }
    end(&mut out, &told.end, told.took);
    let unused = told.unused.iter().filter_map(|place| responses.get(*place));
    let unused: Vec<String> = unused.map(Labelled::to_string).collect();
    if !unused.is_empty() {
        write(&mut out, format_args!("\nNothing asked for {}.", unused.join(", ")));
    }
    out.trim_end().to_owned()
}

/// The routes that do not take the request, with their reasons, and the one that takes it.
pub(super) fn routes(
    out: &mut String,
    tried: &[(Arc<str>, Option<String>)],
    described: &RouteDescriptions,
) {
    let mut misses = tried.iter().filter_map(|(name, why)| Some((name, why.as_ref()?)));
    for (name, why) in misses.by_ref().take(ROUTES) {
        write(out, format_args!("not {name}: {why}"));
    }
    let more = misses.count();
    if more > 0 {
        write(out, format_args!("and {more} routes more do not take it"));
    }
    let Some((name, _)) = tried.iter().find(|(_, why)| why.is_none()) else {
        let why = if tried.is_empty() {
            "The request is refused before any route is asked."
        } else {
            "No route takes the request."
        };
        write(out, format_args!("{why}\n"));
        return;
    };
    let mut all = described.iter();
    let route = all.find(|route| route.get("name").and_then(Json::as_str) == Some(&**name));
    let route = route.as_ref();
    let text = |key| route.and_then(|route| route.get(key)).and_then(Json::as_str);
    write(out, format_args!("route {name}: {}", text("match").unwrap_or_default()));
    let entries = |list: &Json| -> Vec<String> {
        let texts = list.as_array().into_iter().flatten().filter_map(Json::as_str);
        texts.map(str::to_owned).collect()
    };
    for entry in route.and_then(|route| route.get("flow")).map(entries).unwrap_or_default() {
        write(out, format_args!("  {entry}"));
    }
    let steps = route.and_then(|route| route.get("steps")).and_then(Json::as_object);
    for (step, stack) in steps.into_iter().flatten() {
        for entry in entries(stack) {
            // The Step of a route that has only one carries the route's name.
            let place = if **step == **name { String::new() } else { format!("{step}: ") };
            write(out, format_args!("  {place}{entry}"));
        }
    }
    out.push('\n');
}

/// The responses as the user wrote them, to name them in the events.
struct EventText<'a> {
    responses: &'a [Labelled],
}

/// `--respond #2: 503`.
impl fmt::Display for Labelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, shortened(&self.written))
    }
}

impl EventText<'_> {
    fn event(&self, out: &mut String, Event { at, what }: &Event) {
        let mut lines = match what {
            EventKind::Started { call } => vec![place(call)],
            EventKind::Requested { call, sent, given } => self.requested(call, sent, *given),
            EventKind::Refused { call, upstream, endpoint, given } => {
                let given = self.given("refuses", *given);
                vec![format!("{}{upstream} ({endpoint}) {given}", lead(call))]
            }
            EventKind::Done { call, status, took } => {
                let status = status.map(|status| format!("{status}, ")).unwrap_or_default();
                vec![format!("{}{status}a success{}", lead(call), after(*took))]
            }
            EventKind::Failed { call, failure, took } => {
                failed(&lead(call), failure, &after(*took))
            }
            EventKind::Interrupted { call, by, took } => {
                let by = by.as_deref().unwrap_or("a cancellation: nobody waits any more");
                vec![format!("{}cut off{} by {by}", lead(call), after(*took))]
            }
            EventKind::Decided { step: _, says } => vec![says.clone()],
            EventKind::Retry(rerun) => retry(rerun),
            EventKind::Passed { step: _, code, reason, gated: _ } => {
                vec![match *reason {
                    "when" => format!("retry: its `when` is false; {code} rises"),
                    "notRetryable" => {
                        format!(
                            "retry: a policy takes {code}, but only if it is retryable; it rises"
                        )
                    }
                    _ => format!("retry: no policy takes {code}; it rises"),
                }]
            }
            EventKind::Exhausted { step: _, failure } => failed("retry gives up: ", failure, ""),
            EventKind::Bound { step: _, failure } => failed("a bound fires: ", failure, ""),
            EventKind::Caught { step, code, next } => {
                vec![format!("the `catch` of {step} takes {code}: next is {next}")]
            }
            EventKind::Faulted { step, failure } => {
                failed(&format!("the definition of {} is at fault: ", named(step)), failure, "")
            }
            EventKind::Cleaned { step, degraded: true, failure: None } => {
                vec![format!(
                    "the cleanup of {} is done, but its Flow caught a failure",
                    named(step)
                )]
            }
            EventKind::Cleaned { step, degraded: false, failure: None } => {
                vec![format!("the cleanup of {} is done", named(step))]
            }
            EventKind::Cleaned { step, degraded: _, failure: Some(failure) } => {
                failed(&format!("the cleanup of {} fails: ", named(step)), failure, "")
            }
        }
        .into_iter();
        let first = lines.next().unwrap_or_default();
        write(out, format_args!("{:>9.3} s {first}", at.0.as_secs_f64()));
        for line in lines {
            write(out, format_args!("{INDENT}{line}"));
        }
    }

    fn requested(&self, call: &Call, sent: &SentRequest, given: GivenResponse) -> Vec<String> {
        let SentRequest { upstream, endpoint, method, target, reused, resent } = sent;
        let how = match (resent, reused) {
            (true, _) => {
                ", once more: the connection from before was found closed (no new attempt)"
            }
            (false, true) => ", on the connection from before",
            (false, false) => "",
        };
        vec![
            format!("{}{method} {target} to {upstream} ({endpoint}){how}", lead(call)),
            format!("  {}", self.given("answers", given)),
        ]
    }

    /// Says which response is given.
    fn given(&self, verb: &str, given: GivenResponse) -> String {
        let GivenResponse { respond, repeated } = given;
        let written = respond.and_then(|number| self.responses.get(number.checked_sub(1)?));
        let said = match (written, repeated) {
            (None, _) => "200 (nothing else is scripted for it)".to_owned(),
            (Some(written), false) => written.to_string(),
            (Some(Labelled { at, written, .. }), true) => {
                format!("{at} again, for want of another: {}", shortened(written))
            }
        };
        format!("{verb} {said}")
    }
}

fn place(call: &Call) -> String {
    let Call { step, number, dispatch, cleanup } = call;
    let cleanup = if *cleanup { "cleanup, " } else { "" };
    let dispatch = dispatch.map(|dispatch| format!(", dispatch {dispatch}")).unwrap_or_default();
    format!("{cleanup}{step}{dispatch}: attempt {number}")
}

/// The beginning of a line about an attempt. In a `Gather` it says which attempt.
fn lead(call: &Call) -> String {
    call.dispatch.map_or_else(|| "  ".to_owned(), |dispatch| format!("  dispatch {dispatch}: "))
}

/// ` after PT2S`, or nothing if it took no time.
fn after(took: IsoDuration) -> String {
    if took.0.is_zero() { String::new() } else { format!(" after {}", rounded(took)) }
}

/// Rounds up to whole milliseconds, because timers wait that long.
pub(super) fn rounded(IsoDuration(length): IsoDuration) -> IsoDuration {
    let millis = length.as_nanos().div_ceil(1_000_000);
    IsoDuration(u64::try_from(millis).map_or(Duration::MAX, Duration::from_millis))
}

/// A failure's code and signal, with its message on the next line.
fn failed(lead: &str, failure: &FailureSummary, after: &str) -> Vec<String> {
    let retryable = match failure.retryable {
        Some(true) => ", retryable",
        Some(false) => ", not retryable",
        None => "",
    };
    let mut lines = vec![format!("{lead}{}{retryable}{after}", failure.code)];
    lines.extend(failure.message.as_ref().map(|message| format!("  {message}")));
    lines
}

fn retry(rerun: &Rerun) -> Vec<String> {
    let Some(policy) = rerun.policy else {
        return vec!["loop: its `when` holds; another iteration".to_owned()];
    };
    let says = rerun.says.as_ref().map(|says| format!("  policy {policy}: {says}"));
    let delay = rounded(rerun.delay);
    let asked = match (&rerun.retry_after, &rerun.retry_after_asked) {
        (Some(told), Some(asked)) => {
            format!("; the upstream asks for {asked}, which its `retryAfterMax` cuts to {told}")
        }
        (Some(asked), None) => format!("; the upstream asks for {asked}"),
        (None, _) => String::new(),
    };
    let why = match (rerun.source, rerun.range) {
        ("override", _) => format!("waits {delay}: its `delay` says so{asked}"),
        (_, Some((low, high))) => {
            let (low, high) = (rounded(low), rounded(high));
            format!("waits {delay}: its schedule, drawn from {low} to {high}{asked}")
        }
        (_, None) if delay.0.is_zero() => format!("runs again at once: it has no wait{asked}"),
        (_, None) => format!("waits {delay}: its schedule{asked}"),
    };
    let first = format!("retry: policy {policy} takes {} and {why}", rerun.code);
    std::iter::once(first).chain(says).collect()
}

/// The Result, and the chain below a failure.
fn result(out: &mut String, result: &Json) {
    let text = |value: &Json, key: &str| value.get(key).and_then(Json::as_str).map(str::to_owned);
    if text(result, "type").as_deref() == Some("success") {
        let value = result.get("value").map(ToString::to_string).unwrap_or_default();
        write(out, format_args!("Result: success, {}", shortened(&value)));
        return;
    }
    let mut lead = "Result:";
    let mut link = Some(result);
    while let Some(failure) = link.filter(|link| !link.is_null()) {
        let part = |key| text(failure, key).unwrap_or_default();
        write(out, format_args!("{lead} {} {}", part("type"), part("code")));
        if let Some(message) = text(failure, "message") {
            write(out, format_args!("    {message}"));
        }
        link = failure.get("previous");
        lead = "  because of";
    }
}

fn end(out: &mut String, end: &RehearsalEnd, took: IsoDuration) {
    let after = after(took);
    let says = match end {
        RehearsalEnd::Answered { status, headers, body, broken } => {
            write(out, format_args!("The client gets {}{after}:", status.as_u16()));
            for (name, value) in headers {
                let value = String::from_utf8_lossy(value.as_bytes());
                write(out, format_args!("  {name}: {value}"));
            }
            if !body.is_empty() {
                let body = String::from_utf8_lossy(body);
                write(out, format_args!("\n  {}", shortened(&body)));
            }
            if !broken {
                return;
            }
            "Then the connection is closed: the body broke off.".to_owned()
        }
        RehearsalEnd::Dropped => format!("The client's connection is closed{after}, unanswered."),
        RehearsalEnd::Left => format!("The client leaves{after}, unanswered."),
        RehearsalEnd::Forever => "The client waits for ever: nothing bounds what hangs.".to_owned(),
        RehearsalEnd::Endless => format!("It goes on and on: what comes{after} is not shown."),
        RehearsalEnd::Busy => {
            let what = "goes from Step to Step without a call or a wait";
            let end = "and comes to no end: only a Timeout around it would end it, in real time";
            format!("The Flow {what}{after}, {end}.")
        }
    };
    write(out, format_args!("{says}"));
}

/// The beginning of a long text.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

pub(super) fn write(out: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    writeln!(out, "{line}").ok();
}

/// The name of a Step or of a Flow in sentences. A route's own Flow may have none.
fn named(name: &str) -> &str {
    if name.is_empty() { "the Flow" } else { name }
}
