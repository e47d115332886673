//! Turns a Result into the answer that the client gets.
//!
//! A failure's status comes from the first cause that says more than "gave up": `Retry.Exhausted` is answered
//! like the failure that exhausted it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use serde_json::json;

use super::body::AnswerBody;
use super::grpc;
use super::reply::{Details, Reply};
use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::Role;
use crate::language::value::{Map, Value};
use crate::proxy::body::source::BodyFailure;
use crate::proxy::code::{self, Meaning};
use crate::proxy::meaning;
use crate::proxy::message::refusal::Refusal;
use crate::proxy::message::{headers, media, shape};
use crate::proxy::request::exchange::Exchange;

static PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// The answer for `outcome`.
pub(crate) fn render(exchange: &Exchange, outcome: &Outcome) -> Response<AnswerBody> {
    let mut response = match outcome {
        Outcome::Success(value) => success(exchange, value),
        Outcome::Failure(failure) => match passed_on(failure) {
            Some(response) => response,
            None => problem_of(exchange, failure),
        },
    };
    let shaping = exchange.route.shaping.as_ref();
    if let Some(edits) = shaping.and_then(|shaping| shaping.response.as_ref()) {
        shape::edit(response.headers_mut(), edits);
    }
    identify(&mut response, exchange.site.runtime.request_id.as_ref(), &exchange.id);
    if exchange.method == Method::HEAD { without_body(response) } else { response }
}

/// Adds the execution's id, if the configuration names a `field` for it.
pub(crate) fn identify(
    response: &mut Response<AnswerBody>,
    field: Option<&HeaderName>,
    id: &HeaderValue,
) {
    if let Some(field) = field {
        response.headers_mut().insert(field, id.clone());
    }
}

/// The answer to a request for which no Flow ran.
pub(crate) fn refuse(
    refusal: &Refusal,
    id: &str,
    method: &Method,
    grpc: bool,
) -> Response<AnswerBody> {
    let Refusal { reason, detail, allow, asked: _ } = refusal;
    let meaning = reason.meaning();
    if grpc {
        return with_word(grpc::trailers_only(meaning.grpc, detail), meaning.word);
    }
    let mut body = document(meaning.status, reason.code(), id);
    insert(&mut body, "detail", json!(detail));
    let mut response = problem(&body, meaning);
    if let Some(allow) = allow.as_deref().and_then(|all| HeaderValue::from_str(all).ok()) {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    if reason.closes() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    if *method == Method::HEAD { without_body(response) } else { response }
}

fn success(exchange: &Exchange, value: &Value) -> Response<AnswerBody> {
    if let Some(response) = value.as_native::<Reply>().and_then(Reply::take) {
        return response;
    }
    let members = value.as_object().filter(|members| {
        let known = |name: &str| matches!(name, "status" | "headers" | "body");
        let status = members.get("status").and_then(Value::as_u64);
        status.is_some() && members.keys().all(|name| known(name))
    });
    let Some(members) = members else {
        let json = HeaderValue::from_static("application/json");
        return full(StatusCode::OK, json, value.to_string().into());
    };
    authored(&members).unwrap_or_else(|message| {
        let failure = Failure::error(code::BAD_RESPONSE, message);
        let route = &*exchange.route.name;
        tracing::warn!(route, error = %failure, "A Flow returned no response.");
        problem_of(exchange, &failure)
    })
}

/// A response that a Flow wrote. The error says what is wrong with it.
fn authored(members: &Map) -> Result<Response<AnswerBody>, String> {
    let status = members.get("status").and_then(Value::as_u64);
    let status = status
        .and_then(|status| u16::try_from(status).ok())
        .and_then(|status| StatusCode::from_u16(status).ok())
        .filter(|status| !status.is_informational() && status.as_u16() < 600)
        .ok_or("`status` must be a status from 200 to 599")?;
    let mut response = Response::new(AnswerBody::empty());
    *response.status_mut() = status;
    let fields = response.headers_mut();
    let written = members.get("headers").filter(|fields| !fields.is_null());
    if let Some(written) = written {
        let written = written.as_object().ok_or("`headers` must be an object")?;
        for (name, value) in written.iter() {
            let parsed = HeaderName::from_bytes(name.as_bytes());
            let parsed = parsed.map_err(|_| format!("`{name}` is no name of a header field"))?;
            for text in texts(value) {
                let text = HeaderValue::try_from(text)
                    .map_err(|_| format!("the value of `{name}` is none of a header field"))?;
                fields.append(&parsed, text);
            }
        }
    }
    headers::strip_hop_by_hop(fields);
    fields.remove(header::CONTENT_LENGTH);
    let body = members.get("body").unwrap_or(&Value::Null);
    if let Some((bytes, content_type)) = media::from_value(body, fields.get(header::CONTENT_TYPE)) {
        fields.insert(header::CONTENT_TYPE, content_type);
        *response.body_mut() = AnswerBody::full(bytes);
    }
    Ok(response)
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text.as_ref().to_owned()],
        Value::Array(items) => items.iter().flat_map(|item| texts(&item)).collect(),
        other => vec![other.to_string()],
    }
}

/// The newest upstream response in the chain that has not been consumed.
fn passed_on(failure: &Failure) -> Option<Response<AnswerBody>> {
    failure.chain().find_map(|link| {
        let details = link.details.as_ref()?.as_native::<Details>()?;
        details.reply.as_ref()?.take()
    })
}

fn problem_of(exchange: &Exchange, failure: &Failure) -> Response<AnswerBody> {
    let meaning = meaning_here(exchange, failure);
    if meaning.withheld {
        return Response::new(AnswerBody::withheld());
    }
    if exchange.grpc {
        let response = grpc::trailers_only(meaning.grpc, &told(exchange, failure));
        return with_word(response, meaning.word);
    }
    let mut body = document(meaning.status, failure.code.as_str(), exchange.id());
    insert(&mut body, "attempts", json!(exchange.attempts()));
    if exchange.route.expose_failures {
        let failures: Vec<_> = failure.chain().map(link).collect();
        insert(&mut body, "failures", json!(failures));
    }
    let mut response = problem(&body, meaning);
    for (name, value) in meaning::fields(cause(failure)) {
        response.headers_mut().insert(name, value);
    }
    // The client gets this instead of the upstream's response, and should wait as the upstream asked.
    if let Some(wait) = meaning.retry_after.or_else(|| wait(failure)) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds(wait)));
    }
    response
}

/// The message of a failure for a gRPC client: the same as a problem document's.
fn told(exchange: &Exchange, failure: &Failure) -> String {
    match &failure.message {
        Some(message) if exchange.route.expose_failures => format!("{}: {message}", failure.code),
        _ => format!("{} (execution {})", failure.code, exchange.id()),
    }
}

/// The wait that the upstream asked for in the newest attempt of the chain. If a wait before a re-run was
/// interrupted, that is the attempt which would have been repeated.
fn wait(failure: &Failure) -> Option<Duration> {
    let attempt = |link: &Failure| {
        let details = link.details.as_ref()?.as_native::<Details>()?;
        (details.role == Role::Step).then_some(details.retry_after)
    };
    let awaited = |link: &Failure| link.awaited.as_ref()?.chain().find_map(attempt);
    let newest = failure.chain().find_map(|link| attempt(link).or_else(|| awaited(link)));
    Some(newest??.wait())
}

/// Whole seconds, as in `Retry-After`, rounded up.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

/// The failure that was given up on, or the failure itself.
fn cause(failure: &Failure) -> &Failure {
    let mut chain = failure.chain();
    chain.find(|link| !code::is_giving_up(link.code.as_str())).unwrap_or(failure)
}

/// The meaning of `failure` for a client.
pub(super) fn meaning(failure: &Failure) -> Meaning {
    let cause = cause(failure);
    meaning::of(cause).unwrap_or_else(|| code::meaning(cause.code.as_str()))
}

/// The same, with what is known about this request and its attempts.
fn meaning_here(exchange: &Exchange, failure: &Failure) -> Meaning {
    let (meaning, cause) = (meaning(failure), cause(failure));
    if cause.code == code::REQUEST_ABORTED && exchange.upload.broken() == Some(BodyFailure::Stalled)
    {
        return meaning.at(StatusCode::REQUEST_TIMEOUT);
    }
    match cause.details.as_ref().and_then(Value::as_native::<Details>) {
        Some(details) if meaning.status == StatusCode::BAD_GATEWAY => {
            Meaning { word: details.proxy_status, ..meaning }
        }
        _ => meaning,
    }
}

/// One failure of the chain, in an exposed problem document.
fn link(failure: &Failure) -> serde_json::Value {
    let mut shown = json!({
        "type": failure.ty.as_str(),
        "code": failure.code.as_str(),
    });
    if let Some(message) = &failure.message {
        insert(&mut shown, "message", json!(**message));
    }
    if let Some(details) = &failure.details {
        insert(&mut shown, "details", details.to_json());
    }
    shown
}

fn document(status: StatusCode, code: &str, id: &str) -> serde_json::Value {
    json!({
        "status": status.as_u16(),
        "title": status.canonical_reason().unwrap_or_default(),
        "code": code,
        "executionId": id,
    })
}

fn insert(document: &mut serde_json::Value, name: &str, value: serde_json::Value) {
    if let Some(members) = document.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

/// RFC 9457.
fn problem(body: &serde_json::Value, meaning: Meaning) -> Response<AnswerBody> {
    let media_type = HeaderValue::from_static("application/problem+json");
    with_word(full(meaning.status, media_type, body.to_string().into()), meaning.word)
}

/// RFC 9209.
fn with_word(mut response: Response<AnswerBody>, word: &'static str) -> Response<AnswerBody> {
    if let Ok(value) = HeaderValue::try_from(format!("mwl-proxy; error={word}")) {
        response.headers_mut().insert(&PROXY_STATUS, value);
    }
    response
}

fn full(status: StatusCode, media_type: HeaderValue, body: Bytes) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

/// The head that a GET would get (RFC 9110 §9.3.2).
fn without_body(response: Response<AnswerBody>) -> Response<AnswerBody> {
    use http_body::Body as _;
    let (mut parts, body) = response.into_parts();
    let length = body.size_hint().exact().filter(|length| *length > 0);
    if let Some(length) = length
        && !parts.headers.contains_key(header::CONTENT_LENGTH)
    {
        let length = HeaderValue::from(length);
        parts.headers.insert(header::CONTENT_LENGTH, length);
    }
    Response::from_parts(parts, body.for_head())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::provider::middleware::retry;
    use http_body_util::BodyExt;

    async fn shown(json: &str) -> Result<String, String> {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        let value = Value::from(value).as_object().unwrap();
        let (parts, body) = authored(&value)?.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let mut out = parts.status.as_u16().to_string();
        for (name, value) in &parts.headers {
            out = format!("{out} {name}={}", value.to_str().unwrap());
        }
        Ok(format!("{out} {}", String::from_utf8_lossy(&body)))
    }

    #[tokio::test]
    async fn a_flow_writes_a_response() {
        let json = r#"{"status":402,"body":{"error":"card declined"}}"#;
        let wanted = r#"402 content-type=application/json {"error":"card declined"}"#;
        assert_eq!(shown(json).await.unwrap(), wanted);
        let json = r#"{"status":200,"headers":{"x-a":["1",2],"connection":"close","content-length":"9"},"body":"hi"}"#;
        let wanted = "200 x-a=1 x-a=2 content-type=text/plain; charset=utf-8 hi";
        assert_eq!(shown(json).await.unwrap(), wanted);
    }

    #[tokio::test]
    async fn what_is_no_response_is_said() {
        let refused = async |json| shown(json).await.unwrap_err();
        let status = "`status` must be a status from 200 to 599";
        assert_eq!(refused(r#"{"status":42}"#).await, status);
        assert_eq!(refused(r#"{"status":101}"#).await, status);
        let headers = "`headers` must be an object";
        assert_eq!(refused(r#"{"status":200,"headers":5}"#).await, headers);
        let name = "`a b` is no name of a header field";
        assert_eq!(refused(r#"{"status":200,"headers":{"a b":"1"}}"#).await, name);
    }

    #[test]
    fn giving_up_is_answered_as_what_was_given_up_on() {
        let lost = std::sync::Arc::new(Failure::error(code::CONNECTION_FAILED, "x"));
        let exhausted = std::sync::Arc::new(Failure::error(retry::EXHAUSTED, "y"));
        let chain = Failure::superseding(&exhausted, Some(&lost));
        assert_eq!(cause(&chain).code, code::CONNECTION_FAILED);
        assert_eq!(cause(&exhausted).code, retry::EXHAUSTED);
    }
}
