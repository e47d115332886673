//! Makes the upstream request of one attempt: its head, and the source of its body.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderMap, HeaderValue};

use super::params::{IdempotencyKey, Params};
use crate::language::outcome::Failure;
use crate::language::provider::Dispatch;
use crate::language::value::Value;
use crate::proxy::answer::classify::IDEMPOTENCY_KEY;
use crate::proxy::body;
use crate::proxy::body::client::ClientBody;
use crate::proxy::body::request::UploadProgress;
use crate::proxy::body::whole::Whole;
use crate::proxy::message::target::{Target, TargetError};
use crate::proxy::message::{id, media, query};
use crate::proxy::request::exchange::Exchange;
use crate::proxy::request::recording;
use crate::proxy::request::upload::Upload;
use crate::proxy::settings::HostPolicy;
use crate::proxy::upstream::request_head::RequestHead;
use crate::telemetry::trace::SpanId;

/// The source of the body.
#[derive(Clone, Debug)]
pub(super) enum BodySource {
    /// There is no body.
    Empty,
    /// From memory.
    Whole(Whole),
    /// From the client.
    Client(Arc<body::source::ReplaySource<ClientBody>>),
}

impl BodySource {
    /// The handle to ask about the body once it was handed over.
    pub(super) fn progress(&self) -> UploadProgress {
        match self {
            Self::Empty | Self::Whole(_) => UploadProgress::Whole,
            Self::Client(source) => UploadProgress::Stream(source.clone(), Arc::default()),
        }
    }
}

/// The request for `dispatch`, and the source of its body. The upstream sees `span` as its caller. If the
/// client's own request is not changed, its fields and target are borrowed.
///
/// # Errors
/// When the parameters make an invalid target.
pub(super) fn compose<'a>(
    params: &Params,
    dispatch: &Dispatch<'_>,
    exchange: &'a Exchange,
    span: Option<SpanId>,
) -> Result<(RequestHead<'a>, BodySource), Box<Failure>> {
    let own = is_own(dispatch, exchange);
    let mut fields = if own {
        Cow::Borrowed(&exchange.headers)
    } else {
        let mut fresh = HeaderMap::with_capacity(4);
        fresh.insert(&id::REQUEST_ID, exchange.id.clone());
        Cow::Owned(fresh)
    };
    let given_type = lay_over(&mut fields, params);
    recording::inject(exchange, span, &mut fields);
    let body = match (&params.body, own) {
        (Some(body), _) => written(body, given_type, fields.to_mut()),
        (None, true) => own_body(exchange, &mut fields),
        (None, false) => written_json(dispatch.input, fields.to_mut()),
    };
    if let Some(key) = &params.idempotency_key
        && !fields.contains_key(&IDEMPOTENCY_KEY)
    {
        fields.to_mut().insert(&IDEMPOTENCY_KEY, key_of(key, dispatch, exchange));
    }
    let method = match &params.method {
        Some(method) => method.clone(),
        None if own => exchange.method.clone(),
        None if matches!(body, BodySource::Empty) => Method::GET,
        None => Method::POST,
    };
    let expects = exchange.asked.body_unasked && waits(&body, &mut fields);
    let outgoing = RequestHead {
        method,
        target: target(params, dispatch, own.then_some(&exchange.target))?,
        fields,
        names_endpoint: own && names_endpoint(params, exchange),
        upgrade: if own { exchange.asked.upgrade.clone() } else { None },
        expects,
        trailers: own && exchange.asked.trailers,
    };
    Ok((outgoing, body))
}

/// The value of `Idempotency-Key`.
fn key_of(key: &IdempotencyKey, dispatch: &Dispatch<'_>, exchange: &Exchange) -> HeaderValue {
    match key {
        IdempotencyKey::Given(key) => key.clone(),
        IdempotencyKey::Operation => {
            let key = dispatch.identity.key(exchange.secret()).to_string();
            // Hexadecimal digits, which every field may hold.
            HeaderValue::try_from(key).unwrap_or(HeaderValue::from_static("0"))
        }
    }
}

/// Whether the client's own request is sent on.
pub(super) fn is_own(dispatch: &Dispatch<'_>, exchange: &Exchange) -> bool {
    dispatch.input.as_native::<Exchange>().is_some_and(|input| std::ptr::eq(input, exchange))
}

/// Whether the endpoint's `Host` replaces the request's own: if the upstream is configured so, and neither the
/// route nor a parameter sets one.
fn names_endpoint(params: &Params, exchange: &Exchange) -> bool {
    let upstream = exchange.site.upstreams.get(params.upstream);
    let wanted = upstream.is_some_and(|upstream| upstream.settings.host == HostPolicy::Upstream);
    if !wanted {
        return false;
    }
    let shaping = exchange.route.shaping.as_ref();
    let by_route = shaping.is_some_and(|shaping| shaping.host.is_some());
    !by_route && !params.headers.iter().any(|(name, _)| *name == header::HOST)
}

/// Applies the parameters' fields to the request's. Returns whether they set the content type.
fn lay_over(fields: &mut Cow<'_, HeaderMap>, params: &Params) -> bool {
    for (name, values) in &params.headers {
        let headers = fields.to_mut();
        headers.remove(name);
        for value in values {
            headers.append(name, value.clone());
        }
    }
    let given = |(name, values): &(http::HeaderName, Vec<HeaderValue>)| {
        *name == header::CONTENT_TYPE && !values.is_empty()
    };
    params.headers.iter().any(given)
}

/// The target: the request's own bytes, unless a parameter changes them.
fn target<'a>(
    params: &Params,
    dispatch: &Dispatch<'_>,
    own: Option<&'a Target>,
) -> Result<Cow<'a, Target>, Box<Failure>> {
    let same = params.path.is_none() && params.query.is_empty();
    if let (true, Some(own)) = (same, own) {
        return Ok(Cow::Borrowed(own));
    }
    let asked = own.and_then(Target::query).unwrap_or_default();
    if let Some(path) = &params.path
        && params.query.is_empty()
        && asked.is_empty()
    {
        return Ok(Cow::Owned(path.clone()));
    }
    let path = params.path.as_ref().or(own).map_or("/", Target::path);
    let query = query::overlay(asked, &params.query);
    let text = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    Target::of_text(text).map(Cow::Owned).map_err(|error| Box::new(no_target(dispatch, error)))
}

/// The parameters make an invalid target. The path was checked before and the query is encoded, so only the length of
/// the whole can be wrong.
fn no_target(dispatch: &Dispatch<'_>, error: TargetError) -> Failure {
    let message = format!("{}: `query`: {error}", dispatch.attempt.step);
    Failure::validation(message, "/properties/query", Value::Null)
}

fn own_body(exchange: &Exchange, fields: &mut Cow<'_, HeaderMap>) -> BodySource {
    match &exchange.upload {
        Upload::None => BodySource::Empty,
        Upload::Stream(source) => BodySource::Client(source.clone()),
        Upload::Buffered { bytes, trailers: Some(trailers), .. } => {
            BodySource::Whole(Whole::new(bytes.clone(), Some(trailers.clone())))
        }
        Upload::Buffered { bytes, .. } if bytes.is_empty() => BodySource::Empty,
        Upload::Buffered { bytes, .. } => {
            fields.to_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            BodySource::Whole(Whole::new(bytes.clone(), None))
        }
    }
}

/// Whether `body`, whose client waits for a 100, is sent only after the upstream's 100. A body of which an attempt
/// has read is sent at once: its client was asked for it, and what has arrived is in memory.
fn waits(body: &BodySource, fields: &mut Cow<'_, HeaderMap>) -> bool {
    let BodySource::Client(source) = body else {
        return false;
    };
    let waits = source.is_unread();
    if !waits {
        fields.to_mut().remove(header::EXPECT);
    }
    waits
}

/// The `body` parameter, which replaces the request's body.
fn written(body: &Value, given_type: bool, headers: &mut HeaderMap) -> BodySource {
    headers.remove(header::CONTENT_ENCODING);
    headers.remove(header::EXPECT);
    headers.remove(header::TRAILER);
    if !given_type {
        headers.remove(header::CONTENT_TYPE);
    }
    let written = media::from_value(body, headers.get(header::CONTENT_TYPE));
    let Some((bytes, content_type)) = written else {
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::CONTENT_TYPE);
        return BodySource::Empty;
    };
    full(bytes, content_type, headers)
}

/// An `input` other than the request.
fn written_json(input: &Value, headers: &mut HeaderMap) -> BodySource {
    if input.is_null() {
        return BodySource::Empty;
    }
    let given = headers.get(header::CONTENT_TYPE).cloned();
    let content_type = given.unwrap_or(HeaderValue::from_static("application/json"));
    full(Bytes::from(input.to_string()), content_type, headers)
}

fn full(bytes: Bytes, content_type: HeaderValue, headers: &mut HeaderMap) -> BodySource {
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    headers.insert(header::CONTENT_TYPE, content_type);
    BodySource::Whole(Whole::new(bytes, None))
}
