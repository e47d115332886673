//! Two configurations beside each other: what each does with the same request and the same responses.

use serde_json::{Value as Json, json as object};

use super::text::{rounded, write};
use super::{Policy, Scenario, Told, runs};
use crate::proxy::rehearsal::{RehearsalEnd, Transcript};
use crate::proxy::stage::record::EventKind;

/// A configuration, and what came of it.
type Side<'a> = (&'a Policy, &'a Told);

/// A row: its name, and what each side has there, in lines.
#[derive(Debug)]
struct Row {
    name: String,
    sides: [Vec<String>; 2],
}

impl Row {
    fn differs(&self) -> bool {
        let [one, other] = &self.sides;
        one != other
    }
}

/// A table with a column for each. A star marks what differs.
pub(super) fn text(sides: &[Side<'_>; 2], scenario: &Scenario) -> String {
    let asked = &scenario.asked;
    let mut out = format!("{} {}\n\n", asked.method, asked.target);
    let rows = rows(sides);
    let [one, other] = sides.map(|(policy, _)| policy.name.as_str());
    let widest = |name: &str, side: usize| {
        let lines = rows.iter().flat_map(|row| row.sides.get(side).into_iter().flatten());
        lines.map(|line| line.chars().count()).chain([name.chars().count()]).max().unwrap_or(0)
    };
    let names = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let first = widest(one, 0);
    write(&mut out, format_args!("  {:names$}  {one:first$}  {other}", ""));
    for row in &rows {
        let mark = if row.differs() { '*' } else { ' ' };
        let [left, right] = &row.sides;
        let mut lead = (mark, &*row.name);
        for line in 0..left.len().max(right.len()).max(1) {
            let cell = |side: &[String]| side.get(line).cloned().unwrap_or_default();
            let line =
                format!("{} {:names$}  {:first$}  {}", lead.0, lead.1, cell(left), cell(right));
            write(&mut out, format_args!("{}", line.trim_end()));
            lead = (' ', "");
        }
    }
    let changed: Vec<&str> = rows
        .iter()
        .filter(|row| row.differs())
        .map(|row| &*row.name)
        .filter(|name| !name.is_empty())
        .collect();
    let changed = if changed.is_empty() {
        "Both do the same.".to_owned()
    } else {
        format!("What changes: {}.", changed.join(", "))
    };
    write(&mut out, format_args!("\n{changed}"));
    out.trim_end().to_owned()
}

/// Both explanations, and what differs.
pub(super) fn json(sides: &[Side<'_>; 2], scenario: &Scenario) -> Json {
    let policies = sides.map(
        |(policy, told)| object!({ "file": policy.name, "explained": policy.json(scenario, told) }),
    );
    let changes = rows(sides).into_iter().filter(|row| row.differs() && !row.name.is_empty());
    let changes = changes
        .map(|Row { name, sides: [from, to] }| object!({ "what": name, "from": from, "to": to }));
    object!({ "policies": policies, "changes": changes.collect::<Vec<_>>() })
}

/// The rows of both sides: those of one name beside each other, in the order of the first.
fn rows(sides: &[Side<'_>; 2]) -> Vec<Row> {
    let [one, mut other] = sides.map(|(_, told)| match told {
        Told::Once(told) => facts(told),
        Told::Often(told) => runs::rows(told),
    });
    let mut rows = Vec::new();
    for (name, lines) in one {
        let place = other.iter().position(|(known, _)| *known == name);
        let right = place.map(|place| other.remove(place).1).unwrap_or_default();
        rows.push(Row { name, sides: [lines, right] });
    }
    rows.extend(other.into_iter().map(|(name, lines)| Row { name, sides: [Vec::new(), lines] }));
    rows
}

/// What matters of one request.
fn facts(told: &Transcript) -> Vec<(String, Vec<String>)> {
    let Transcript { routes, events, result, end, took, unused: _ } = told;
    let taken = routes.iter().find(|(_, why)| why.is_none());
    let (mut attempts, mut waits, mut cleanups) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        let at = event.at.0.as_secs_f64();
        match &event.what {
            EventKind::Done { call, status, .. } => {
                let status =
                    status.map_or_else(|| "a success".to_owned(), |status| status.to_string());
                let list = if call.cleanup { &mut cleanups } else { &mut attempts };
                list.push(format!("{at:.3} s {}: {status}", call.step));
            }
            EventKind::Failed { call, failure, .. } => {
                let list = if call.cleanup { &mut cleanups } else { &mut attempts };
                list.push(format!("{at:.3} s {}: {}", call.step, failure.code));
            }
            EventKind::Interrupted { call, .. } => {
                let list = if call.cleanup { &mut cleanups } else { &mut attempts };
                list.push(format!("{at:.3} s {}: cut off", call.step));
            }
            EventKind::Retry(rerun) => waits.push(rounded(rerun.delay).to_string()),
            _ => {}
        }
    }
    let count = attempts.len().to_string();
    let result = result.as_ref().map_or_else(
        || "none".to_owned(),
        |result| {
            let part = |key| result.get(key).and_then(Json::as_str).unwrap_or_default();
            if part("type") == "success" { "success".to_owned() } else { part("code").to_owned() }
        },
    );
    let row = |name: &str, lines: Vec<String>| (name.to_owned(), lines);
    let mut rows = vec![
        row("route", vec![taken.map_or_else(|| "none".to_owned(), |(name, _)| name.to_string())]),
        row("attempts", vec![count]),
        row("ended", attempts),
        row("waits", waits),
        row("Result", vec![result]),
        row("answer", vec![answer(end)]),
        row("after", vec![format!("{:.3} s", took.0.as_secs_f64())]),
        row("cleanups", cleanups),
    ];
    rows.retain(|(name, lines)| !lines.is_empty() || !matches!(&**name, "waits" | "cleanups"));
    rows
}

fn answer(end: &RehearsalEnd) -> String {
    match end {
        RehearsalEnd::Answered { status, broken: false, .. } => status.as_u16().to_string(),
        RehearsalEnd::Answered { status, broken: true, .. } => {
            format!("{} broken off", status.as_u16())
        }
        RehearsalEnd::Dropped => "closed unanswered".to_owned(),
        RehearsalEnd::Left => "the client left".to_owned(),
        RehearsalEnd::Forever => "waits for ever".to_owned(),
        RehearsalEnd::Endless => "goes on and on".to_owned(),
        RehearsalEnd::Busy => "never waits".to_owned(),
    }
}
