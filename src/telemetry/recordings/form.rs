//! A recording as it is written to its file, and read again: JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::secrets;
use super::{Copied, CopiedBody};

/// The version of this form.
pub(super) const VERSION: u32 = 1;

/// One exchange with a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recording {
    /// The version of the form.
    pub version: u32,
    /// The name of its file without its ending.
    pub id: String,
    /// Where the same request can be sent again in clear text: `http://127.0.0.1:8080`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// As the client sent it.
    pub request: RecordedRequest,
    /// As the client got it; `None` if it got none.
    pub answer: Option<RecordedAnswer>,
    /// As `/executions` shows it.
    pub execution: Json,
}

/// A request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRequest {
    /// Its method.
    pub method: String,
    /// Its target, without the values of secrets.
    pub target: String,
    /// The parameters of the query whose values are hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked_query: Vec<String>,
    /// `1.1`.
    pub http_version: String,
    /// Its fields, in their order.
    pub headers: Vec<RecordedField>,
    /// Its body, if it had one.
    pub body: Option<RecordedBody>,
}

/// An answer, or a response.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedAnswer {
    /// Its status.
    pub status: u16,
    /// Its fields, in their order.
    pub headers: Vec<RecordedField>,
    /// Its body, if it had one.
    pub body: Option<RecordedBody>,
}

/// A header field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedField {
    /// Its name, in lower case.
    pub name: String,
    /// Its value; `None` if it is hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Whether its value is hidden, or a part of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
}

/// A body, or its beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedBody {
    /// How many bytes passed.
    pub bytes: u64,
    /// What was kept, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What was kept, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Whether this is not all of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

impl RecordedRequest {
    pub(super) fn of(copied: &Copied) -> Self {
        let (target, masked_query) = secrets::masked(&copied.target);
        Self {
            method: copied.method.as_str().to_owned(),
            target: target.into_owned(),
            masked_query,
            http_version: match copied.version {
                Version::HTTP_10 => "1.0",
                Version::HTTP_2 => "2",
                _ => "1.1",
            }
            .to_owned(),
            headers: fields(&copied.headers),
            body: copied.body.as_ref().map(RecordedBody::of),
        }
    }

    /// Why it cannot be sent again as it was.
    pub fn obstacle(&self) -> Option<String> {
        let named =
            |name: &HeaderName| self.headers.iter().find(|field| name.as_str() == field.name);
        let grpc = named(&header::CONTENT_TYPE)
            .and_then(|field| field.value.as_deref())
            .is_some_and(|kind| kind.starts_with("application/grpc"));
        if let Some(body) = self.body.as_ref().filter(|body| body.truncated) {
            return Some(format!(
                "its body was not kept whole: {} of {} bytes that passed",
                body.kept(),
                body.bytes
            ));
        }
        if named(&header::UPGRADE).is_some() || self.method == "CONNECT" {
            return Some(
                "it asks for another protocol, and what was said there is not kept".into(),
            );
        }
        if self.http_version == "2" && grpc {
            return Some("it is a gRPC call, which needs HTTP/2".into());
        }
        let lost = |field: &&RecordedField| {
            field.value.as_ref().is_some_and(|value| value.contains(char::REPLACEMENT_CHARACTER))
        };
        let lost = self.headers.iter().find(lost)?;
        Some(format!("its field {} is not UTF-8, and was not kept as it was", lost.name))
    }

    /// What is hidden, in words: it cannot be sent again.
    pub fn hidden(&self) -> Vec<String> {
        let headers = self.headers.iter().filter(|field| field.masked);
        let headers = headers.map(|field| format!("the header {}", field.name));
        headers.chain(self.masked_query.iter().map(|name| format!("the query's {name}"))).collect()
    }

    /// The target without the parameters that are hidden.
    pub fn sendable_target(&self) -> String {
        let Some((path, query)) = self.target.split_once('?') else {
            return self.target.clone();
        };
        let hidden = format!("={}", secrets::HIDDEN);
        let pairs = query.split('&').filter(|pair| !pair.ends_with(&hidden));
        let kept: Vec<&str> = pairs.collect();
        if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
    }
}

impl RecordedAnswer {
    /// An answer with a copy of its body.
    pub fn of(status: StatusCode, headers: &HeaderMap, body: Option<&CopiedBody>) -> Self {
        Self { status: status.as_u16(), headers: fields(headers), body: body.map(RecordedBody::of) }
    }
}

impl RecordedBody {
    fn of(copied: &CopiedBody) -> Self {
        let CopiedBody { bytes, passed, whole } = copied;
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => Some(text),
            // Cut off within a character.
            Err(error) if !whole && error.error_len().is_none() => {
                bytes.get(..error.valid_up_to()).and_then(|part| std::str::from_utf8(part).ok())
            }
            Err(_) => None,
        };
        Self {
            bytes: *passed,
            text: text.map(str::to_owned),
            base64: text.is_none().then(|| STANDARD.encode(bytes)),
            truncated: !whole,
        }
    }

    /// How many bytes are kept.
    fn kept(&self) -> usize {
        self.text
            .as_ref()
            .map_or_else(|| self.content().map_or(0, |content| content.len()), String::len)
    }

    /// What is kept. `None` if this is not base64.
    pub fn content(&self) -> Option<Vec<u8>> {
        match (&self.text, &self.base64) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(encoded)) => STANDARD.decode(encoded).ok(),
            (None, None) => Some(Vec::new()),
        }
    }
}

/// Fields without the values of secrets.
fn fields(headers: &HeaderMap) -> Vec<RecordedField> {
    headers.iter().map(|(name, value)| field(name, value)).collect()
}

fn field(name: &HeaderName, value: &HeaderValue) -> RecordedField {
    let text = String::from_utf8_lossy(value.as_bytes());
    let urls = [header::LOCATION, header::CONTENT_LOCATION, header::REFERER, header::LINK];
    let (value, masked) = if secrets::is_secret(name.as_str()) || secrets::is_credential(&text) {
        (None, true)
    } else if urls.contains(name) {
        let (shown, hidden) = secrets::masked(&text);
        (Some(shown.into_owned()), !hidden.is_empty())
    } else {
        (Some(text.into_owned()), false)
    };
    RecordedField { name: name.as_str().to_owned(), value, masked }
}
