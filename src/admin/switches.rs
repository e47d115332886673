//! `POST /routes/NAME/retries`: switches the retries of a route off for a time, and on again.

use std::time::Duration;

use super::unknown;
use crate::language::temporal::Span;
use crate::proxy::message::query;

/// How long retries are off if the request does not say it.
const USUAL: Duration = Duration::from_mins(10);
/// How long they may be off at most: what nobody remembers must end by itself.
const LONGEST: Duration = Duration::from_hours(24);

/// What a request wants of a route's retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetriesState {
    /// That they are made.
    On,
    /// That none is made for so long.
    Off(Duration),
}

/// Parses the query. The error names what was found and what is expected.
pub(super) fn retries(written: &str) -> Result<RetriesState, String> {
    let (mut off, mut length) = (None, None);
    for (name, value) in query::pairs(written) {
        match (&*name, &*value) {
            ("state", "off") => off = Some(true),
            ("state", "on") => off = Some(false),
            ("state", _) => return Err(format!("`state` is `{value}`; wanted: off or on\n")),
            ("for", _) => {
                let span = Span::parse(&value).map(Span::to_duration);
                let span = span.filter(|span| !span.is_zero() && *span <= LONGEST);
                length = Some(span.ok_or_else(|| {
                    format!("`for` is `{value}`; wanted: a duration up to PT24H, such as PT10M\n")
                })?);
            }
            _ => return Err(unknown(&name, "state, for")),
        }
    }
    match (off, length) {
        (None, _) => Err("`state` is missing; wanted: off or on\n".to_owned()),
        (Some(false), Some(_)) => Err("`for` goes with `state=off` only\n".to_owned()),
        (Some(false), None) => Ok(RetriesState::On),
        (Some(true), length) => Ok(RetriesState::Off(length.unwrap_or(USUAL))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_the_state_and_for_how_long() {
        let off = |length: Duration| Ok(RetriesState::Off(length));
        assert_eq!(retries("state=off"), off(USUAL));
        assert_eq!(retries("state=off&for=PT1H"), off(Duration::from_hours(1)));
        assert_eq!(retries("for=PT24H&state=off"), off(LONGEST));
        assert_eq!(retries("state=on"), Ok(RetriesState::On));
        let said = ["", "state=of", "state=on&for=PT1S", "state=off&for=PT25H", "state=off&for=1"];
        let said = said.iter().chain(&["state=off&for=PT0S", "status=off"]);
        let said: String = said.map(|written| retries(written).unwrap_err()).collect();
        insta::assert_snapshot!(said, @r"
        `state` is missing; wanted: off or on
        `state` is `of`; wanted: off or on
        `for` goes with `state=off` only
        `for` is `PT25H`; wanted: a duration up to PT24H, such as PT10M
        `for` is `1`; wanted: a duration up to PT24H, such as PT10M
        `for` is `PT0S`; wanted: a duration up to PT24H, such as PT10M
        `status` is no parameter; wanted: state, for
        ");
    }
}
