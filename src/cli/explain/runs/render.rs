//! A tally as text, as JSON, and as rows beside those of another one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value as Json, json as object};

use super::super::text::{routes, write};
use super::super::{Explanation, json as once};
use super::{Load, Tally, percentile};
use crate::proxy::stage::record::IsoDuration;

/// The percentiles that are shown.
const SHARES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("most", 1.0)];

/// The whole text, without a final line break.
pub(in super::super) fn text(explained: &Explanation<'_, Tally>) -> String {
    let Explanation { asked, responses, described, told } = explained;
    let mut out = format!("{} {}, {}", asked.method, asked.target, times(told.runs));
    if let Some(why) = told.stopped {
        write!(out, " and no more: {why}").ok();
    }
    let written: Vec<&str> = responses.iter().map(|labelled| &*labelled.written).collect();
    if !written.is_empty() {
        write!(out, ": {}", written.join(", ")).ok();
    }
    out.push_str("\n\n");
    routes(&mut out, &told.routes, described);
    for (name, lines) in rows(told) {
        let mut lead = &*name;
        for line in lines {
            write(&mut out, format_args!("{lead:<18}{line}"));
            lead = "";
        }
    }
    out.trim_end().to_owned()
}

fn times(runs: u32) -> String {
    if runs == 1 { "once".to_owned() } else { format!("{} times", grouped(runs.into())) }
}

/// Each figure with its name.
pub(in super::super) fn rows(tally: &Tally) -> Vec<(String, Vec<String>)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, lines: Vec<String>| rows.push((name.to_owned(), lines));
    let runs = u64::from(tally.runs);
    let mut success = counted(tally.successes.into(), runs);
    if tally.degraded > 0 {
        write!(success, "; {} after a failure that was caught", grouped(tally.degraded.into()))
            .ok();
    }
    row("success", vec![success]);
    let answers = tally
        .answers
        .iter()
        .map(|(what, count)| format!("{what:<6} {}", counted((*count).into(), runs)));
    row("answers", answers.collect());
    row("", vec![SHARES.map(|(name, _)| format!("{name:>9}")).concat() + "     mean"]);
    let latency = |share| format!("{:>9.3}", percentile(&tally.latencies, share).as_secs_f64());
    let mean = mean(&tally.latencies).as_secs_f64();
    row(
        "latency, s",
        vec![SHARES.map(|(_, share)| latency(share)).concat() + &format!("{mean:>9.3}")],
    );
    let attempts = |share| format!("{:>9}", percentile(&tally.attempts, share));
    let all: u64 = tally.attempts.iter().map(|attempts| u64::from(*attempts)).sum();
    let mean = ratio(all, runs);
    row(
        "attempts",
        vec![SHARES.map(|(_, share)| attempts(share)).concat() + &format!("{mean:>9.2}")],
    );
    for (upstream, load) in &tally.loads {
        row(&format!("upstream {upstream}"), vec![load.says(runs)]);
    }
    if !tally.retries.is_empty() {
        let retries = tally.retries.iter();
        row(
            "retries",
            retries.map(|(code, count)| format!("{code} {}", grouped(*count))).collect(),
        );
    }
    for (name, count) in [
        ("gave up", tally.gave_up),
        ("bounds fired", tally.bounds),
        ("caught", tally.caught),
        ("cleanups failed", tally.cleanups_failed),
    ] {
        if count > 0 {
            row(name, vec![grouped(count)]);
        }
    }
    rows
}

impl Load {
    fn says(self, runs: u64) -> String {
        let Self { requests, again, refused } = self;
        let (all, each) = (grouped(requests), ratio(requests, runs));
        let mut says = format!("{all} requests, {each:.2} for each of the client's");
        if again > 0 {
            write!(says, "; {} of them again", grouped(again)).ok();
        }
        if refused > 0 {
            write!(says, "; {} connections refused", grouped(refused)).ok();
        }
        says
    }
}

/// The whole object.
pub(in super::super) fn json(explained: &Explanation<'_, Tally>) -> Json {
    let Explanation { asked, responses, described: _, told } = explained;
    let runs = u64::from(told.runs);
    let written: Vec<&str> = responses.iter().map(|labelled| &*labelled.written).collect();
    let shares = |of: &dyn Fn(f64) -> Json, mean: Json| {
        let all = SHARES.iter().map(|(name, share)| ((*name).to_owned(), of(*share)));
        Json::Object(all.chain([("mean".to_owned(), mean)]).collect())
    };
    let latency = |share| object!(IsoDuration(percentile(&told.latencies, share)));
    let attempts = |share| object!(percentile(&told.attempts, share));
    let all: u64 = told.attempts.iter().map(|attempts| u64::from(*attempts)).sum();
    let loads = told.loads.iter().map(|(name, load)| (name.clone(), load.json(runs)));
    object!({
        "request": once::request(asked),
        "responses": written,
        "route": told.routes.iter().find(|(_, why)| why.is_none()).map(|(name, _)| &**name),
        "runs": told.runs,
        "stopped": told.stopped,
        "successes": told.successes,
        "successRate": ratio(told.successes.into(), runs),
        "degraded": told.degraded,
        "answers": counts(told.answers.iter().map(|(what, count)| (what, u64::from(*count)))),
        "latency": shares(&latency, object!(IsoDuration(mean(&told.latencies)))),
        "attempts": shares(&attempts, object!(ratio(all, runs))),
        "upstreams": loads.collect::<Map<_, _>>(),
        "retries": counts(told.retries.iter().map(|(code, count)| (code, *count))),
        "gaveUp": told.gave_up,
        "boundsFired": told.bounds,
        "caught": told.caught,
        "cleanupsFailed": told.cleanups_failed,
    })
}

impl Load {
    fn json(self, runs: u64) -> Json {
        let Self { requests, again, refused } = self;
        object!({
            "requests": requests,
            "again": again,
            "refused": refused,
            "amplification": ratio(requests, runs),
        })
    }
}

fn counts<'c>(counts: impl Iterator<Item = (&'c String, u64)>) -> BTreeMap<&'c String, u64> {
    counts.collect()
}

/// `99.97% (9,997)`.
fn counted(count: u64, all: u64) -> String {
    format!("{:.2}% ({})", ratio(count, all) * 100.0, grouped(count))
}

fn ratio(count: u64, all: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of at most a few thousand millions")]
    let ratio = count as f64 / all.max(1) as f64;
    ratio
}

fn mean(sorted: &[Duration]) -> Duration {
    let all = sorted.iter().fold(Duration::ZERO, |all, length| all.saturating_add(*length));
    u32::try_from(sorted.len()).map_or(Duration::ZERO, |count| all / count.max(1))
}

/// `12,345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
