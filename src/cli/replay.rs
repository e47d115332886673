//! `replay`: sends recorded requests again.

use std::fmt::Write as _;
use std::process::ExitCode;

use http::header::{self, HeaderName, HeaderValue};
use serde_json::Value as Json;

use super::arguments::{Format, Replay};
use super::explain::field;
use super::output::{complain, refuse, say};
use crate::replay::{Destination, ReplayError, Replayed, replay as send};
use crate::telemetry::recordings::{RecordedAnswer, RecordedBody, RecordedField, Recording, read};

/// How much of a body is shown.
const SHOWN: usize = 400;

pub(super) fn replay(replay: &Replay) -> ExitCode {
    let mut given = Vec::new();
    for written in &replay.headers {
        match field(written) {
            Ok(field) => given.push(field),
            Err(problem) => return refuse(&format!("--header {written}: {problem}")),
        }
    }
    let mut recordings = Vec::new();
    for path in &replay.files {
        match read(path) {
            Ok(recording) => recordings.push(recording),
            Err(error) => return refuse(&format!("{} cannot be read: {error}", path.display())),
        }
    }
    let driver = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(driver) => driver,
        Err(error) => return refuse(&format!("the system refuses: {error}")),
    };
    let mut all = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for (path, recording) in replay.files.iter().zip(&recordings) {
        match driver.block_on(one(replay, recording, &given)) {
            Ok(replayed) if replay.format == Format::Text => say(&text(recording, &replayed)),
            Ok(replayed) => all.push(replayed.to_json(recording)),
            Err(error) => {
                complain(&format!("{}: {error}", path.display()));
                code = ExitCode::FAILURE;
            }
        }
    }
    if replay.format == Format::Json {
        say(&format!("{:#}", Json::Array(all)));
    }
    code
}

async fn one(
    asked: &Replay,
    recording: &Recording,
    given: &[(HeaderName, HeaderValue)],
) -> Result<Replayed, ReplayError> {
    let to = match &asked.to {
        Some(url) => Destination::url(url),
        None => recording.listener.as_deref().and_then(Destination::recorder),
    };
    let unknown = || {
        let why =
            "the proxy that recorded it listens nowhere in clear text: say where with --to URL";
        ReplayError::Obstacle(why.to_owned())
    };
    send(recording, &to.ok_or_else(unknown)?, given).await
}

/// What came back, beside what was recorded.
fn text(recording: &Recording, replayed: &Replayed) -> String {
    let Recording { request, answer, execution, .. } = recording;
    let of = |member: &str| execution.get(member).and_then(Json::as_str).unwrap_or("?");
    let mut out = format!("{} {} to {}\n", request.method, request.target, replayed.to);
    let mut row = |what: &str, then: &str, now: &str| {
        writeln!(out, "{}", format!("  {what:<10} {then:<38} {now}").trim_end()).ok();
    };
    row("", "recorded", "now");
    row("execution", of("execution"), &replayed.execution);
    row("time", of("time"), "");
    let status = |answer: &RecordedAnswer| answer.status.to_string();
    let none = || "none".to_owned();
    row("status", &answer.as_ref().map_or_else(none, status), &status(&replayed.answer));
    let took = execution.get("duration").and_then(Json::as_f64).unwrap_or_default();
    row("duration", &format!("{took:.3} s"), &format!("{:.3} s", replayed.took.as_secs_f64()));
    let attempts = execution.get("attempts").and_then(Json::as_array);
    row("attempts", &attempts.map_or_else(none, |all| attempted(all)), "");
    for omitted in &replayed.omitted {
        writeln!(out, "  not sent, because it is not recorded: {omitted}").ok();
    }
    let recorded = answer.as_ref();
    for (name, then, now) in
        differing(recorded.map(|answer| &*answer.headers), &replayed.answer.headers)
    {
        writeln!(out, "  {name}: {then} → {now}").ok();
    }
    match (recorded.and_then(|answer| answer.body.as_ref()), &replayed.answer.body) {
        (None, None) => {}
        (then, Some(now)) if then == Some(now) => {
            writeln!(out, "\nThe body is the same, {} bytes:\n{}", now.bytes, shown(now)).ok();
        }
        (then, now) => {
            for (when, body) in [("recorded", then), ("now", now.as_ref())] {
                let size = body.map_or(0, |body| body.bytes);
                let body = body.map_or_else(String::new, shown);
                writeln!(out, "\nThe body {when}, {size} bytes:\n{body}").ok();
            }
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// `429 +1.000 s 200`: what each attempt came to, and the waits between them.
fn attempted(attempts: &[Json]) -> String {
    let mut told = Vec::new();
    for attempt in attempts {
        if let Some(wait) = attempt.get("waited").and_then(Json::as_f64) {
            told.push(format!("+{wait:.3} s"));
        }
        let code = attempt.get("code").and_then(Json::as_str).unwrap_or("?");
        let code = code.rsplit('.').next().unwrap_or(code).to_owned();
        told.push(attempt.get("status").and_then(Json::as_u64).map_or(code, |s| s.to_string()));
    }
    if told.is_empty() { "none".to_owned() } else { told.join(" ") }
}

/// The fields that differ, with both values. The date always does.
fn differing<'a>(
    then: Option<&'a [RecordedField]>,
    now: &'a [RecordedField],
) -> Vec<(&'a str, String, String)> {
    let own = [header::DATE, header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH];
    let then = then.unwrap_or_default();
    let values = |fields: &[RecordedField], name: &str| {
        let values = fields.iter().filter(|field| field.name == name);
        let values = values.map(|field| field.value.as_deref().unwrap_or("***"));
        let all: Vec<&str> = values.collect();
        if all.is_empty() { "(none)".to_owned() } else { all.join(", ") }
    };
    let mut names: Vec<&str> = then.iter().chain(now).map(|field| field.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !own.iter().any(|own| own == name));
    let both = names.into_iter().map(|name| (name, values(then, name), values(now, name)));
    both.filter(|(_, then, now)| then != now).collect()
}

/// The beginning of a body.
fn shown(body: &RecordedBody) -> String {
    let Some(text) = &body.text else {
        return "(it is no text)".to_owned();
    };
    let cut = text.char_indices().nth(SHOWN).map_or(text.len(), |(place, _)| place);
    let rest = if cut < text.len() || body.truncated { "…" } else { "" };
    let printable = text.get(..cut).unwrap_or_default().chars().map(|sign| {
        let plain = !sign.is_control() || sign == '\n' || sign == '\t';
        if plain { sign.to_string() } else { sign.escape_default().to_string() }
    });
    format!("{}{rest}", printable.collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: u16, kind: &str, body: &str) -> RecordedAnswer {
        let json = json!({
            "status": status,
            "headers": [{ "name": "date", "value": body }, { "name": "content-type", "value": kind }],
            "body": { "bytes": body.len(), "text": body },
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn what_came_back_stands_beside_what_came_back_then() {
        let recording = json!({
            "version": 1,
            "id": "a",
            "request": {
                "method": "POST", "target": "/charge?token=***", "maskedQuery": ["token"],
                "httpVersion": "1.1", "headers": [], "body": null,
            },
            "answer": answer(503, "text/plain", "later"),
            "execution": {
                "execution": "one", "time": "2026-11-29T08:52:00Z", "duration": 1.02, "attempts": [
                    { "status": 503, "code": "Provider.Call.Http.Unavailable" },
                    { "status": null, "code": "Provider.Call.Http.ConnectionFailed", "waited": 0.1 },
                ],
            },
        });
        let recording: Recording = serde_json::from_value(recording).unwrap();
        let replayed = Replayed {
            to: "http://127.0.0.1:8080".into(),
            execution: "two".into(),
            omitted: recording.request.hidden(),
            took: std::time::Duration::from_millis(12),
            answer: answer(200, "application/json", "{\u{1b}}"),
        };
        insta::assert_snapshot!(text(&recording, &replayed), @r"
        POST /charge?token=*** to http://127.0.0.1:8080
                     recorded                               now
          execution  one                                    two
          time       2026-11-29T08:52:00Z
          status     503                                    200
          duration   1.020 s                                0.012 s
          attempts   503 +0.100 s ConnectionFailed
          not sent, because it is not recorded: the query's token
          content-type: text/plain → application/json

        The body recorded, 5 bytes:
        later

        The body now, 3 bytes:
        {\u{1b}}
        ");
        let same = Replayed { answer: answer(503, "text/plain", "later"), ..replayed };
        assert!(text(&recording, &same).ends_with("The body is the same, 5 bytes:\nlater"));
    }
}
