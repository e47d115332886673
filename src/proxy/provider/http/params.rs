//! A `with` as the provider uses it. It has passed the schema. Checked here is what a schema cannot express:
//! names of upstreams, and what HTTP allows in a field.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::{self, HeaderName, HeaderValue};

use crate::language::outcome::Failure;
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::message::path;
use crate::proxy::message::target::{self, Target, TargetError};
use crate::proxy::settings::Paths;

/// A prepared `with`.
#[derive(Debug)]
pub(super) struct Params {
    /// The index of the upstream.
    pub(super) upstream: usize,
    pub(super) method: Option<Method>,
    pub(super) path: Option<Target>,
    /// Each with its values; none removes.
    pub(super) query: Vec<(Box<str>, Vec<String>)>,
    /// Each name with its values; no values means that it is removed.
    pub(super) headers: Vec<(HeaderName, Vec<HeaderValue>)>,
    pub(super) body: Option<Value>,
    pub(super) idempotency_key: Option<IdempotencyKey>,
    /// How long to wait for the head of the response, if not as long as the upstream's setting says.
    pub(super) response_timeout: Option<Duration>,
}

/// The `Idempotency-Key` of a request that has none.
#[derive(Debug, PartialEq)]
pub(super) enum IdempotencyKey {
    /// It names the operation.
    Operation,
    /// This one.
    Given(HeaderValue),
}

/// The longest key that an expression may give.
const MAX_KEY: usize = 255;

/// Fields that the proxy writes itself, because they frame the message or belong to one connection.
static OURS: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Reads a `with`.
pub(super) fn read(
    with: &Value,
    upstreams: &HashMap<Arc<str>, usize>,
    default: Option<usize>,
    paths: Paths,
) -> Result<Params, Failure> {
    let named = with.get("upstream");
    let upstream = match named.as_ref().and_then(Value::as_str) {
        Some(name) => *upstreams.get(name).ok_or_else(|| unknown(name, upstreams))?,
        None => default.ok_or_else(|| {
            let message = "the call names no `upstream`, and its route has none";
            refuse(message.to_owned(), "upstream", Value::Null)
        })?,
    };
    let method = text(with, "method", |text| {
        let method = Method::from_bytes(text.as_bytes()).ok();
        method.filter(|method| *method != Method::CONNECT)
    })?;
    Ok(Params {
        upstream,
        method,
        path: read_path(with, paths)?,
        query: query(with),
        headers: headers(with)?,
        body: with.get("body"),
        idempotency_key: idempotency_key(with)?,
        response_timeout: response_timeout(with),
    })
}

fn idempotency_key(with: &Value) -> Result<Option<IdempotencyKey>, Failure> {
    let key = with.get("idempotencyKey").unwrap_or_default();
    let Some(text) = key.as_str() else {
        return Ok((key.as_bool() == Some(true)).then_some(IdempotencyKey::Operation));
    };
    let graphic = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    let sound = (1..=MAX_KEY).contains(&text.len()) && text.bytes().all(graphic);
    let field = HeaderValue::from_str(text.trim()).ok().filter(|field| sound && !field.is_empty());
    field.map(|field| Some(IdempotencyKey::Given(field))).ok_or_else(|| {
        let message = format!(
            "{key} is no Idempotency-Key: that is `true`, or 1 to {MAX_KEY} characters of visible ASCII"
        );
        refuse(message, "idempotencyKey", key.clone())
    })
}

/// The schema has checked that it is a duration.
fn response_timeout(with: &Value) -> Option<Duration> {
    let written = with.get("responseTimeout")?;
    written.as_str().and_then(Span::parse).map(Span::to_duration)
}

fn text<T>(
    with: &Value,
    name: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let Some(value) = with.get(name) else {
        return Ok(None);
    };
    let read = value.as_str().and_then(read);
    let refused = || refuse(format!("{value} is no {name} of HTTP"), name, value.clone());
    read.map(Some).ok_or_else(refused)
}

/// A path passes the same checks as a client's, whatever made it: a value in it that was a client's must not lead to
/// another resource.
fn read_path(with: &Value, paths: Paths) -> Result<Option<Target>, Failure> {
    let Some(value) = with.get("path") else {
        return Ok(None);
    };
    let checked = |text: &str| {
        if !text.starts_with('/') || text.contains('?') {
            return Err(TargetError::Form);
        }
        let target = Target::of_text(text.to_owned())?;
        path::check(text, paths).map(|()| target)
    };
    let error = match value.as_str().map(checked) {
        Some(Ok(path)) => return Ok(Some(path)),
        Some(Err(TargetError::Form)) | None => {
            let queried = value.as_str().is_some_and(|text| text.contains('?'));
            let why = if queried { ": a query is written in `query`" } else { "" };
            format!("{value} is no path of HTTP{why}")
        }
        Some(Err(error)) => format!("{value} is no path of HTTP: {error}"),
    };
    Err(refuse(error, "path", value))
}

fn query(with: &Value) -> Vec<(Box<str>, Vec<String>)> {
    let members = with.get("query").and_then(|query| query.as_object());
    members.map_or_else(Vec::new, |members| {
        members.iter().map(|(name, value)| (name.as_ref().into(), scalars(value))).collect()
    })
}

fn headers(with: &Value) -> Result<Vec<(HeaderName, Vec<HeaderValue>)>, Failure> {
    let Some(members) = with.get("headers").and_then(|headers| headers.as_object()) else {
        return Ok(Vec::new());
    };
    members.iter().map(|(name, value)| field(name, value)).collect()
}

fn field(text: &str, value: &Value) -> Result<(HeaderName, Vec<HeaderValue>), Failure> {
    let refuse = |message: String| refuse(message, "headers", value.clone());
    let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
        return Err(refuse(format!("`{text}` is no name of a header field")));
    };
    if OURS.contains(&name) {
        let message = format!("`{name}` is the proxy's to write; leave it out");
        return Err(refuse(message));
    }
    let values = scalars(value)
        .into_iter()
        .map(HeaderValue::try_from)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| refuse(format!("the value of `{name}` holds characters that no field may")))?;
    if name == header::HOST && (values.len() > 1 || !values.iter().all(is_host)) {
        let wrong = values.first().map_or("", |host| host.to_str().unwrap_or_default());
        return Err(refuse(format!("`host` is `{wrong}`; it must be one `host` or `host:port`")));
    }
    Ok((name, values))
}

fn is_host(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(|host| target::check_authority(host).is_ok())
}

/// The texts of a value or of each item of an array; none for `null`.
fn scalars(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text.as_ref().to_owned()],
        Value::Array(items) => items.iter().flat_map(|item| scalars(&item)).collect(),
        other => vec![other.to_string()],
    }
}

fn unknown(name: &str, upstreams: &HashMap<Arc<str>, usize>) -> Failure {
    let mut names: Vec<&str> = upstreams.keys().map(AsRef::as_ref).collect();
    names.sort_unstable();
    let others = match names.as_slice() {
        [] => "the configuration has none that could be read".to_owned(),
        names => format!("the configuration has {}", names.join(", ")),
    };
    let message = format!("there is no upstream `{name}`; {others}");
    refuse(message, "upstream", Value::from(name))
}

fn refuse(message: String, property: &str, observed: Value) -> Failure {
    Failure::validation(message, format!("/properties/{property}"), observed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Result<Params, String> {
        let with: serde_json::Value = serde_json::from_str(json).unwrap();
        let upstreams = HashMap::from([("billing".into(), 3), ("audit".into(), 4)]);
        read(&Value::from(with), &upstreams, Some(3), Paths::default())
            .map_err(|failure| failure.message.unwrap().to_string())
    }

    #[test]
    fn a_with_is_read_whole() {
        let params = of(
            r#"{"upstream":"audit","method":"PUT","path":"/a%2Fb","query":{"n":[1,true],"x":null},
                "headers":{"X-A":"1","x-b":null},"body":{"k":1},"idempotencyKey":true,
                "responseTimeout":"PT0.5S"}"#,
        )
        .unwrap();
        assert_eq!(params.upstream, 4);
        assert_eq!(params.method, Some(Method::PUT));
        assert_eq!(params.path.unwrap().as_str(), "/a%2Fb");
        let n = ("n".into(), vec!["1".to_owned(), "true".to_owned()]);
        assert_eq!(params.query, [n, ("x".into(), Vec::new())]);
        assert_eq!(params.headers[0].1, ["1"]);
        assert!(params.headers[1].1.is_empty());
        assert_eq!(params.idempotency_key, Some(IdempotencyKey::Operation));
        assert_eq!(params.response_timeout, Some(Duration::from_millis(500)));
        assert_eq!(of("{}").unwrap().upstream, 3);
    }

    #[test]
    fn a_key_is_asked_for_or_given() {
        let key = |json: &str| of(json).map(|params| params.idempotency_key);
        assert_eq!(key("{}"), Ok(None));
        assert_eq!(key(r#"{"idempotencyKey":false}"#), Ok(None));
        assert_eq!(key(r#"{"idempotencyKey":true}"#), Ok(Some(IdempotencyKey::Operation)));
        let given = Some(IdempotencyKey::Given(HeaderValue::from_static("order 7")));
        assert_eq!(key(r#"{"idempotencyKey":"order 7"}"#), Ok(given));
        for wrong in ["", " ", "a\\nb", "é"] {
            let refused = key(&format!(r#"{{"idempotencyKey":"{wrong}"}}"#)).unwrap_err();
            assert!(refused.ends_with("1 to 255 characters of visible ASCII"), "{refused}");
        }
    }

    #[test]
    fn refusals_say_what_is_wanted() {
        let refused = |json: &str| of(json).unwrap_err();
        assert_eq!(
            refused(r#"{"upstream":"biling"}"#),
            "there is no upstream `biling`; the configuration has audit, billing"
        );
        assert_eq!(refused(r#"{"method":"A B"}"#), r#""A B" is no method of HTTP"#);
        assert_eq!(
            refused(r#"{"path":"/a?b"}"#),
            r#""/a?b" is no path of HTTP: a query is written in `query`"#
        );
        assert_eq!(refused(r#"{"path":"a"}"#), r#""a" is no path of HTTP"#);
        for (path, why) in [
            ("/users/../admin", TargetError::DotSegment),
            ("/users/..%2Fadmin", TargetError::DotSegment),
            ("/users/alice#x", TargetError::Fragment),
            ("/users/a b", TargetError::Character),
            ("/users/a\r\nHost: b", TargetError::Character),
            ("/users/é", TargetError::Character),
            ("/users/%00", TargetError::Nul),
        ] {
            let with = serde_json::json!({ "path": path });
            let wanted = format!("{} is no path of HTTP: {why}", with["path"]);
            assert_eq!(refused(&with.to_string()), wanted);
        }
        let odd = of(r#"{"path":"/a\"<b>`"}"#).unwrap().path.unwrap();
        assert_eq!(odd.as_str(), "/a\"<b>`");
        for host in ["", "a b", "a/b", "a, b", "a@b", "a:b"] {
            let with = serde_json::json!({ "headers": { "Host": host } }).to_string();
            let wanted = format!("`host` is `{host}`; it must be one `host` or `host:port`");
            assert_eq!(refused(&with), wanted);
        }
        assert!(of(r#"{"headers":{"host":["a","b"]}}"#).is_err());
        assert!(of(r#"{"headers":{"host":null}}"#).is_ok());
        assert_eq!(
            refused(r#"{"headers":{"Content-Length":"5"}}"#),
            "`content-length` is the proxy's to write; leave it out"
        );
        assert_eq!(
            refused(r#"{"headers":{"x-a":"1\r\nx-b: 2"}}"#),
            "the value of `x-a` holds characters that no field may"
        );
    }
}
