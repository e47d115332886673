//! Hides the secrets in a configuration from operators.
//!
//! Variables show only as names, because the file is shown as it is written. But a value that is written
//! out, and whose key looks like that of a secret, is hidden: it should not appear on a screen or in a
//! support ticket.

use serde_json::Value as Json;

/// Keys that contain one of these words have hidden values.
const WORDS: [&str; 10] = [
    "authorization",
    "cookie",
    "token",
    "secret",
    "password",
    "passwd",
    "apikey",
    "credential",
    "privatekey",
    "signature",
];

/// Shown in place of a secret.
const REDACTED: &str = "(hidden)";

/// `value` without its secrets.
pub fn redacted(value: Json) -> Json {
    match value {
        Json::Array(items) => items.into_iter().map(redacted).collect(),
        Json::Object(members) => members
            .into_iter()
            .map(|(key, value)| {
                let value = if is_secret(&key) { redact_text(value) } else { redacted(value) };
                (key, value)
            })
            .collect(),
        other => other,
    }
}

fn is_secret(key: &str) -> bool {
    let letters = key.chars().filter(char::is_ascii_alphanumeric);
    let letters: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    // `x-api-key`, `dd-api-key`, `x-collector-key`, but not `idempotencyKey` or `key`.
    let keyed = key.to_ascii_lowercase().ends_with("-key") && letters != "idempotencykey";
    keyed || WORDS.iter().any(|word| letters.contains(word))
}

/// Hides every text beneath a secret key. Flags and numbers are no secrets. A text that only names a
/// variable may show; an expression may not, because it can hold anything.
fn redact_text(value: Json) -> Json {
    match value {
        Json::String(text) if is_variable(&text) => Json::String(text),
        Json::String(_) => Json::String(REDACTED.into()),
        Json::Array(items) => items.into_iter().map(redact_text).collect(),
        Json::Object(members) => {
            members.into_iter().map(|(key, value)| (key, redact_text(value))).collect()
        }
        other => other,
    }
}

/// `${NAME}` alone, without a default.
fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_hidden_wherever_they_stand() {
        let config = json!({
            "admin": { "address": "127.0.0.1:1", "token": "s3cret" },
            "tracing": { "otlp": { "headers": { "dd-api-key": "k", "x-other": "seen" } } },
            "routes": [{
                "name": "token-service",
                "call": { "with": {
                    "idempotencyKey": true,
                    "headers": {
                        "Authorization": "Bearer abc",
                        "x-api-key": ["one", "two"],
                        "cookie": "${COOKIE}",
                        "x-secret": "${SECRET:-fallback}",
                        "idempotency-key": "{{ execution.id }}",
                    },
                } },
            }],
        });
        assert_eq!(
            redacted(config),
            json!({
                "admin": { "address": "127.0.0.1:1", "token": "(hidden)" },
                "tracing": { "otlp": { "headers": { "dd-api-key": "(hidden)", "x-other": "seen" } } },
                "routes": [{
                    "name": "token-service",
                    "call": { "with": {
                        "idempotencyKey": true,
                        "headers": {
                            "Authorization": "(hidden)",
                            "x-api-key": ["(hidden)", "(hidden)"],
                            "cookie": "${COOKIE}",
                            "x-secret": "(hidden)",
                            "idempotency-key": "{{ execution.id }}",
                        },
                    } },
                }],
            })
        );
    }
}
