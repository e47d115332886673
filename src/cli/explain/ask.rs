//! The question that somebody asks at the admin address (`POST /explain`), and its answer.
//!
//! It is the JSON of `explain --format json`, with less in it: whoever may ask sees no more of the configuration than
//! `/config` shows.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use super::{Explain, Format, Policy, read, unknown};
use crate::config::{Loaded, without_literals};
use crate::proxy::stage::Stage;
use crate::source::Sources;
use crate::telemetry::aside::aside;

/// Shown in place of a value.
const HIDDEN: &str = "(hidden)";

/// The question. Its members mean what the arguments of the command mean.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Question {
    #[serde(default = "Question::plain")]
    request: String,
    #[serde(default)]
    headers: Vec<String>,
    /// Always a text: no file is read for others.
    #[serde(default)]
    body: String,
    #[serde(default)]
    respond: Vec<String>,
    client_timeout: Option<String>,
    #[serde(default)]
    seed: u64,
}

/// What `loaded` would do with the request of `question`. Ends soon after `stop` is cancelled.
///
/// # Errors
/// What is wrong with the question.
pub(crate) fn ask(
    loaded: Loaded,
    question: &[u8],
    stop: &CancellationToken,
) -> Result<Json, String> {
    let question = serde_json::from_slice(question);
    let question = question.map_err(|error| format!("this is no question: {error}\n"))?;
    aside(|| answer(loaded, question, stop))
}

fn answer(loaded: Loaded, question: Question, stop: &CancellationToken) -> Result<Json, String> {
    let mut sources = Sources::default();
    let body = Bytes::from(question.body.clone());
    let scenario = read(&question.arguments(), &mut sources);
    let mut scenario = scenario.map_err(|found| sources.render(&found))?;
    scenario.asked.body = body;
    let known: Vec<&str> = loaded.settings.upstreams.iter().map(|known| &*known.name).collect();
    let found = unknown(&scenario.responses, &known, &mut sources);
    if found.has_errors() {
        return Err(sources.render(&found));
    }
    let stage = Stage::bounded(scenario.script(), stop);
    let policy = Policy::of("what is served".to_owned(), loaded, &scenario, stage)?;
    let told = policy.play(&scenario);
    let mut answer = policy.json(&scenario, &told);
    let target = scenario.asked.target.to_string();
    hide(&mut answer, &target, &policy.sources);
    Ok(answer)
}

impl Question {
    fn plain() -> String {
        "GET /".to_owned()
    }

    fn arguments(self) -> Explain {
        Explain {
            config: None,
            upstream: None,
            request: self.request,
            headers: self.headers,
            body: None,
            responses: self.respond,
            script: None,
            mix: None,
            runs: None,
            against: None,
            client_timeout: self.client_timeout,
            client_certificate: None,
            seed: self.seed,
            format: Format::Json,
            json: true,
        }
    }
}

/// Hides what the author of the configuration may have meant to be secret: the target that is sent to an upstream if it is
/// another one than the request's, the values that routes match, literals of expressions, and values of variables.
fn hide(answer: &mut Json, target: &str, sources: &Sources) {
    each(answer, "", &mut |member, text| {
        if member == "target" && *text != target {
            HIDDEN.clone_into(text);
        } else if member == "why"
            && text.starts_with("there is no ")
            && let Some((name, _)) = text.split_once('=')
        {
            *text = format!("{name}={HIDDEN}");
        } else if member == "says" {
            *text = without_literals(text);
        }
        *text = sources.without_values(text).into_owned();
    });
}

/// Each text within `value`, which is the member of this name.
fn each(value: &mut Json, member: &str, change: &mut impl FnMut(&str, &mut String)) {
    match value {
        Json::String(text) => change(member, text),
        Json::Array(items) => items.iter_mut().for_each(|item| each(item, member, change)),
        Json::Object(members) => {
            members.iter_mut().for_each(|(name, value)| each(value, name, change));
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}
