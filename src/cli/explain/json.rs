//! An explanation as JSON.

use http::HeaderMap;
use serde_json::{Map, Value as Json, json};

use super::Explanation;
use crate::proxy::rehearsal::{ClientRequest, RehearsalEnd, Transcript};

/// The whole object. Durations are ISO 8601; `at` counts from the request's arrival.
pub(super) fn render(explained: &Explanation<'_, Transcript>) -> Json {
    let Explanation { asked, responses, described: _, told } = explained;
    let routes: Vec<Json> = told
        .routes
        .iter()
        .map(|(name, why)| json!({ "name": **name, "takes": why.is_none(), "why": why }))
        .collect();
    let (end, response) = end(&told.end);
    let unused = told.unused.iter().filter_map(|place| responses.get(*place));
    let unused: Vec<&str> = unused.map(|labelled| &*labelled.written).collect();
    json!({
        "request": request(asked),
        "route": told.routes.iter().find(|(_, why)| why.is_none()).map(|(name, _)| &**name),
        "routes": routes,
        "events": told.events,
        "result": told.result,
        "end": end,
        "response": response,
        "took": told.took,
        "unused": unused,
    })
}

/// The client's request.
pub(super) fn request(asked: &ClientRequest) -> Json {
    json!({
        "method": asked.method.as_str(),
        "target": asked.target.to_string(),
        "headers": fields(&asked.headers),
    })
}

/// How the request ended, and the response if there is one.
fn end(end: &RehearsalEnd) -> (&'static str, Json) {
    match end {
        RehearsalEnd::Answered { status, headers, body, broken } => {
            let response = json!({
                "status": status.as_u16(),
                "headers": fields(headers),
                "body": String::from_utf8_lossy(body),
            });
            (if *broken { "brokenOff" } else { "answered" }, response)
        }
        RehearsalEnd::Dropped => ("dropped", Json::Null),
        RehearsalEnd::Left => ("clientLeft", Json::Null),
        RehearsalEnd::Forever => ("waitsForever", Json::Null),
        RehearsalEnd::Endless => ("endless", Json::Null),
        RehearsalEnd::Busy => ("neverWaits", Json::Null),
    }
}

/// Fields by name; repeated fields as an array.
fn fields(headers: &HeaderMap) -> Json {
    let mut all = Map::new();
    for name in headers.keys() {
        let values = headers.get_all(name).iter();
        let mut values: Vec<Json> =
            values.map(|value| String::from_utf8_lossy(value.as_bytes()).into()).collect();
        let value = if values.len() > 1 { values.into() } else { values.pop().unwrap_or_default() };
        all.insert(name.as_str().to_owned(), value);
    }
    all.into()
}
