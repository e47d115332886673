//! A line for each request, for somebody who watches a terminal: `POST /charge 200 1.02 s  429 +1 s(delay) 200`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use super::record::{Attempt, Execution, short};

/// Who looks at the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineStyle {
    /// A file or a pipe.
    Plain,
    /// A terminal that shows colours.
    Coloured,
}

/// A colour of a terminal, by its number in "Select Graphic Rendition" (ECMA-48 §8.3.117).
#[derive(Clone, Copy, Debug)]
enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
    Faint = 2,
}

impl LineStyle {
    /// The function that appends the line of a record.
    pub(super) fn format<E: AsRef<Execution>>(self) -> fn(&E, &mut Vec<u8>) {
        match self {
            Self::Plain => |execution, out| Self::Plain.append(execution.as_ref(), out),
            Self::Coloured => |execution, out| Self::Coloured.append(execution.as_ref(), out),
        }
    }

    fn append(self, execution: &Execution, out: &mut Vec<u8>) {
        // Writing to a vector cannot fail.
        writeln!(out, "{}", self.line(execution)).ok();
    }

    /// The request, its answer's status and time; then each attempt with the wait before it; then what decided.
    fn line(self, execution: &Execution) -> String {
        let Execution { request, answer, attempts, omitted, failures, caught, bounds: _ } =
            execution;
        let status = self.painted(&answer.status.to_string(), colour(Some(answer.status)));
        let (method, path) = (printable(short(&request.method)), printable(short(&request.path)));
        let took = seconds(answer.took);
        let mut line = format!("{method} {path} {status} {took}");
        let (cleanups, steps): (Vec<_>, Vec<_>) =
            attempts.iter().partition(|attempt| attempt.call.cleanup);
        line.push(' ');
        for attempt in steps {
            self.attempt(&mut line, attempt);
        }
        if *omitted > 0 {
            write!(line, " and {omitted} more").ok();
        }
        if let Some(failure) = failures.first() {
            let code = self.painted(&failure.code, Some(Colour::Red));
            write!(line, "  {code}").ok();
            if let Some(cause) = failures.last().filter(|_| failures.len() > 1) {
                write!(line, " because of {}", cause.code).ok();
            }
        }
        for failure in caught {
            let code = failure.chain.first().map(|cause| &*cause.code).unwrap_or_default();
            let code = self.painted(code, Some(Colour::Yellow));
            write!(line, "  caught {code}, next {}", failure.next).ok();
        }
        for cleanup in cleanups {
            write!(line, "  {}", self.painted(&cleanup.call.step, Some(Colour::Faint))).ok();
            self.attempt(&mut line, cleanup);
        }
        line.truncate(line.trim_end().len());
        line
    }

    fn attempt(self, line: &mut String, attempt: &Attempt) {
        if let Some(wait) = attempt.wait {
            let why = if wait.source.as_str() == "override" { "(delay)" } else { "" };
            let wait = format!("+{}{why}", seconds(wait.delay));
            write!(line, " {}", self.painted(&wait, Some(Colour::Faint))).ok();
        }
        let what = match (attempt.status, &attempt.code) {
            _ if attempt.interrupted => "cut-off".to_owned(),
            (Some(status), _) => status.to_string(),
            (None, Some(code)) => code.rsplit('.').next().unwrap_or_default().to_owned(),
            (None, None) => "success".to_owned(),
        };
        let failed = attempt.interrupted || attempt.status.is_none() && attempt.code.is_some();
        let colour = if failed { Some(Colour::Red) } else { colour(attempt.status) };
        write!(line, " {}", self.painted(&what, colour)).ok();
    }

    fn painted(self, text: &str, colour: Option<Colour>) -> String {
        match colour.filter(|_| self == Self::Coloured) {
            Some(colour) => format!("\u{1b}[{}m{text}\u{1b}[0m", colour as u8),
            None => text.to_owned(),
        }
    }
}

/// The colour of a status.
fn colour(status: Option<u16>) -> Option<Colour> {
    Some(match status? {
        200..300 => Colour::Green,
        300..400 => Colour::Cyan,
        400..500 => Colour::Yellow,
        500.. => Colour::Red,
        _ => return None,
    })
}

/// `1.02 s`, `20 ms`, `0.4 ms`.
fn seconds(length: Duration) -> String {
    let millis = length.as_secs_f64() * 1000.0;
    match millis {
        0.0 => "0 s".to_owned(),
        ..1.0 => format!("{millis:.1} ms"),
        ..1000.0 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", length.as_secs_f64()),
    }
}

/// The text without what would command the terminal.
fn printable(text: &str) -> String {
    let escaped = text.chars().map(|sign| {
        if sign.is_control() { sign.escape_default().to_string() } else { sign.to_string() }
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::language::provider::{DelaySource, Wait};
    use crate::telemetry::record::tests::{answer, request};
    use crate::telemetry::record::{Call, CaughtFailure, Cause};

    fn attempt(number: u32, status: Option<u16>, code: Option<&str>, wait: Option<u64>) -> Attempt {
        Attempt {
            call: Call { step: "charge".into(), number, dispatch: None, cleanup: false },
            upstream: "billing".into(),
            endpoint: "127.0.0.1:3000".into(),
            status,
            code: code.map(Into::into),
            interrupted: false,
            wait: wait.map(|millis| Wait {
                delay: Duration::from_millis(millis),
                source: if millis < 1000 { DelaySource::Schedule } else { DelaySource::Override },
                policy: Some(0),
            }),
            began: Instant::now(),
            took: Duration::ZERO,
            span: None,
        }
    }

    fn execution(status: u16, attempts: Vec<Attempt>) -> Execution {
        let mut request = request("charge");
        request.method = "POST".into();
        request.path = "/charge\u{1b}[2J".into();
        let mut answer = answer(status, Instant::now(), 1);
        answer.took = Duration::from_millis(1020);
        Execution {
            request,
            answer,
            attempts,
            omitted: 0,
            failures: Vec::new(),
            caught: Vec::new(),
            bounds: Vec::new(),
        }
    }

    fn cause(code: &str) -> Cause {
        Cause { ty: "error".into(), code: code.into(), message: None, retryable: None }
    }

    #[test]
    fn a_line_has_the_attempts_the_waits_and_what_decided() {
        let throttled = attempt(1, Some(429), Some("Provider.Call.Http.Throttled"), None);
        let fine = execution(200, vec![throttled.clone(), attempt(2, Some(200), None, Some(1000))]);
        insta::assert_snapshot!(LineStyle::Plain.line(&fine), @r"POST /charge\u{1b}[2J 200 1.02 s  429 +1.00 s(delay) 200");
        let refused = attempt(2, None, Some("Provider.Call.Http.ConnectionFailed"), Some(20));
        let mut cut = attempt(3, None, None, Some(40));
        cut.interrupted = true;
        let mut failed = execution(504, vec![throttled, refused, cut]);
        failed.failures = vec![
            cause("Provider.Middleware.Timeout.Exceeded"),
            cause("Provider.Call.Http.ConnectionFailed"),
        ];
        insta::assert_snapshot!(LineStyle::Plain.line(&failed), @r"POST /charge\u{1b}[2J 504 1.02 s  429 +20 ms ConnectionFailed +40 ms cut-off  Provider.Middleware.Timeout.Exceeded because of Provider.Call.Http.ConnectionFailed");
    }

    #[test]
    fn a_line_tells_what_was_caught_and_what_was_cleaned_up() {
        let mut audit = attempt(1, Some(201), None, None);
        audit.call = Call { step: "audit".into(), number: 1, dispatch: None, cleanup: true };
        let mut caught =
            execution(200, vec![attempt(1, Some(402), Some("Card.Declined"), None), audit]);
        caught.caught.push(CaughtFailure {
            step: "charge".into(),
            next: "declined".into(),
            cleanup: false,
            chain: vec![cause("Card.Declined")],
        });
        insta::assert_snapshot!(LineStyle::Plain.line(&caught), @r"POST /charge\u{1b}[2J 200 1.02 s  402  caught Card.Declined, next declined  audit 201");
    }

    #[test]
    fn only_a_terminal_gets_colours() {
        let fine =
            Arc::new(execution(503, vec![attempt(1, Some(503), Some("x.Unavailable"), None)]));
        let written = |style: LineStyle| {
            let mut out = Vec::new();
            style.format()(&fine, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert!(!written(LineStyle::Plain).contains('\u{1b}'));
        let coloured = written(LineStyle::Coloured);
        assert!(
            coloured.contains("\u{1b}[31m503\u{1b}[0m 1.02 s  \u{1b}[31m503\u{1b}[0m\n"),
            "{coloured}"
        );
    }
}
