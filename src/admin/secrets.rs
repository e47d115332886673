//! What operators are not shown of a configuration.
//!
//! Variables show by their names alone, because the file is shown as it is written. What is written out
//! in it and looks like a secret by its key is hidden: an operator's screen, or a support ticket, is no
//! place for it.

use serde_json::Value as Json;

/// Words of keys whose values are hidden.
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

/// What stands for a secret.
const HIDDEN: &str = "(hidden)";

/// `value` without its secrets.
pub fn hidden(value: Json) -> Json {
    match value {
        Json::Array(items) => items.into_iter().map(hidden).collect(),
        Json::Object(members) => members
            .into_iter()
            .map(|(key, value)| {
                let value = if is_secret(&key) { covered(value) } else { hidden(value) };
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

/// Each text beneath a secret key. A flag or a number is none; what only names a variable may show; an
/// expression may hold anything.
fn covered(value: Json) -> Json {
    match value {
        Json::String(text) if is_variable(&text) => Json::String(text),
        Json::String(_) => Json::String(HIDDEN.into()),
        Json::Array(items) => items.into_iter().map(covered).collect(),
        Json::Object(members) => {
            members.into_iter().map(|(key, value)| (key, covered(value))).collect()
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
            hidden(config),
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
