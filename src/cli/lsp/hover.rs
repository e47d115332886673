//! What the catalog says of the word under the cursor: a provider, or a parameter of the one above it.

use serde_json::Value as Json;

/// What is said of the word at this line and UTF-16 column, as Markdown.
pub(super) fn at(text: &str, line: usize, character: usize, catalog: &[Json]) -> Option<String> {
    let written = text.lines().nth(line)?;
    let word = word_at(written, character)?;
    let is = |document: &&Json| document.get("uri").and_then(Json::as_str) == Some(word);
    if let Some(document) = catalog.iter().find(is) {
        return Some(format!("**{word}**\n\n{}", described(document)?));
    }
    // The provider of the entry or the call is written above its parameters, or on the same line.
    let above: Vec<&str> = text.lines().take(line + 1).collect();
    let document = above.iter().rev().find_map(|line| {
        catalog.iter().find(|one| {
            let uri = one.get("uri").and_then(Json::as_str);
            uri.is_some_and(|uri| line.contains(uri))
        })
    })?;
    let parameter = parameter(document, word)?;
    let kind =
        parameter.get("type").map(|kind| format!(" ({})", kind.to_string().replace('"', "")));
    Some(format!("**{word}**{}\n\n{}", kind.unwrap_or_default(), described(parameter)?))
}

fn described(document: &Json) -> Option<&str> {
    document.get("description").and_then(Json::as_str)
}

/// The word at a column: a name or a URI.
fn word_at(line: &str, character: usize) -> Option<&str> {
    let mut units = 0;
    let place = line.char_indices().find_map(|(place, sign)| {
        units += sign.len_utf16();
        (units > character).then_some(place)
    })?;
    let part =
        |sign: char| sign.is_alphanumeric() || matches!(sign, ':' | '.' | '/' | '-' | '_' | '$');
    let (before, after) = line.split_at_checked(place)?;
    let start = before.char_indices().rev().take_while(|(_, sign)| part(*sign)).last();
    let start = start.map_or(place, |(start, _)| start);
    let end = after.find(|sign: char| !part(sign)).map_or(line.len(), |end| place + end);
    let word = line.get(start..end)?.trim_end_matches(':');
    (!word.is_empty()).then_some(word)
}

/// The schema of a parameter of this name, wherever it is declared in the document.
fn parameter<'a>(within: &'a Json, name: &str) -> Option<&'a Json> {
    match within {
        Json::Object(members) => {
            let declared = members.get("properties").and_then(|all| all.get(name));
            declared
                .filter(|one| one.get("description").is_some())
                .or_else(|| members.values().find_map(|inner| parameter(inner, name)))
        }
        Json::Array(items) => items.iter().find_map(|inner| parameter(inner, name)),
        _ => None,
    }
}
