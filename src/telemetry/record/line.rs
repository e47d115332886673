//! A record as one flat line of JSON, for the access log. It has the Result's code, but not the messages of the chain.
//!
//! The members are those of `/executions`, which `serde` writes ([`shown`](super::shown)). A line is written by hand, because
//! under load there is one for each request: field by field into a buffer, without an allocation.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::{Attempt, Call, CaughtFailure, Execution, FiredBound, RequestRef, Traced, short};
use crate::language::temporal::Timestamp;
use crate::telemetry::hex;

const NANOS: i64 = 1_000_000_000;

/// The text of the last second of which a line told, for those that follow in it.
#[derive(Clone, Debug)]
pub struct KnownSecond {
    /// Since the Unix epoch.
    second: i64,
    /// RFC 3339, without `Z`.
    text: Box<str>,
}

impl Default for KnownSecond {
    fn default() -> Self {
        Self { second: i64::MIN, text: Box::default() }
    }
}

impl KnownSecond {
    /// Appends `at` as RFC 3339, with as many digits of its fraction as needed.
    fn append(&mut self, at: Timestamp, out: &mut Vec<u8>) {
        let Ok(nanos) = i64::try_from(at.as_nanos()) else {
            // Centuries away, by a clock that is wrong.
            out.extend_from_slice(at.to_string().as_bytes());
            return;
        };
        let second = nanos.div_euclid(NANOS);
        if second != self.second {
            let text = Timestamp::from_nanos(i128::from(second) * i128::from(NANOS)).to_string();
            self.text = text.trim_end_matches('Z').into();
            self.second = second;
        }
        out.extend_from_slice(self.text.as_bytes());
        let fraction = nanos.rem_euclid(NANOS);
        if fraction > 0 {
            out.push(b'.');
            append_fraction(fraction.unsigned_abs(), out);
        }
        out.push(b'Z');
    }
}

impl Execution<RequestRef<'_>> {
    /// Appends the line, with its line feed.
    pub(in crate::telemetry) fn line(&self, second: &mut KnownSecond, out: &mut Vec<u8>) {
        let Self { request, answer, attempts, omitted, failures, caught, bounds } = self;
        let RequestRef { id, request: number, route, client, method, path, received, at, trace } =
            request;
        let first = failures.first();
        out.extend_from_slice(b"{\"time\":\"");
        second.append(*at, out);
        out.extend_from_slice(b"\",\"execution\":");
        append_text(id, out);
        out.extend_from_slice(b",\"request\":\"");
        out.extend_from_slice(hex::digits(number.0).as_flattened());
        out.extend_from_slice(b"\",\"route\":");
        append_optional(*route, out);
        out.extend_from_slice(b",\"client\":\"");
        append_address(*client, out);
        out.extend_from_slice(b"\",\"method\":");
        append_text(short(method), out);
        out.extend_from_slice(b",\"path\":");
        append_text(short(path), out);
        out.extend_from_slice(b",\"status\":");
        append_number(answer.status, out);
        out.extend_from_slice(b",\"result\":");
        append_text(first.map_or("success", |cause| &cause.ty), out);
        out.extend_from_slice(b",\"code\":");
        append_optional(first.map(|cause| &*cause.code), out);
        out.extend_from_slice(b",\"duration\":");
        append_seconds(answer.took, out);
        out.extend_from_slice(b",\"bytesIn\":");
        append_number(*received, out);
        out.extend_from_slice(b",\"bytesOut\":");
        append_number(answer.sent, out);
        if let Some(Traced { context, .. }) = trace {
            out.extend_from_slice(b",\"trace\":\"");
            out.extend_from_slice(hex::digits(context.trace()).as_flattened());
            out.push(b'"');
        }
        out.extend_from_slice(b",\"attempts\":[");
        separated(attempts, out, |attempt, out| {
            let since = attempt.began.saturating_duration_since(answer.began);
            append_attempt(attempt, since, out);
        });
        out.push(b']');
        if *omitted > 0 {
            out.extend_from_slice(b",\"attemptsOmitted\":");
            append_number(*omitted, out);
        }
        if !caught.is_empty() {
            out.extend_from_slice(b",\"caught\":[");
            separated(caught, out, append_caught);
            out.push(b']');
        }
        if !bounds.is_empty() {
            out.extend_from_slice(b",\"bounds\":[");
            separated(bounds, out, |bound, out| append_bound(bound, answer.began, out));
            out.push(b']');
        }
        out.extend_from_slice(b"}\n");
    }
}

fn append_attempt(attempt: &Attempt, since: Duration, out: &mut Vec<u8>) {
    let Attempt { call, upstream, endpoint, status, code, interrupted, wait, took, .. } = attempt;
    let Call { step, number, dispatch, cleanup } = call;
    out.extend_from_slice(b"{\"step\":");
    append_text(step, out);
    out.extend_from_slice(b",\"attempt\":");
    append_number(*number, out);
    if let Some(dispatch) = dispatch {
        out.extend_from_slice(b",\"dispatch\":");
        append_number(*dispatch, out);
    }
    if *cleanup {
        out.extend_from_slice(b",\"cleanup\":true");
    }
    out.extend_from_slice(b",\"upstream\":");
    append_text(upstream, out);
    out.extend_from_slice(b",\"endpoint\":");
    append_text(endpoint, out);
    out.extend_from_slice(b",\"status\":");
    match status {
        Some(status) => append_number(*status, out),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"code\":");
    append_optional(code.as_deref(), out);
    if *interrupted {
        out.extend_from_slice(b",\"interrupted\":true");
    }
    out.extend_from_slice(b",\"began\":");
    append_seconds(since, out);
    match wait {
        Some(wait) => {
            out.extend_from_slice(b",\"waited\":");
            append_seconds(wait.delay, out);
            out.extend_from_slice(b",\"source\":");
            append_text(wait.source.as_str(), out);
        }
        None => out.extend_from_slice(b",\"waited\":null,\"source\":null"),
    }
    out.extend_from_slice(b",\"took\":");
    append_seconds(*took, out);
    out.push(b'}');
}

fn append_bound(bound: &FiredBound, began: Instant, out: &mut Vec<u8>) {
    let FiredBound { entry, duration, fired } = bound;
    out.extend_from_slice(b"{\"entry\":");
    append_text(entry, out);
    out.extend_from_slice(b",\"duration\":");
    append_optional(duration.as_deref(), out);
    out.extend_from_slice(b",\"fired\":");
    append_seconds(fired.saturating_duration_since(began), out);
    out.push(b'}');
}

fn append_caught(caught: &CaughtFailure, out: &mut Vec<u8>) {
    let CaughtFailure { step, next, cleanup, chain } = caught;
    out.extend_from_slice(b"{\"step\":");
    append_text(step, out);
    out.extend_from_slice(b",\"next\":");
    append_text(next, out);
    if *cleanup {
        out.extend_from_slice(b",\"cleanup\":true");
    }
    out.extend_from_slice(b",\"code\":");
    append_optional(chain.first().map(|cause| &*cause.code), out);
    out.push(b'}');
}

/// Appends each of `items`, with a comma between them.
fn separated<T>(items: &[T], out: &mut Vec<u8>, append: impl Fn(&T, &mut Vec<u8>)) {
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        append(item, out);
    }
}

fn append_optional(text: Option<&str>, out: &mut Vec<u8>) {
    match text {
        Some(text) => append_text(text, out),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends a string in quotation marks.
fn append_text(text: &str, out: &mut Vec<u8>) {
    if is_plain(text.as_bytes()) {
        out.reserve(text.len() + 2);
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    let length = out.len();
    if serde_json::to_writer(&mut *out, text).is_err() {
        // A string cannot fail to serialize; if it did, half of one would be worse than none.
        out.truncate(length);
        out.extend_from_slice(b"null");
    }
}

/// Whether a text stands in JSON as it is. It is looked at eight bytes at a time.
fn is_plain(text: &[u8]) -> bool {
    let escape = |word: &[u8; 8]| to_escape(u64::from_le_bytes(*word));
    // The last word covers what is left over.
    if let Some(last) = text.last_chunk() {
        let (words, _) = text.as_chunks();
        return words.iter().fold(escape(last), |found, word| found | escape(word)) == 0;
    }
    let mut padded = [b'-'; 8];
    for (place, byte) in padded.iter_mut().zip(text) {
        *place = *byte;
    }
    escape(&padded) == 0
}

/// Has the highest bit of a byte set if this byte, or one before it, is a control character, a quotation mark or a
/// backslash. A byte of a longer character is none.
fn to_escape(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let below = |word: u64, bound: u8| word.wrapping_sub(EACH * u64::from(bound)) & !word;
    let is = |byte: u8| below(word ^ (EACH * u64::from(byte)), 1);
    (below(word, b' ') | is(b'"') | is(b'\\')) & (EACH * 0x80)
}

fn append_number(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a time in seconds, to the nanosecond: `0.02`, and `0.0` for none.
fn append_seconds(time: Duration, out: &mut Vec<u8>) {
    append_number(time.as_secs(), out);
    out.push(b'.');
    append_fraction(time.subsec_nanos().into(), out);
}

/// Appends nanoseconds as digits behind the point, at least one, without zeros at their end.
fn append_fraction(nanos: u64, out: &mut Vec<u8>) {
    // The digit before them keeps the zeros at their beginning.
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(1_000_000_000 + nanos).as_bytes();
    let digits = digits.get(1..).unwrap_or_default();
    let end = digits.iter().rposition(|digit| *digit != b'0').unwrap_or_default();
    out.extend_from_slice(digits.get(..=end).unwrap_or_default());
}

fn append_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            for (place, part) in address.octets().into_iter().enumerate() {
                if place > 0 {
                    out.push(b'.');
                }
                append_number(part, out);
            }
        }
        // Writing to a vector cannot fail.
        IpAddr::V6(address) => {
            std::io::Write::write_fmt(out, format_args!("{address}")).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;
    use crate::language::outcome::{Failure, Outcome};
    use crate::language::provider::{DelaySource, Wait};
    use crate::telemetry::record::tests::{answer, attempt, request_ref};
    use crate::telemetry::record::{Cause, Recorder};

    /// A line, parsed, and what `/executions` would show of it without the chains.
    fn both(execution: Execution<RequestRef<'_>>) -> (serde_json::Value, serde_json::Value) {
        let mut line = Vec::new();
        execution.line(&mut KnownSecond::default(), &mut line);
        assert_eq!(line.pop(), Some(b'\n'));
        let text = String::from_utf8(line).unwrap();
        let shown = serde_json::to_string(&execution.into_owned().shown(false)).unwrap();
        (
            rounded(serde_json::from_str(&text).unwrap()),
            rounded(serde_json::from_str(&shown).unwrap()),
        )
    }

    /// A line is exact to the nanosecond, and a double nearly.
    fn rounded(mut value: serde_json::Value) -> serde_json::Value {
        match &mut value {
            serde_json::Value::Number(number) if number.is_f64() => {
                let nanos = number.as_f64().unwrap() * 1e9;
                return format!("{nanos:.0} ns").into();
            }
            serde_json::Value::Array(items) => {
                for item in items {
                    *item = rounded(item.take());
                }
            }
            serde_json::Value::Object(members) => {
                for member in members.values_mut() {
                    *member = rounded(member.take());
                }
            }
            _ => {}
        }
        value
    }

    proptest! {
        #[test]
        fn a_line_says_what_executions_shows(
            texts in any::<[String; 6]>(),
            (nanos, took, status) in (any::<u32>(), 0..5_000_000_000_u64, 100..599_u16),
            (dispatch, cleanup, interrupted) in any::<(Option<u8>, bool, bool)>(),
            v6 in any::<Option<u128>>(),
        ) {
            let [id, path, step, endpoint, code, route] = &texts;
            let begun = Instant::now();
            let recorder = Recorder::default();
            let mut one = attempt(3, begun + Duration::from_nanos(took / 3), Some(code));
            one.call = Call { step: step.as_str().into(), dispatch: dispatch.map(Into::into), cleanup, ..one.call };
            one.endpoint = endpoint.as_str().into();
            one.interrupted = interrupted;
            one.took = Duration::from_nanos(took / 2);
            if interrupted {
                one.status = None;
                let (delay, source) = (Duration::from_nanos(took), DelaySource::Schedule);
                one.wait = Some(Wait { delay, source, policy: None });
            }
            recorder.attempt(one);
            recorder.caught(CaughtFailure {
                step: step.as_str().into(),
                next: path.as_str().into(),
                cleanup,
                chain: vec![Cause { ty: "error".into(), code: code.as_str().into(), message: None, retryable: None }],
            });
            recorder.bound(FiredBound {
                entry: step.as_str().into(),
                duration: dispatch.map(|_| endpoint.as_str().into()),
                fired: begun + Duration::from_nanos(took / 4),
            });
            recorder.result(&Outcome::from(Failure::error(code.clone(), "x")));
            let mut answer = answer(status, begun, 0);
            answer.took = Duration::from_nanos(took);
            recorder.answered(answer);
            let mut request = request_ref(id);
            request.path = path;
            request.route = cleanup.then_some(route.as_str());
            request.at = Timestamp::from_nanos(i128::from(nanos) * 7_777_777);
            if let Some(v6) = v6 {
                request.client = std::net::Ipv6Addr::from_bits(v6).into();
            }
            let (line, shown) = both(recorder.finish(|_| request).unwrap());
            prop_assert_eq!(line, shown);
        }

        #[test]
        fn times_are_what_the_library_writes(nanos in any::<i64>(), near in 0..3_000_000_000_i64) {
            let mut known = KnownSecond::default();
            // The second has the text of the first at hand, or must not use it.
            for nanos in [nanos, nanos.saturating_add(near)] {
                let (at, mut out) = (Timestamp::from_nanos(nanos.into()), Vec::new());
                known.append(at, &mut out);
                prop_assert_eq!(String::from_utf8(out).unwrap(), at.to_string());
            }
        }
    }

    proptest! {
        #[test]
        fn what_must_be_escaped_is_found(text in any::<String>(), at in 0..40_usize, byte in 0..0x80_u8) {
            let escapes = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
            let mut bytes = text.into_bytes();
            prop_assert_eq!(is_plain(&bytes), !bytes.iter().copied().any(escapes));
            bytes = vec![b'a'; 40];
            bytes[at] = byte;
            prop_assert_eq!(is_plain(&bytes), !escapes(byte));
        }
    }

    #[test]
    fn a_second_that_no_clock_of_ours_reaches_is_told_all_the_same() {
        let (at, mut out) = (Timestamp::from_nanos(i128::from(i64::MAX) * 20), Vec::new());
        KnownSecond::default().append(at, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), at.to_string());
    }
}
