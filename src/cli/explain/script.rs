//! A file of scripted responses: for each upstream a list, in order.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

use super::argument::ArgumentError;
use super::request;
use super::response::{self, Labelled, Response};
use crate::proxy::stage::{Latency, ScriptedAction, ScriptedResponse};
use crate::source::{
    Diagnostic, Diagnostics, Format, Kind, MAX_BYTES, Member, Node, Sources, did_you_mean,
    with_article,
};
use crate::system::file;

/// The name of the list for all upstreams that have none of their own.
pub(super) const ANY: &str = "*";

/// The members of a response that is an object.
const MEMBERS: [&str; 8] =
    ["status", "reset", "refused", "hang", "headers", "body", "after", "times"];

/// Those of them that say what happens.
const ACTS: [&str; 4] = ["status", "reset", "refused", "hang"];

/// Collects what is wrong with the file.
struct Reader<'a> {
    known: &'a [&'a str],
    found: Diagnostics,
}

/// The responses in the file at `path`, for upstreams of the names `known`.
///
/// # Errors
/// Every mistake, or why it cannot be read.
pub(super) fn read(path: &Path, known: &[&str]) -> Result<Vec<Labelled>, String> {
    let name = path.display().to_string();
    let text = file::read_given_text(path, MAX_BYTES);
    let text = text.map_err(|error| format!("{name} cannot be read: {error}"))?;
    of_text(&name, &text, known)
}

/// The same for a text.
pub(super) fn of_text(name: &str, text: &str, known: &[&str]) -> Result<Vec<Labelled>, String> {
    let mut sources = Sources::default();
    let parsed = sources.parse(name, text, Format::of_name(name));
    let node = parsed.map_err(|found| sources.render(&found))?;
    let mut reader = Reader { known, found: Diagnostics::default() };
    let responses = reader.file(&node);
    if reader.found.has_errors() {
        return Err(sources.render(&reader.found.sorted()));
    }
    Ok(responses)
}

impl Reader<'_> {
    fn file(&mut self, node: &Node) -> Vec<Labelled> {
        let Some(lists) = node.as_object().filter(|lists| !lists.is_empty()) else {
            self.wrong(
                node,
                "wanted: an object with a list of responses for each upstream, `*` for all others",
            );
            return Vec::new();
        };
        lists.iter().flat_map(|list| self.list(list)).collect()
    }

    fn list(&mut self, list: &Member) -> Vec<Labelled> {
        let name = &*list.key;
        if name != ANY && !self.known.contains(&name) {
            let all = self.known.join("`, `");
            let message =
                format!("there is no upstream `{name}`; there is `{all}`, and `*` for all others");
            let meant = did_you_mean(name, self.known.iter().copied());
            let wrong = Diagnostic::error("unknown-upstream", list.key_span, message);
            self.found.push(match meant {
                Some(help) => wrong.with_help(help),
                None => wrong,
            });
        }
        let Some(items) = list.value.as_array().filter(|items| !items.is_empty()) else {
            self.wrong(
                &list.value,
                "wanted: a list of responses, in order; the last one is given again and again",
            );
            return Vec::new();
        };
        let upstream = (name != ANY).then(|| Arc::clone(&list.key));
        let mut responses = Vec::new();
        for (place, item) in items.iter().enumerate() {
            let Some(mut response) = self.response(item) else { continue };
            response.planned.upstream.clone_from(&upstream);
            let written = item.as_str().map_or_else(|| item.to_string(), Arc::to_string);
            responses.push(Labelled { at: format!("{name} #{}", place + 1), written, response });
        }
        responses
    }

    fn response(&mut self, node: &Node) -> Option<Response> {
        match &node.kind {
            Kind::Number(_) => self.text(node, &node.to_string()),
            Kind::String(text) => self.text(node, text),
            Kind::Object(_) => self.object(node),
            _ => {
                self.wrong(node, "wanted: a response as `--respond` takes it (`503*3`, `reset`), or an object with `status`, `reset`, `refused` or `hang`");
                None
            }
        }
    }

    /// A response as `--respond` takes it.
    fn text(&mut self, node: &Node, text: &str) -> Option<Response> {
        let read = response::read(text).and_then(|response| {
            if response.planned.upstream.is_none() {
                return Ok(response);
            }
            let message = "the list says for which upstream it is";
            Err(ArgumentError::at(response.upstream_at, message))
        });
        let wrong = match read {
            Ok(response) => return Some(response),
            Err(wrong) => wrong,
        };
        let diagnostic = Diagnostic::error("invalid-response", node.span, wrong.message);
        self.found.push(match node.as_str() {
            Some(_) => {
                let before = text.get(..wrong.offset).unwrap_or(text).chars().count();
                diagnostic.with_offset(before)
            }
            None => diagnostic,
        });
        None
    }

    fn object(&mut self, node: &Node) -> Option<Response> {
        let members = node.as_object().unwrap_or_default();
        for member in members.iter().filter(|member| !MEMBERS.contains(&&*member.key)) {
            let message =
                format!("`{}` is unknown; wanted: `{}`", member.key, MEMBERS.join("`, `"));
            self.found.push(Diagnostic::error("unknown-key", member.key_span, message));
        }
        let acts: Vec<_> = members.iter().filter(|member| ACTS.contains(&&*member.key)).collect();
        let [act] = *acts else {
            self.wrong(node, "wanted: one of `status`, `reset`, `refused` and `hang`");
            return None;
        };
        let (after, times) = (self.after(node), self.times(node));
        if let (Some(after), "hang") = (node.member("after"), &*act.key) {
            self.wrong(&after.value, "`hang` never answers: how long it takes has no meaning");
        }
        let act = self.act(node, act)?;
        let planned = ScriptedResponse { upstream: None, after, act };
        Some(Response { planned, times, upstream_at: 0 })
    }

    fn act(&mut self, node: &Node, act: &Member) -> Option<ScriptedAction> {
        let plain = match &*act.key {
            "reset" => ScriptedAction::Reset,
            "refused" => ScriptedAction::Refused,
            "hang" => ScriptedAction::Hang,
            _ => return self.answer(node, &act.value),
        };
        if act.value.as_bool() != Some(true) {
            self.wrong(&act.value, "wanted: `true`");
        }
        for own in ["headers", "body"] {
            if let Some(member) = node.member(own) {
                let message = format!("`{}` is no answer: it has no `{own}`", act.key);
                self.found.push(Diagnostic::error("invalid-response", member.key_span, message));
            }
        }
        Some(plain)
    }

    fn answer(&mut self, node: &Node, status: &Node) -> Option<ScriptedAction> {
        let number = status.to_string().parse().ok().filter(|number| (200..600).contains(number));
        let Some(status) = number.and_then(|number| StatusCode::from_u16(number).ok()) else {
            self.wrong(status, "wanted: a status from 200 to 599");
            return None;
        };
        let mut headers = HeaderMap::new();
        if let Some(fields) = node.get("headers") {
            self.fields(fields, &mut headers);
        }
        let body = node.get("body").map(|body| {
            if let Some(text) = body.as_str() {
                return Bytes::copy_from_slice(text.as_bytes());
            }
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            Bytes::from(body.to_string())
        });
        Some(ScriptedAction::Answer { status, headers, body: body.unwrap_or_default() })
    }

    /// Fields by name; several of one name as a list.
    fn fields(&mut self, node: &Node, headers: &mut HeaderMap) {
        let Some(fields) = node.as_object() else {
            return self.wrong(node, "wanted: an object with the fields, by their names");
        };
        for Member { key, key_span, value } in fields {
            let name = match request::name(key, 0) {
                Ok(name) => name,
                Err(wrong) => {
                    let wrong = Diagnostic::error("invalid-response", *key_span, wrong.message);
                    self.found.push(wrong);
                    continue;
                }
            };
            for value in value.as_array().unwrap_or_else(|| std::slice::from_ref(value)) {
                let text = match &value.kind {
                    Kind::String(text) => text.to_string(),
                    Kind::Number(_) | Kind::Bool(_) => value.to_string(),
                    _ => {
                        self.wrong(value, "wanted: the value of a field, or a list of them");
                        continue;
                    }
                };
                match request::value(&text, 0) {
                    Ok(text) => drop(headers.append(name.clone(), text)),
                    Err(wrong) => self.wrong(value, wrong.message),
                }
            }
        }
    }

    fn after(&mut self, node: &Node) -> Latency {
        let Some(node) = node.get("after") else {
            return Latency::default();
        };
        let wanted = "wanted: how long it takes, such as `PT0.5S`, `20ms` or `20ms..80ms`";
        let Some(text) = node.as_str() else {
            self.wrong(node, wanted);
            return Latency::default();
        };
        response::latency(text, 0).unwrap_or_else(|wrong| {
            self.wrong(node, wrong.message);
            Latency::default()
        })
    }

    fn times(&mut self, node: &Node) -> usize {
        let Some(node) = node.get("times") else {
            return 1;
        };
        let times = node.to_string().parse().ok();
        times.filter(|times| (1..=response::TIMES).contains(times)).unwrap_or_else(|| {
            self.wrong(node, format!("wanted: a number of times, from 1 to {}", response::TIMES));
            1
        })
    }

    fn wrong(&mut self, node: &Node, message: impl Into<String>) {
        let mut message = message.into();
        if message.starts_with("wanted: ") {
            message = format!("this is {}; {message}", with_article(node.type_name()));
        }
        self.found.push(Diagnostic::error("invalid-response", node.span, message));
    }
}
