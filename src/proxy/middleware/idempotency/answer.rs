//! An answer that is kept, as the client got it.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::Role;
use crate::language::value::Value;
use crate::proxy::answer::reply::{Details, Payload, Reply, RequestSent, StatusLine};

/// Tells that an answer was kept.
static REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) head: Head,
    pub(super) body: Bytes,
}

/// Everything but its body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Head {
    /// The failure that it is the upstream's answer of.
    failure: Option<KeptFailure>,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct KeptFailure {
    code: String,
    message: Option<String>,
}

/// What rose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Content {
    /// An upstream's response.
    Response { status: u16, reason: Option<String>, headers: Fields, trailers: Fields },
    /// A value that a Flow made.
    Value(serde_json::Value),
}

/// Names and values. A value's bytes are characters here, because it need not be UTF-8.
type Fields = Vec<(String, String)>;

impl Answer {
    /// The head of a response, for an answer whose body comes later.
    pub(super) fn of_response(
        failure: Option<&Failure>,
        line: &StatusLine,
        headers: &HeaderMap,
    ) -> Self {
        let content = Content::Response {
            status: line.status.as_u16(),
            reason: line.reason.as_deref().map(characters),
            headers: fields(headers),
            trailers: Fields::new(),
        };
        let failure = failure.map(|failure| KeptFailure {
            code: failure.code.as_str().to_owned(),
            message: failure.message.as_deref().map(str::to_owned),
        });
        Self { head: Head { failure, content }, body: Bytes::new() }
    }

    /// A value that a Flow made.
    pub(super) fn of_value(value: &Value) -> Self {
        let content = Content::Value(value.to_json());
        Self { head: Head { failure: None, content }, body: Bytes::new() }
    }

    /// The same with this body.
    pub(super) fn with_body(mut self, body: Bytes, then: Option<&HeaderMap>) -> Self {
        self.body = body;
        if let (Content::Response { trailers, .. }, Some(then)) = (&mut self.head.content, then) {
            *trailers = fields(then);
        }
        self
    }

    /// As bytes: the length of the head, the head, and the body.
    pub(super) fn encode(&self) -> Option<Bytes> {
        let head = serde_json::to_vec(&self.head).ok()?;
        let mut bytes = BytesMut::with_capacity(4 + head.len() + self.body.len());
        bytes.put_u32(u32::try_from(head.len()).ok()?);
        bytes.put_slice(&head);
        bytes.put_slice(&self.body);
        Some(bytes.freeze())
    }

    /// The answer that was [encoded](Self::encode).
    pub(super) fn decode(bytes: Vec<u8>) -> Option<Self> {
        let mut bytes = Bytes::from(bytes);
        let length: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
        let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
        let head = serde_json::from_slice(bytes.get(4..4_usize.checked_add(length)?)?).ok()?;
        let body = bytes.split_off(4 + length);
        Some(Self { head, body })
    }

    /// How much memory it takes.
    pub(super) fn size(&self) -> usize {
        let content = match &self.head.content {
            Content::Response { headers, trailers, .. } => {
                let all = headers.iter().chain(trailers);
                all.map(|(name, value)| name.len() + value.len() + 64).sum()
            }
            Content::Value(value) => value.to_string().len(),
        };
        content + self.body.len() + 256
    }

    /// The content type of its body.
    pub(super) fn content_type(&self) -> Option<HeaderValue> {
        let Content::Response { headers, .. } = &self.head.content else {
            return None;
        };
        let field = headers.iter().find(|(name, _)| name == "content-type");
        field.and_then(|(_, value)| HeaderValue::from_bytes(&bytes(value)).ok())
    }

    /// The Result that it was, marked as kept. `read` is its body as expressions read it, `role` who asks for it.
    pub(super) fn outcome(&self, role: Role, read: Option<Value>) -> Outcome {
        let (status, reason, kept, trailers) = match &self.head.content {
            Content::Value(value) => return Outcome::Success(marked(Value::from(value.clone()))),
            Content::Response { status, reason, headers, trailers } => {
                (*status, reason, headers, trailers)
            }
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        let reason = reason.as_ref().map(|reason| Bytes::from(bytes(reason)));
        let mut headers = header_map(kept);
        headers.insert(&REPLAYED, HeaderValue::from_static("true"));
        let trailers = (!trailers.is_empty()).then(|| Box::new(header_map(trailers)));
        let payload = Payload::Buffered(self.body.clone(), trailers);
        let reply = Reply::new(role, StatusLine { status, reason }, headers, payload, read);
        let reply = Arc::new(reply);
        let Some(KeptFailure { code, message }) = &self.head.failure else {
            return Outcome::Success(Value::Native(reply));
        };
        let details = Details {
            endpoint: "".into(),
            role,
            sent: RequestSent::None,
            reused: false,
            phase: None,
            retry_after: None,
            grpc_status: None,
            refusal: None,
            retry_budget: None,
            proxy_status: "http_request_error",
            reply: Some(reply),
        };
        let code: Arc<str> = code.as_str().into();
        let failure = Failure {
            message: message.as_deref().map(Arc::from),
            retryable: Some(false),
            details: Some(Value::Native(Arc::new(details))),
            ..Failure::error(code, "")
        };
        failure.into()
    }
}

/// A response that a Flow wrote, with the field that tells that it was kept.
fn marked(value: Value) -> Value {
    let Some(members) = value.as_object().filter(|members| members.contains_key("status")) else {
        return value;
    };
    let mut members = (*members).clone();
    let headers = members.get("headers").and_then(Value::as_object).unwrap_or_default();
    let mut headers = (*headers).clone();
    headers.insert(REPLAYED.as_str().into(), Value::from("true"));
    members.insert("headers".into(), Value::Object(Arc::new(headers)));
    Value::Object(Arc::new(members))
}

fn fields(headers: &HeaderMap) -> Fields {
    let fields = headers.iter();
    fields.map(|(name, value)| (name.as_str().to_owned(), characters(value.as_bytes()))).collect()
}

fn header_map(fields: &Fields) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(fields.len() + 1);
    for (name, value) in fields {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(&bytes(value)))
        {
            headers.append(name, value);
        }
    }
    headers
}

/// Each byte as the character of that number.
fn characters(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// The bytes that became these [`characters`].
fn bytes(characters: &str) -> Vec<u8> {
    characters.chars().map(|character| u8::try_from(character).unwrap_or(b'?')).collect()
}
