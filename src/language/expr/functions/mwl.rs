//! The MWL functions ("MWL functions"), and CEL's functions on durations that the CEL crate gets wrong.

use cel::ExecutionError;
use cel::common::types::{
    CelDuration, CelInt, CelString, CelTimestamp, DURATION_TYPE, DYN_TYPE, STRING_TYPE,
    TIMESTAMP_TYPE,
};
use cel::common::value::CowVal;

use super::super::{convert, duration, json, values, work};
use super::{Args, CelResult, Overload, take, text, unexpected};
use crate::language::temporal::Span;

pub(super) const OVERLOADS: &[Overload] = &[
    ("toJson", "to_json", &[DYN_TYPE], to_json),
    ("fromJson", "from_json", &[STRING_TYPE], from_json),
    ("durationToIso8601", "duration_to_iso8601", &[DURATION_TYPE], to_iso8601),
    ("durationFromIso8601", "duration_from_iso8601", &[STRING_TYPE], from_iso8601),
    ("@duration", "duration_string", &[STRING_TYPE], duration_of_text),
    ("@duration", "duration_duration", &[DURATION_TYPE], first),
    ("@getMilliseconds", "of_duration", &[DURATION_TYPE], milliseconds),
    ("@getMilliseconds", "of_timestamp", &[TIMESTAMP_TYPE], milliseconds),
];

fn to_json<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [value] = take(args)?;
    let value = convert::to_value(value.as_ref())
        .map_err(|problem| ExecutionError::function_error("toJson", problem))?;
    Ok(CowVal::owned(CelString::from(json::canonical(&value)?)))
}

fn from_json<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [argument] = take(args)?;
    let source = text(&argument)?;
    // Ten thousand brackets make ten thousand values, so every few bytes are paid for.
    work::spend(1 + u64::try_from(source.len() / 4).unwrap_or(u64::MAX))?;
    let value = json::parse(source)
        .map_err(|problem| ExecutionError::function_error("fromJson", problem))?;
    Ok(CowVal::Owned(values::wrap(value)))
}

fn to_iso8601<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [argument] = take(args)?;
    let duration = argument
        .downcast_ref::<CelDuration>()
        .ok_or_else(|| unexpected(argument.as_ref(), "duration"))?;
    let span = Span::from_nanos(duration::nanos(*duration.inner()));
    Ok(CowVal::owned(CelString::from(span.to_string())))
}

fn from_iso8601<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [argument] = take(args)?;
    let written = text(&argument)?;
    let refuse = |problem: &str| {
        let shown: String = written.chars().take(60).collect();
        ExecutionError::function_error("durationFromIso8601", format!("\"{shown}\" {problem}"))
    };
    let span = Span::parse(written)
        .ok_or_else(|| refuse("is not an ISO 8601 duration; one is \"PT1M30S\""))?;
    duration::of_nanos(span.as_nanos())
        .map(CowVal::owned)
        .ok_or_else(|| refuse("is beyond the range of a CEL duration, about 292 years"))
}

fn duration_of_text<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [argument] = take(args)?;
    duration::parse(text(&argument)?)
        .map(CowVal::owned)
        .map_err(|problem| ExecutionError::function_error("duration", problem))
}

/// The milliseconds within the second, for a duration or for a timestamp in UTC.
fn milliseconds<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [argument] = take(args)?;
    if let Some(duration) = argument.downcast_ref::<CelDuration>() {
        let nanos = duration::nanos(*duration.inner()) % 1_000_000_000;
        let millis = i64::try_from(nanos / 1_000_000).unwrap_or(0);
        return Ok(CowVal::owned(CelInt::from(millis)));
    }
    let timestamp = argument
        .downcast_ref::<CelTimestamp>()
        .ok_or_else(|| unexpected(argument.as_ref(), "timestamp"))?;
    let millis = i64::from(timestamp.inner().timestamp_subsec_millis());
    Ok(CowVal::owned(CelInt::from(millis)))
}

/// `duration(d)` for a `d` that is a duration already.
fn first<'b, 'v>(args: Args<'b, 'v>) -> CelResult<'b, 'v> {
    let [value] = take(args)?;
    Ok(value)
}
