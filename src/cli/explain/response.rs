//! A scripted response, as written on the command line: `503*2@20ms,retry-after=2`.

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName};

use super::argument::{ArgumentError, duration};
use super::request;
use crate::proxy::stage::{Latency, ScriptedAction, ScriptedResponse};

/// How often a response may be repeated. More would only fill the record.
pub(super) const TIMES: usize = 10_000;

/// A response, how many calls get it in a row, and where its upstream's name is in the text.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) planned: ScriptedResponse,
    pub(super) times: usize,
    pub(super) upstream_at: usize,
}

/// A scripted response as the user wrote it.
#[derive(Debug)]
pub(super) struct Labelled {
    /// Where it was written: `--respond #1`.
    pub(super) at: String,
    pub(super) written: String,
    pub(super) response: Response,
}

/// What stands before the first comma: `503*3@20ms`.
struct Head<'a> {
    what: &'a str,
    act: ScriptedAction,
    times: Option<usize>,
    after: Option<(usize, Latency)>,
}

/// One `name=value`, and the offsets of both parts.
struct ResponseOption<'a> {
    name: &'a str,
    value: &'a str,
    at: usize,
}

/// The options of one response.
#[derive(Debug, Default)]
struct Options<'a> {
    /// The options that only make sense for a response, with their offsets, for errors about the others.
    own: Vec<(usize, &'a str)>,
    headers: HeaderMap,
    body: Bytes,
    after: Option<(usize, Latency)>,
    upstream: Option<(usize, &'a str)>,
}

/// Parses one response.
pub(super) fn read(written: &str) -> Result<Response, ArgumentError> {
    let (head, rest) = written.split_once(',').unwrap_or((written, ""));
    let begins = head.len();
    let head = self::head(head)?;
    let mut options = Options { after: head.after, ..Options::default() };
    if begins < written.len() {
        for option in split(rest, begins + 1)? {
            options.take(&option)?;
        }
    }
    let Options { own, headers, body, after, upstream } = options;
    let act = match head.act {
        ScriptedAction::Answer { status, .. } => ScriptedAction::Answer { status, headers, body },
        act => {
            if let Some((offset, name)) = own.first() {
                let message = format!("`{}` is no answer: it has no `{name}`", head.what);
                return Err(ArgumentError::at(*offset, message));
            }
            act
        }
    };
    if let (ScriptedAction::Hang, Some((offset, _))) = (&act, after) {
        return Err(ArgumentError::at(
            offset,
            "`hang` never answers: how long it takes has no meaning",
        ));
    }
    Ok(Response {
        upstream_at: upstream.map_or(0, |(at, _)| at),
        times: head.times.unwrap_or(1),
        planned: ScriptedResponse {
            upstream: upstream.map(|(_, name)| name.into()),
            after: after.map_or_else(Latency::default, |(_, after)| after),
            act,
        },
    })
}

/// A status or a word, and behind it in any order `*` with a number and `@` with a latency.
fn head(written: &str) -> Result<Head<'_>, ArgumentError> {
    let end = written.find(['*', '@']).unwrap_or(written.len());
    let (what, mut rest) = written.split_at_checked(end).unwrap_or((written, ""));
    let mut head = Head { what, act: act(what)?, times: None, after: None };
    while let Some(sign) = rest.chars().next() {
        let at = written.len() - rest.len();
        let after = rest.get(1..).unwrap_or_default();
        let end = after.find(['*', '@']).unwrap_or(after.len());
        let (text, more) = after.split_at_checked(end).unwrap_or((after, ""));
        let twice = match sign {
            '*' => head.times.replace(times(text, at + 1)?).is_some(),
            _ => head.after.replace((at, latency(text, at + 1)?)).is_some(),
        };
        if twice {
            return Err(ArgumentError::at(at, format!("`{sign}` stands here a second time")));
        }
        rest = more;
    }
    Ok(head)
}

fn times(text: &str, at: usize) -> Result<usize, ArgumentError> {
    let times = text.parse().ok().filter(|times| (1..=TIMES).contains(times));
    let message = || format!("`{text}` is no number of times: from 1 to {TIMES}");
    times.ok_or_else(|| ArgumentError::at(at, message()))
}

/// `20ms`, or `20ms..80ms` for draws between the two.
pub(super) fn latency(text: &str, at: usize) -> Result<Latency, ArgumentError> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let read = |text: &str, offset: usize| {
        duration(text).map_err(|wrong| ArgumentError::at(at + offset, wrong.message))
    };
    let latency = Latency { least: read(least, 0)?, most: read(most, text.len() - most.len())? };
    if latency.least > latency.most {
        return Err(ArgumentError::at(at, format!("`{text}` ends before it begins")));
    }
    Ok(latency)
}

fn act(what: &str) -> Result<ScriptedAction, ArgumentError> {
    match what {
        "reset" => return Ok(ScriptedAction::Reset),
        "refused" => return Ok(ScriptedAction::Refused),
        "hang" => return Ok(ScriptedAction::Hang),
        _ => {}
    }
    let status = what.parse::<u16>().ok().filter(|status| (200..600).contains(status));
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    let message = || {
        format!("`{what}` is no response: a status from 200 to 599, `reset`, `refused` or `hang`")
    };
    let status = status.ok_or_else(|| ArgumentError::at(0, message()))?;
    Ok(ScriptedAction::Answer { status, headers: HeaderMap::new(), body: Bytes::new() })
}

/// Splits `rest`, which begins at `at`, into options. A comma without a `name=` after it belongs to the value
/// before it, because dates contain one. A body extends to the end, except for `after=` and `upstream=` there.
fn split(rest: &str, at: usize) -> Result<Vec<ResponseOption<'_>>, ArgumentError> {
    let mut options = Vec::new();
    let mut from = 0;
    while let Some(text) = rest.get(from..) {
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| is_name(name)) else {
            let end = text.find(',').unwrap_or(text.len());
            let seen = text.get(..end).unwrap_or(text);
            let another = act(seen).is_ok();
            let help = if another { ": each response has its own `--respond`" } else { "" };
            let message = format!("`{seen}` is no `name=value`{help}");
            return Err(ArgumentError::at(at + from, message));
        };
        let length = if name == "body" { body_end(value) } else { value_end(value) };
        let value = value.get(..length).unwrap_or(value);
        options.push(ResponseOption { name, value, at: at + from });
        from += name.len() + 1 + length + 1;
        if from > rest.len() {
            break;
        }
    }
    Ok(options)
}

fn is_name(text: &str) -> bool {
    HeaderName::try_from(text).is_ok()
}

/// The end of a value: the first comma that is followed by `name=`.
fn value_end(text: &str) -> usize {
    let named = |(comma, _): &(usize, &str)| {
        let after = text.get(comma + 1..).and_then(|after| after.split_once('='));
        after.is_some_and(|(name, _)| is_name(name))
    };
    text.match_indices(',').find(named).map_or(text.len(), |(comma, _)| comma)
}

/// The end of a body.
fn body_end(text: &str) -> usize {
    let mut end = text.len();
    while let Some((before, last)) = text.get(..end).and_then(|text| text.rsplit_once(','))
        && (last.starts_with("after=") || last.starts_with("upstream="))
    {
        end = before.len();
    }
    end
}

impl<'a> Options<'a> {
    fn take(&mut self, option: &ResponseOption<'a>) -> Result<(), ArgumentError> {
        let ResponseOption { name, value, at } = *option;
        let value_at = at + name.len() + 1;
        match name {
            "after" => {
                if self.after.replace((at, latency(value, value_at)?)).is_some() {
                    return Err(ArgumentError::at(at, "how long it takes is said twice"));
                }
            }
            "upstream" => self.upstream = Some((value_at, value)),
            "body" => {
                self.own.push((at, name));
                self.body = Bytes::copy_from_slice(value.as_bytes());
            }
            _ => {
                self.own.push((at, name));
                let field = request::name(name, at)?;
                self.headers.append(field, request::value(value, value_at)?);
            }
        }
        Ok(())
    }
}
